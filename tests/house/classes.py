#!/usr/bin/env python3
"""No class of the product is so large that nobody can hold it in mind.

Counts, in the headers of the product's rooms, the functions that a class declares and the data members that it guards
(their names end in `_`; a plain struct of values guards none). A class over a limit becomes parts that own their data, or
stands below with the reason. Ends with `N passed, N failed, 0 skipped`: one for every class, and one for every exception.

With a number: prints that many of the largest classes.
"""

import pathlib
import re
import sys

ROOMS = ("runtime", "storage", "transport", "gpu", "config", "actors")
MOST_FUNCTIONS, MOST_MEMBERS = 60, 20
# "header:class" -> why it may be larger, for now. An entry that is not needed any more fails.
EXCEPTIONS = {}

COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
TYPE = re.compile(r"^\s*(?:typedef\s+)?(class|struct|union|enum)\b(?:\s+(?:class|struct)\b)?\s*(?:alignas\s*\([^)]*\)\s*)?([\w:]*)")
IN_LIST = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.DOTALL)
LABEL = re.compile(r"\s*(?:public|protected|private)\s*:")


def plain(text):
    """The source without comments, strings and directives. A digit separator is no quote."""
    text = re.sub(r"(?<=[0-9A-Fa-f])'(?=[0-9A-Fa-f])", "", text)
    return DIRECTIVE.sub("", COMMENTS.sub(" ", text))


def closing(text, at):
    """Where the brace that opens at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text)


def without_angles(text):
    """The statement without template arguments, and without the symbols of an operator's name."""
    text = re.sub(r"operator\s*(?:<=>|\(\s*\)|[^\s\w(]+)", "operator_named ", text)
    while (shorter := re.sub(r"<[^<>]*>", " ", text)) != text:
        text = shorter
    return text


def statements(body):
    """Of a class's body: (declaration, the body of a type that it declares or None)."""
    begin = at = 0
    while at < len(body):
        if label := LABEL.match(body, begin):
            begin = at = max(at, label.end())
        c = body[at:at + 1]
        if c == ";":
            yield body[begin:at], None
            begin = at + 1
        elif c == "{":
            said, end = body[begin:at], closing(body, at)
            if TYPE.match(without_angles(re.sub(r"^\s*template\s*", " ", said))) and "(" not in without_angles(said):
                yield said, body[at + 1:end]
                semicolon = body.find(";", end)
                begin = at = len(body) if semicolon < 0 else semicolon
                begin += 1
            else:
                parameters = without_angles(said).partition("=")[0]
                in_list = IN_LIST.search(said)  # a member of a constructor's list
                at = end
                if "(" in parameters and not in_list:
                    yield said, None
                    begin = at + 1
        at += 1


def classes_of(text, outer=""):
    """(name, functions, members) of every class in this text."""
    for said, body in statements(text) if outer else outer_types(text):
        if body is None:
            continue
        kind = TYPE.match(without_angles(re.sub(r"^\s*template\s*", " ", said)))
        if kind is None or kind[1] == "enum":
            continue
        name = outer + "::" + kind[2] if outer else kind[2]
        functions = members = 0
        for declared, inner in statements(body):
            short = without_angles(re.sub(r"^\s*template\s*(?=<)", " ", declared))
            if inner is not None or re.match(r"\s*(?:using|friend|static_assert|typedef)\b", short):
                continue
            if "(" in short.partition("=")[0]:
                functions += not re.search(r"=\s*(?:default|delete)\s*$", short)
            else:
                members += len(set(re.findall(r"\b(\w+_)\s*(?=,|=|\[|\{|$)", short)))
        yield name, functions, members
        yield from classes_of(body, name)


def outer_types(text):
    """Types that no other type encloses."""
    at = 0
    while found := re.compile(r"(?:^|[;}\n])\s*((?:template\s*<[^;{}]*>\s*)?(?:class|struct)\s[^;{}()=]*)\{").search(text, at):
        end = closing(text, found.end() - 1)
        yield found[1], text[found.end():end]
        at = end


def check_itself():
    planted = """
      /// A class; with braces } in a comment.
      template <class T> class large final : public base<T> {
       public:
        explicit large(int a) : a_(a), b_{a}, c_{} { if (a) { run(); } }
        int get() const noexcept { return a_; }
        bool operator==(const large&) const = default;
        void later(std::function<void(int)> done, std::vector<int> all = {}) const;
       private:
        struct part { int x_ = 0; void go(); };
        int a_ = 1'000, b_ = 2;
        std::function<void(int)> c_;
        std::map<int, std::pair<int, int>> d_{};
      };
      struct values { int one = 0, two = 0; };
    """
    found = {name: (functions, members) for name, functions, members in classes_of(plain(planted))}
    wanted = {"large": (3, 4), "large::part": (1, 1), "values": (0, 0)}
    assert found == wanted, f"it counts wrongly: {found}"
    many = "class giant { " + " ".join(f"void f{i}();" for i in range(MOST_FUNCTIONS + 1)) + " };"
    assert next(iter(classes_of(many)))[1] > MOST_FUNCTIONS, "it would find nothing"


def main():
    check_itself()
    root = pathlib.Path(__file__).resolve().parents[2]
    all_classes = {}
    for room in ROOMS:
        for header in sorted((root / room).rglob("*.hpp")):
            path = header.relative_to(root).as_posix()
            for name, functions, members in classes_of(plain(header.read_text(errors="replace"))):
                all_classes[f"{path}:{name}"] = (functions, members)
    if len(sys.argv) > 1:
        for name, (functions, members) in sorted(all_classes.items(), key=lambda e: -(e[1][0] + 3 * e[1][1]))[:int(sys.argv[1])]:
            print(f"{functions:4} functions {members:3} members  {name}")
    large = {name for name, (functions, members) in all_classes.items()
             if functions > MOST_FUNCTIONS or members > MOST_MEMBERS}
    lines = []
    for name in sorted(large - EXCEPTIONS.keys()):
        functions, members = all_classes[name]
        lines.append(f"{name} has {functions} functions and {members} data members; at most {MOST_FUNCTIONS} and "
                     f"{MOST_MEMBERS}: divide it into parts that own their data")
    lines += [f"{name} is not too large (any more): take it out of the exceptions" for name in sorted(EXCEPTIONS.keys() - large)]
    for line in lines:
        print(line)
    print(f"{len(all_classes) + len(EXCEPTIONS) - len(lines)} passed, {len(lines)} failed, 0 skipped")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
