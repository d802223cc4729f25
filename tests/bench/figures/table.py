#!/usr/bin/env python3
"""Puts the table of figures into tests/bench/README.md, made from latest.csv beside this script.

usage: table.py          writes it
       table.py --check  fails if the page has another one, or a row names a bench whose figures are not here
"""
import csv
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "README.md"
BEGIN, END = "<!-- figures/latest.csv -->\n", "<!-- end -->"


def table():
    with open(HERE / "latest.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["from"] and not (HERE / f"{row['from']}.csv").exists():
            sys.exit(f"latest.csv: '{row['figure']}' is from {row['from']}.csv, which is not there")
    lines = ["| figure | mooncaf | beside | | date | rows |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = [row["figure"], row["ours"], row["beside"], row["theirs"], row["date"][5:],
                 f"[{row['from']}](figures/{row['from']}.csv)" if row["from"] else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    if "--check" not in sys.argv:
        PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
        return 0
    same = old == table()
    print("1 passed, 0 failed, 0 skipped" if same else
          "tests/bench/README.md has another table than figures/latest.csv: run tests/bench/figures/table.py\n0 passed, 1 failed, 0 skipped")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
