#!/usr/bin/env python3
"""Every folder includes only what lies below it, and CAF stays with the actors.

The table is the architecture: a folder, and what its sources may include beside their own folder. A name ending in
.hpp allows that header alone. Ends with `N passed, N failed, 0 skipped`: one for every folder.
"""

import pathlib
import re
import sys

BASE = "runtime/base"
MAY_INCLUDE = {
    "runtime/base": [],
    "gpu": [BASE],
    "storage": [BASE],
    "storage/objects": [BASE, "storage", "transport"],
    "storage/engine": [BASE, "storage", "transport"],
    "storage/python": [BASE, "storage/objects", "storage/engine", "transport/net/secret.hpp"],
    "transport": [BASE],
    "config": [BASE],
    "runtime/model": [BASE, "gpu", "storage/eviction.hpp", "storage/prefix_tree.hpp"],
    "runtime/text": [BASE, "runtime/model/gguf.hpp", "runtime/model/json_file.hpp"],
    "runtime/grammar": [BASE, "runtime/text/tokenizer.hpp", "runtime/model/token_constraint.hpp"],
    "runtime/tools": [BASE, "runtime/grammar/json_schema.hpp"],
    "runtime/reasoning": [BASE, "runtime/grammar/gbnf.hpp"],
    "runtime/sched": [BASE],
    "runtime/request": [BASE, "runtime/sched", "runtime/model/sampling_params.hpp"],
    "runtime/sim": [BASE, "runtime/sched", "runtime/model/forward_pass.hpp", "runtime/model/kv_residency.hpp", "config", "storage/copy_survey.hpp", "storage/eviction.hpp",
                    "storage/prefix_tree.hpp", "storage/write_policy.hpp"],
    "runtime/sim/cli": [BASE, "runtime/sim", "runtime/sched", "runtime/model", "gpu/host", "config",
                        "storage/eviction.hpp", "storage/mapped_file.hpp"],
    "actors/http": [BASE, "runtime/text", "runtime/grammar", "runtime/tools", "runtime/model", "runtime/sched/rate_limit.hpp", "config"],
    "actors/metrics": [BASE, "actors/http"],
    "actors/cluster": [BASE, "actors", "transport/net/secret.hpp", "runtime/sched/rate_limit.hpp"],
    "actors": ["actors", "runtime", "storage", "transport", "gpu", "config"],
}
WITH_CAF = ("actors", "actors/cluster")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(caf/[^>]+)>)', re.MULTILINE)


def folder_of(path):
    """The most specific folder of the table that holds this file."""
    fitting = [f for f in MAY_INCLUDE if path.startswith(f + "/")]
    return max(fitting, key=len) if fitting else None


def allowed(folder, header):
    if folder_of(header) == folder:
        return True
    return any(header == a or header.startswith(a + "/") for a in MAY_INCLUDE[folder])


def violations(path, text):
    folder = folder_of(path)
    for ours, caf in INCLUDE.findall(text):
        if caf and folder not in WITH_CAF:
            yield f"{path} includes <{caf}>: only actors may"
        if ours and "/" in ours and not allowed(folder, ours):
            yield f"{path} includes {ours}, which {folder} may not see"


def main():
    assert list(violations("runtime/sched/a.cpp", '#include "gpu/device.hpp"\n')), "it would find nothing"
    assert list(violations("storage/a.hpp", "#include <caf/actor.hpp>\n")), "it would find nothing"
    root = pathlib.Path(__file__).resolve().parents[2]
    found = {folder: [] for folder in MAY_INCLUDE}
    for top in ("runtime", "gpu", "storage", "transport", "config", "actors"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".hpp", ".cpp", ".inl", ".h", ".cu", ".cuh"):
                continue
            path = file.relative_to(root).as_posix()
            if folder_of(path) is None:
                found["actors"].append(f"{path} lies in no folder of the table: add it")
                continue
            found[folder_of(path)] += violations(path, file.read_text(errors="replace"))
    bad = 0
    for folder, lines in found.items():
        bad += bool(lines)
        for line in lines:
            print(line)
    print(f"{len(found) - bad} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
