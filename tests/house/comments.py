#!/usr/bin/env python3
"""Comments have a subject, and long functions say why.

Of the comment blocks of a room no more than MOST per cent may lean on a pronoun in the place of a subject (who, what, those,
somebody …): such sentences are good now and then, and riddles when they are a habit. A function of LONG lines or more in a
source has a comment, above it or inside. Ends with `N passed, N failed, 0 skipped`: one for every room, and one for every
long function.

    comments.py            the figures, and what fails
    comments.py ROOM...    every block of these folders that leans, and every long function that is silent
"""
import pathlib
import re
import subprocess
import sys

ROOMS = ("actors", "config", "gpu", "runtime", "storage", "transport")
LEANS = re.compile(r"\b(?:who|whom|whose|what|those|somebody|nobody|anybody)\b", re.IGNORECASE)
WHOLE_LINE, AT_END = re.compile(r"\s*//[/!]?<? ?(.*)"), re.compile(r"[;{},()]\s*///?<? (.*)")
MOST, LONG = 10, 30


def blocks(text):
    """(line, comment) of every run of comment lines, and of every comment behind code."""
    run, begin = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        if whole := WHOLE_LINE.match(line):
            begin = begin if run else number
            run.append(whole[1])
            continue
        if run:
            yield begin, " ".join(run)
        run = []
        if behind := AT_END.search(line):
            yield number, behind[1]
    if run:
        yield begin, " ".join(run)


def long_functions(text):
    """(line, name, says something) of the functions of LONG lines or more that begin at the left edge."""
    lines = text.split("\n")
    begin, commented = None, False
    for number, line in enumerate(lines):
        if begin is None:
            if re.match(r"[A-Za-z_\[~:]", line) and not re.match(r"(?:namespace|class|struct|union|enum|using|extern)\b", line):
                begin, commented = number, number > 0 and lines[number - 1].startswith("//")
            else:
                continue
        if line == "}":
            name = re.search(r"([~\w]+)\s*\(", " ".join(lines[begin:begin + 6]))
            if number - begin + 1 >= LONG and name:
                yield begin + 1, name[1], commented or any("//" in l for l in lines[begin:number])
            begin = None
        elif line.endswith((";", "};")) and not line.startswith((" ", "}")):
            begin = None  # a declaration
        elif line.startswith("};"):
            begin = None
    return


def main():
    assert list(blocks("// a\n// b\nint c;  ///< d\n")) == [(1, "a b"), (3, "d")], "it would miscount"
    assert list(long_functions("int f() {\n" + "  g();\n" * LONG + "}\n")) == [(1, "f", False)], "it would find nothing"
    root = pathlib.Path(__file__).resolve().parents[2]
    shown = sys.argv[1:]
    listed = subprocess.run(["git", "-C", root, "ls-files", *ROOMS], capture_output=True, text=True, check=True).stdout.split("\n")
    rooms, passed, failed = {}, 0, 0
    for name in (f for f in listed if f.endswith((".cpp", ".hpp", ".cu", ".cuh"))):
        text = (root / name).read_text()
        parts = name.split("/")
        room = rooms.setdefault("/".join(parts[:2]) if parts[0] == "runtime" else parts[0], [0, 0])
        named = any(name.startswith(s.rstrip("/") + "/") for s in shown)
        for line, comment in blocks(text):
            room[0] += 1
            if LEANS.search(comment):
                room[1] += 1
                if named:
                    print(f"{name}:{line}: {comment}")
        for line, function, says in long_functions(text) if name.endswith(".cpp") else ():
            passed, failed = passed + says, failed + (not says)
            if not says and (named or not shown):
                print(f"{name}:{line}: {function} has {LONG} lines or more and says nothing")
    for room, (all_of_them, leaning) in sorted(rooms.items()):
        share = 100 * leaning / all_of_them
        print(f"{room}: {share:.0f} % of {all_of_them} comments lean on a pronoun")
        passed, failed = passed + (share <= MOST), failed + (share > MOST)
    assert passed > 100, "it would find nothing"
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
