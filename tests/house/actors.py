#!/usr/bin/env python3
"""Every actor is an adapter: it decodes a message, calls a core, and carries out what the core wants.

An actor is a class of `actors/` that is a CAF actor: its header, and every source that defines members of it. At most 250
lines, and at most 5 branches (if, for, while, switch, ?:) per 100 lines. An actor that is still over stands in OVER with
the reason; an entry that is not needed any more fails, too. Ends with `N passed, N failed, 0 skipped`: one for every actor.
"""

import pathlib
import re
import sys

LINES_MOST, BRANCHES_MOST = 250, 5.0
OVER = {}
ACTOR = re.compile(r"^class (\w+) final\s*:\s*public (?:\w+_actor::base|\w*_actor<)", re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
BRANCH = re.compile(r"\b(?:if|for|while|switch)\b|\?")


def branches(text):
    return len(BRANCH.findall(COMMENT_OR_TEXT.sub("", text)))


def members_of(name):
    """A definition of a member of this class, at the beginning of a line."""
    return re.compile(rf"^(?:[\w:<>,&*~ ]+ )?{name}::~?\w+\(", re.MULTILINE)


def main():
    assert branches('if (a) b = c ? d : "if"; // while\nfor (;;) {}') == 3, "it would miscount"
    root = pathlib.Path(__file__).resolve().parents[2]
    sources = {f: f.read_text() for f in sorted((root / "actors").rglob("*.cpp"))}
    seen, bad = set(), 0
    for header in sorted((root / "actors").rglob("*.hpp")):
        for name in ACTOR.findall(header.read_text()):
            seen.add(name)
            texts = [header.read_text()] + [t for t in sources.values() if members_of(name).search(t)]
            lines = sum(t.count("\n") for t in texts)
            share = 100.0 * sum(map(branches, texts)) / lines
            over = lines > LINES_MOST or share > BRANCHES_MOST
            print(f"{name}: {lines} lines, {share:.1f} branches per 100" + (f" (over: {OVER[name]})" if over and name in OVER else ""))
            if over and name not in OVER:
                print(f"  more than {LINES_MOST} lines or {BRANCHES_MOST:g} branches per 100: what decides belongs below")
            if not over and name in OVER:
                print("  needs its entry in OVER no more: delete it")
            bad += over != (name in OVER)
    for name in sorted(OVER.keys() - seen):
        print(f"{name}: stands in OVER and is no actor: delete its entry")
        bad += 1
    assert len(seen) >= 5, "it would find nothing"
    print(f"{len(seen) - min(bad, len(seen))} passed, {bad} failed, 0 skipped")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
