#!/usr/bin/env python3
"""Fails on functions of the project that the product cannot reach: only tests use them, or nobody.

    unwired.py BUILD_FOLDER EXCEPTIONS

Links the product once more with every object of the project in it and asks the linker which sections it throws away
(each function has one of its own, -ffunction-sections). Exact where the linker sees a function: one that is inlined
into all its callers is thrown away, too, so a function that its own source file calls counts as used, and an inline
function that nobody calls is never compiled and not seen.

EXCEPTIONS has a line each: the function as it is printed here, two spaces, and why it stays. A line that excuses
nothing fails as well.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SECTION = re.compile(r"removing unused section '?(?P<object>[^:']*?)'?:\(\.text(?:\.\w+)?\.(?P<symbol>_ZNK?7mooncaf\w+)[.\w]*\)")
GNU_SECTION = re.compile(r"removing unused section '\.text(?:\.\w+)?\.(?P<symbol>_ZNK?7mooncaf\w+)[.\w]*' in file '(?P<object>[^']*)'")
# Made by the compiler, or by CAF for a message: nobody wrote them, so nobody can delete them.
MADE = re.compile(r"operator=|\{lambda|::inspect<|::~|\(anonymous namespace\)")


def link_command(build):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "mooncaf"], capture_output=True, text=True, check=True)
    return commands.stdout.strip().split("\n")[-1]


def thrown_away(build):
    """{demangled function: source file}"""
    with tempfile.TemporaryDirectory() as folder:
        command = re.sub(r"(\S*libmooncaf_\w+\.a)", r"-Wl,--whole-archive \1 -Wl,--no-whole-archive", link_command(build))
        command = command.replace("-o actors/mooncaf ", f"-Wl,--print-gc-sections -o {folder}/mooncaf ")
        linked = subprocess.run(command, shell=True, cwd=build, capture_output=True, text=True)
    if linked.returncode != 0:
        sys.exit("unwired: the product does not link with every object in it:\n" + linked.stderr[-4000:])
    found = {}
    for line in (linked.stdout + linked.stderr).splitlines():
        match = SECTION.search(line) or GNU_SECTION.search(line)
        if match:
            found[match["symbol"]] = match["object"]
    names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True).stdout.split("\n")
    return dict(zip(names, found.values()))


def sources_of(object_name, sources, build):
    """actors/libmooncaf_actors.a(gateway.cpp.o) -> [actors/gateway.cpp]; of a batch (MOONCAF_UNITY), all that it includes"""
    match = re.search(r"([^/(]*)(?:\.a\(|/)([^/()]+)\.o\)?$", object_name)
    stem = match.group(2)
    folder = object_name.split("/lib")[0]
    if stem.startswith("unity_"):
        batch = pathlib.Path(build, folder, "CMakeFiles", match.group(1).removeprefix("lib") + ".dir", "Unity", stem)
        return [pathlib.Path(s) for s in re.findall(r'#include "(.*)"', batch.read_text())]
    fitting = [s for s in sources if s.name == stem]
    return ([s for s in fitting if str(s).startswith(folder)] or fitting)[:1]


def definitions_of(bare, text):
    return len(re.findall(rf"^(?:\w[^\n=;]*[\s*&:])?{re.escape(bare)}\s*\([^;{{}}]*\)[^;{{}}]*(?::[^;]*)?\{{", text, re.M))


def defined_in(name, candidates):
    """(the file that defines a function, whether it also uses it), of the files that are compiled as one"""
    bare = re.sub(r"\(.*", "", re.sub(r"<.*", "", name.replace("[abi:cxx11]", ""))).split("::")[-1]
    texts = [(s, re.sub(r"//[^\n]*", "", s.read_text())) for s in candidates]
    own = [(s, text) for s, text in texts if definitions_of(bare, text)] or texts
    owner = name.split("(")[0].split("::")[-2:-1]
    source, text = next((st for st in own if owner and f"{owner[0]}::{bare}" in st[1]), own[0])
    uses = len(re.findall(rf"(?<![.>\w]){re.escape(bare)}\s*[({{]", text))
    # In a batch the compiler inlines into other sources, too.
    elsewhere = any(re.search(rf"(?:\.|->|\b){re.escape(bare)}\s*\(", other) for s, other in texts if s != source)
    return source, uses > definitions_of(bare, text) or elsewhere


def is_implicit(short, texts):
    """Whether this is a constructor that no class of that name declares: the compiler made it."""
    *_, owner, bare = ["", *short.split("::")]
    return owner == bare and not any(re.search(rf"^ +(?:(?:explicit|constexpr) )*{re.escape(bare)}\(", t, re.M) for t in texts)


def main():
    build, exceptions = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
    root = pathlib.Path(__file__).resolve().parents[2]
    os.chdir(root)
    rooms = [root / room for room in ("actors", "config", "gpu", "runtime", "storage", "transport")]
    sources = [p.relative_to(root) for room in rooms for p in room.rglob("*.cpp")]
    texts = [p.read_text() for room in rooms for p in room.rglob("*.hpp")] + [s.read_text() for s in sources]
    excused = {}
    for line in pathlib.Path(exceptions).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, why = line.partition("  ")
            if not why.strip():
                sys.exit(f"unwired: {exceptions}: '{name}' gives no reason")
            excused[name] = why.strip()
    bad, used_excuses = [], set()
    for name, object_name in sorted(thrown_away(build).items()):
        candidates = sources_of(object_name, sources, build)
        short = re.sub(r"\(.*", "", name.replace("mooncaf::", "").replace("[abi:cxx11]", ""))
        if MADE.search(name) or not candidates or is_implicit(short, texts):
            continue
        source, calls_itself = defined_in(name, candidates)
        if calls_itself:
            continue
        if short in excused:
            used_excuses.add(short)
        else:
            bad.append(f"{source.relative_to(root) if source.is_absolute() else source}  {short}")
    for line in sorted(set(bad)):
        print("nothing in the product uses:", line)
    # Of batches the linker does not show every function that only tests use.
    stale = set() if any(pathlib.Path(build).glob("runtime/*/CMakeFiles/*/Unity")) else set(excused) - used_excuses
    for name in sorted(stale):
        print(f"{exceptions}: '{name}' is excused and needs no excuse")
    failed = len(set(bad)) + len(stale)
    print(f"{failed} to mend" if failed else f"every function is used by the product, {len(excused)} excused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
