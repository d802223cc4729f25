#!/usr/bin/env python3
"""No two enumerations of the product are one idea: none has two thirds of the values of another.

    vocabulary.py           the project
    vocabulary.py FILE...   these files

Compared are the names of the values, at least two of them in common, with those of the smaller enumeration; what is said
of everything (none, failed, read, write …) and names of number and text types do not count. APART lists the pairs that look alike and are not, each with
its reason; a line that excuses nothing fails as well. Ends with `N passed, N failed, 0 skipped`: one for every enumeration.
"""
import collections
import itertools
import pathlib
import re
import sys

ROOMS = ("actors", "config", "gpu", "runtime", "storage", "transport")
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
ENUM = re.compile(r"\benum\s+(?:class|struct)\s+(\w+)[^{;]*\{(.*?)\}", re.S)
SAID_OF_EVERYTHING = {
    "none", "other", "unknown", "off", "ok", "done", "failed", "error", "closed", "ended", "open", "ready",
    "read", "write", "load", "save", "number", "string", "boolean", "f16", "f32"}
APART = {
    ("body_endpoint", "endpoint_id"): "the endpoints that read a JSON body, as bits of a set",
    ("flow", "stmt_kind"): "Jinja's break and continue as written, and as they unwind a loop",
    ("link_kind", "transfer_path"): "what a connection is opened for, and how bytes went; both travel, with values of their own",
    ("plan_mode", "serving_mode"): "how a plan is searched, which may be both",
    ("reject_stage", "worker_role"): "the limit that refused a request",
}


def enums_of(text):
    """[(name, values)]"""
    for name, body in ENUM.findall(NOISE.sub(" ", text)):
        # Of `a = f(1, 2)` the first word is a value; no initialiser of ours has a comma outside of brackets.
        values = [re.match(r"\s*(\w+)", part) for part in re.sub(r"\([^)]*\)", "", body).split(",")]
        yield name, frozenset(v[1] for v in values if v)


def alike(a, b):
    a, b = a - SAID_OF_EVERYTHING, b - SAID_OF_EVERYTHING
    shared = len(a & b)
    return shared >= 2 and 3 * shared >= 2 * min(len(a), len(b))


def main():
    assert list(enums_of("enum class a : int { b, c = f(1, 2),  ///< d\n e };")) == [("a", {"b", "c", "e"})]
    assert alike({"dram", "ssd"}, {"device", "dram", "ssd"}) and not alike({"none", "a"}, {"none", "b"})
    root = pathlib.Path(__file__).resolve().parents[2]
    files = [pathlib.Path(f) for f in sys.argv[1:]] or sorted(
        f for room in ROOMS for s in ("*.hpp", "*.cpp") for f in (root / room).rglob(s))
    found = [(f, name, values) for f in files for name, values in enums_of(f.read_text(errors="replace"))]
    bad, excused = collections.Counter(), set()
    for (f, a, of_a), (g, b, of_b) in itertools.combinations(found, 2):
        if not alike(of_a, of_b):
            continue
        if (pair := tuple(sorted((a, b)))) in APART:
            excused.add(pair)
            continue
        print(f"{a} ({f}) and {b} ({g}) are one idea: {', '.join(sorted(of_a & of_b))}")
        bad[f, a] += 1
    if not sys.argv[1:]:
        for pair in sorted(set(APART) - excused):
            print(f"{' and '.join(pair)} need no excuse")
            bad[pair] += 1
    print(f"{len(found) - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
