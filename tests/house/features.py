#!/usr/bin/env python3
"""storage/objects/FEATURES.md says nothing that no test shows: each row that works names one, and it is there.

Ends with `N passed, N failed, 0 skipped`: one for every row.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    for line in (ROOT / "storage/objects/FEATURES.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("| ") else []
        if cells and cells[0] != "feature" and not set(cells[0]) <= {"-", " "}:
            yield cells


def problem(cells):
    if len(cells) != 4:
        return "a row has four cells"
    name, here, _, shown_by = cells
    if here == "not":
        return "what is not there is shown by nothing" if shown_by else None
    if here not in ("works", "better"):
        return f"'{here}' is neither works, better nor not"
    found = re.fullmatch(r"([\w.]+): `(.+)`", shown_by)
    if not found:
        return "no test is named"
    files = [p for p in (ROOT / "tests").rglob(found[1])]
    if not any(found[2] in p.read_text() for p in files):
        return f"there is no {found[2]} in {found[1]}"
    return None


def main():
    outcomes = [(cells, problem(cells)) for cells in rows()]
    for cells, why in outcomes:
        if why:
            print(f"{cells[0]}: {why}")
    failed = sum(1 for _, why in outcomes if why)
    if len(outcomes) < 30:
        print("the page has lost its rows")
        failed += 1
    print(f"{len(outcomes) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
