#!/usr/bin/env python3
"""Every option is read by the product: none is accepted and then ignored.

A field of a struct of config/options.hpp counts as read where code outside of config reaches it through an object of that
struct: `….prefill.instances`, or `o.instances` where `o` was declared in the same file as a `prefill_options` or made from
`….prefill`. A field of that name in any other struct does not count. Ends with `N passed, N failed, 0 skipped`, one for every field.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Read by a function of config's, which the product calls.
READ_BY = {"store_options::listen": "directory_listen"}
ROOMS = ("actors", "runtime", "storage", "transport", "gpu")
HEAD = re.compile(r"^struct (\w+) \{$")
FIELD = re.compile(r"^ +[\w:<>]+ (\w+(?:, \w+)*)(?: = [^,;]*(?:, \w+ = [^,;]*)*)?(?:\{\})?;")


def structs(header):
    """{struct: [field]} of a header."""
    found, owner = {}, None
    for line in header.splitlines():
        if head := HEAD.match(line):
            owner = head[1]
        elif line.startswith("}"):
            owner = None
        elif owner and (field := FIELD.match(line)):
            statement = line.split("//")[0].split(";")[0].split(None, 1)[1] if "<" not in line.split("//")[0] else ""
            names = re.findall(r"(\w+)(?: = [^,]*)?(?:,|$)", statement.replace("{}", "")) if statement else [field[1]]
            found.setdefault(owner, []).extend(names)
    return found


def is_read(struct, section, field, sources):
    """Whether some source reaches `field` through an object of `struct`."""
    through_section = re.compile(rf"\b{section}(?:\.|->){field}\b")
    typed = re.compile(rf"\b{struct}\s*[&*]?\s+(\w+)\b|\b(\w+) = [\w.()*>-]*(?:\.|->){section}\b\s*[;,)]")
    for text in sources:
        if field not in text:
            continue
        if through_section.search(text):
            return True
        names = {a or b for a, b in typed.findall(text)}
        if any(re.search(rf"\b{name}(?:\.|->){field}\b", text) for name in names):
            return True
    return False


def unread(header, sources):
    found = structs(header)
    sections = dict(found_section for found_section in re.findall(r"^  (\w+) (\w+);", header.split("struct options {")[1], re.M))
    fields = [(s, section, f) for s, section in sections.items() for f in found[s]]
    bad = [f"{s}::{f}" for s, section, f in fields if not is_read(s, section, f, sources)]
    return len(fields), [name for name in bad if not any(f"{READ_BY.get(name)}(" in text for text in sources)]


# What it must find and must not, so that it cannot go blind unnoticed.
HEADER = "struct a_options {\n  int one = 0;\n  double low = 0, high = 0;  ///< x\n  std::optional<int> two;\n};\nstruct options {\n  a_options a;\n};\n"
CASES = [(["x.a.one; b.low; f(a_options& o) { o.two; }"], ["a_options::low", "a_options::high"]),
         (["const auto& it = values.a; it.one + it.low + it.high;", "other.two"], ["a_options::two"])]


def main():
    for sources, expected in CASES:
        assert unread(HEADER, sources) == (4, expected), unread(HEADER, sources)
    sources = [f.read_text() for room in ROOMS for f in sorted((ROOT / room).rglob("*")) if f.suffix in (".cpp", ".hpp")]
    fields, bad = unread((ROOT / "config/options.hpp").read_text(), sources)
    assert fields > 90, f"only {fields} fields were found in config/options.hpp"
    for name in bad:
        print(f"{name} is declared, and nothing outside of config reads it")
    print(f"{fields - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
