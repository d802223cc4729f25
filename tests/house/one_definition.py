#!/usr/bin/env python3
"""Fails where one binary would hold two types of one name: the linker keeps one `std::vector<that>` for both, which is
undefined behaviour that no compiler sees.

    one_definition.py              the project
    one_definition.py FILE...      these files, as if one binary were made of them

Reads the sources instead of linking with -flto -Wodr, which compiles everything a second time. Types in unnamed
namespaces and in function bodies cannot clash and are left out. Each folder of tests is one binary together with the
product; rooms of the product are one binary all together.
"""
import collections
import functools
import os
import pathlib
import re
import sys

ROOMS = ("actors", "config", "gpu", "runtime", "storage", "transport")
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
                   re.S | re.M)
TOKEN = re.compile(r"::|[A-Za-z_]\w*|[{};<>()=:,]|\S")
TYPE_WORDS = {"struct", "class", "union", "enum"}


def skip_group(tokens, at, opening, closing):
    depth = 0
    while at < len(tokens):
        depth += (tokens[at] == opening) - (tokens[at] == closing)
        at += 1
        if depth == 0:
            break
    return at


def type_head(tokens, at):
    """Of `struct [[x]] alignas(8) a::b<int> final : base {` the name and the place of the brace; else None."""
    at += 1
    if at < len(tokens) and tokens[at] in TYPE_WORDS:  # enum class
        at += 1
    name = []
    while at < len(tokens):
        token = tokens[at]
        if token == "[":
            at = skip_group(tokens, at, "[", "]")
        elif token == "alignas":
            at = skip_group(tokens, at + 1, "(", ")")
        elif token == "<" and name:
            end = skip_group(tokens, at, "<", ">")
            name += tokens[at:end]
            at = end
        elif token == "final" and name:
            at += 1
        elif re.match(r"[A-Za-z_:]", token) and token != ":":
            if name and name[-1] != "::" and token != "::":
                return None  # `struct tm value`, a declaration
            name.append(token)
            at += 1
        elif token == ":" and name:
            while at < len(tokens) and tokens[at] not in "{;)":
                at += 1
        elif token == "{" and name:
            return "".join(name), at
        else:
            return None
    return None


def types_of(text):
    """Qualified names of the types that a source defines and that other sources can see."""
    tokens = TOKEN.findall(NOISE.sub(" ", text))
    scopes, at, found = [], 0, []  # a scope is (kind, name): namespace, unnamed, type or body
    while at < len(tokens):
        token = tokens[at]
        hidden = any(kind in ("unnamed", "body") for kind, _ in scopes)
        if token == "namespace" and at + 1 < len(tokens):
            end = at + 1
            while tokens[end] not in "{;=":
                end += 1
            if tokens[end] == "{":
                name = "".join(tokens[at + 1:end]).replace("inline", "")
                scopes.append(("namespace", name) if name else ("unnamed", ""))
            at = end + 1
        elif token == "template" and at + 1 < len(tokens) and tokens[at + 1] == "<":
            at = skip_group(tokens, at + 1, "<", ">")
        elif token in TYPE_WORDS:
            head = type_head(tokens, at)
            if head is None:
                at += 1
                continue
            name, brace = head
            if not hidden:
                found.append("::".join([n for _, n in scopes] + [name]))
            scopes.append(("type", name))
            at = brace + 1
        elif token == "{":
            scopes.append(("body", ""))
            at += 1
        elif token == "}":
            if scopes:
                scopes.pop()
            at += 1
        else:
            at += 1
    return found


@functools.lru_cache(maxsize=None)
def types_in(file):
    return types_of(file.read_text(errors="replace"))


def clashes(files):
    """[(name, files)] of the names that more than one file defines."""
    where = collections.defaultdict(set)
    for file in files:
        for name in types_in(file):
            where[name].add(str(file))
    return sorted((name, sorted(places)) for name, places in where.items() if len(places) > 1)


# What it must find and must not, so that it cannot go blind unnoticed.
CASES = [
    ("namespace a {\n/// Two words.\nstruct stored_block {\n  int key;\n};\n}", ["a::stored_block"]),
    ("namespace a::b { template <class T> class alignas(8) c final : d<T> { enum class e : int { f }; void g() {} }; }",
     ["a::b::c", "a::b::c::e"]),
    ("namespace a { struct b::impl { struct c {}; }; template <> struct d<int> {}; }",
     ["a::b::impl", "a::b::impl::c", "a::d<int>"]),
    ("namespace a { namespace { struct b {}; } struct c; struct tm d; void e() { struct f {}; } }", []),
    ('namespace a { const char* s = "struct b {"; /* struct c { */ struct d {}; }', ["a::d"]),
]


def main():
    for text, expected in CASES:
        assert types_of(text) == expected, (text, types_of(text))
    if len(sys.argv) > 1:
        binaries = [[pathlib.Path(f) for f in sys.argv[1:]]]
    else:
        root = pathlib.Path(__file__).resolve().parents[2]
        os.chdir(root)
        sources = [f for s in ("*.hpp", "*.cpp") for room in ROOMS + ("tests",) for f in pathlib.Path(room).rglob(s)]
        product = [f for f in sources if f.parts[0] != "tests"]
        folders = sorted({f.parent for f in sources} - {f.parent for f in product})
        binaries = [product] + [product + [f for f in sources if f.parent == d] for d in folders]
    found = sorted({(name, tuple(places)) for files in binaries for name, places in clashes(files)})
    for name, places in found:
        print(f"{name} is defined in {' and in '.join(places)}")
    print(f"{len(found)} names with two definitions" if found else "every type has one definition")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
