#!/usr/bin/env python3
"""Every folder includes only what lies below it, no two folders include each other, and CAF stays with the actors.

The table is the architecture: every folder that holds sources has a row, which says what they may include beside their own
folder. The name of a folder allows that folder alone, `name/**` what lies below it, too, and a name ending in .hpp that
header. Ends with `N passed, N failed, 0 skipped`: one for every folder, and one for circles.
"""

import collections
import pathlib
import re
import sys

BASE = "runtime/base"
OF_A_TRANSPORT = [BASE, "transport", "transport/copy", "transport/net"]
MAY_INCLUDE = {
    "runtime/base": [],
    "runtime/log": [BASE],
    "runtime/pages": [],
    "gpu": [BASE],
    "gpu/host": [BASE, "gpu"],
    "gpu/host/kernels": ["gpu/host"],
    "gpu/cuda": [BASE, "gpu", "gpu/host"],
    "gpu/linked": [BASE, "gpu", "gpu/host"],
    "storage": [BASE],
    "storage/objects/terms": [BASE, "storage/write_policy.hpp"],
    "storage/objects/table": [BASE, "storage/objects/terms", "storage/eviction.hpp", "storage/memory_boundary.hpp",
                              "storage/offset_allocator.hpp"],
    "storage/objects/disk": [BASE, "storage/objects/terms", "storage/objects/wire/store_wire.hpp", "storage/rocksdb_tier.hpp",
                             "transport/net/handshake.hpp"],
    "storage/objects/wire": [BASE, "storage/objects/terms", "storage/memory_boundary.hpp", "transport/**"],
    "storage/objects/directory": [BASE, "storage/objects/terms", "storage/objects/table", "storage/objects/wire", "transport/**"],
    "storage/objects/segment": [BASE, "storage/objects/terms", "storage/objects/wire", "transport/**"],
    "storage/objects/client": [BASE, "storage/objects/terms", "storage/objects/wire", "storage/objects/segment", "storage/arena.hpp",
                               "storage/offset_allocator.hpp", "transport/**"],
    "storage/objects/mount": [BASE, "storage/objects/terms", "storage/objects/disk/object_disk.hpp", "storage/objects/wire",
                              "storage/objects/segment", "storage/objects/client", "storage/arena.hpp",
                              "storage/memory_boundary.hpp", "transport/**"],
    "storage/engine": [BASE, "storage/arena.hpp", "storage/offset_allocator.hpp", "transport", "transport/net"],
    "storage/files": [BASE, "storage/engine", "storage/file_slice.hpp", "storage/mapped_file.hpp", "transport/net"],
    "storage/python": [BASE, "storage/objects/**", "storage/engine", "transport/net/secret_file.hpp"],
    "transport/copy": [BASE],
    "transport/net": [BASE],
    "transport/local": OF_A_TRANSPORT,
    "transport/shm": OF_A_TRANSPORT,
    "transport/tcp": OF_A_TRANSPORT,
    "transport/rdma": [*OF_A_TRANSPORT, "transport/tcp/tcp_link.hpp"],
    "transport": [BASE, "transport/**"],
    # Each option is declared with the enumeration that it fills.
    "config": [BASE, "runtime/sched/admission_policy.hpp", "runtime/sched/placement_policy.hpp",
               "runtime/sched/prefetch_policy.hpp", "runtime/sched/scheduler_defaults.hpp", "runtime/tools/tool_format.hpp",
               "runtime/reasoning/reasoning_form.hpp", "storage/eviction.hpp", "storage/objects/wire/store_version.hpp",
               "storage/write_policy.hpp"],
    "runtime/model": [BASE, "gpu", "gpu/host", "storage/eviction.hpp", "storage/prefix_tree.hpp",
                      "storage/write_policy.hpp"],
    "runtime/text": [BASE, "runtime/text/jinja", "runtime/model/gguf.hpp", "runtime/model/json_file.hpp"],
    "runtime/text/jinja": [BASE],
    "runtime/grammar": [BASE, "runtime/text/tokenizer.hpp", "runtime/model/token_constraint.hpp"],
    "runtime/tools": [BASE, "runtime/grammar/json_schema.hpp"],
    "runtime/reasoning": [BASE, "runtime/grammar/gbnf.hpp"],
    "runtime/sched": [BASE],
    "runtime/sched/journal": [BASE, "runtime/sched"],
    "runtime/request": [BASE, "runtime/sched", "runtime/sched/journal", "runtime/model/kv_residency.hpp", "runtime/model/sampling_params.hpp", "storage/kept_prefixes.hpp", "storage/tiered_store.hpp"],
    "runtime/engines": [BASE, "runtime/request", "runtime/sched/block_hash.hpp", "runtime/model/finish_after.hpp",
                        "runtime/model/sampling_params.hpp"],
    "runtime/trace": [BASE, "runtime/request"],
    "runtime/ranks": [BASE, "runtime/model", "gpu", "storage/arena.hpp", "transport", "transport/net/bytes.hpp"],
    "runtime/compute": [BASE, "runtime/log", "runtime/request", "runtime/model", "runtime/sched", "gpu", "gpu/cuda/dma_buf.hpp", "storage", "transport"],
    "runtime/sim": [BASE, "runtime/pages", "runtime/sched", "runtime/sched/journal", "runtime/model/forward_pass.hpp", "runtime/model/kv_residency.hpp",
                    "config", "runtime/launch", "storage/copy_survey.hpp", "storage/eviction.hpp", "storage/prefix_tree.hpp",
                    "storage/write_policy.hpp"],
    "runtime/sim/cli": [BASE, "runtime/sim", "runtime/sched", "runtime/sched/journal", "runtime/model", "runtime/loading", "gpu",
                        "gpu/host", "config", "storage/eviction.hpp", "storage/mapped_file.hpp"],
    "runtime/launch": [BASE, "config"],
    "runtime/loading": [BASE, "runtime/model", "runtime/text", "runtime/log", "runtime/sim", "gpu", "config",
                        "storage/file_slice.hpp", "storage/mapped_file.hpp"],
    "runtime/api": [BASE, "runtime/log", "runtime/text", "runtime/grammar", "runtime/tools", "runtime/reasoning", "runtime/model",
                    "runtime/sched/rate_limit.hpp",
                    "runtime/request/status.hpp", "runtime/request/status_fields.hpp", "config"],
    "actors/http": [BASE, "runtime/log"],
    "actors/engines": [BASE, "runtime/log", "runtime/engines", "runtime/model/calibration.hpp"],
    "actors/metrics": [BASE, "actors/http", "runtime/log", "runtime/request/status.hpp", "runtime/request/status_fields.hpp",
                       "runtime/trace", "transport/net"],
    "actors/cluster": [BASE, "runtime/log", "transport/net/secret_file.hpp", "transport/net/socket.hpp", "transport/net/tls_key.hpp", "transport/net/tls_psk.hpp",
                       "runtime/sched/rate_limit.hpp"],
    "actors/launch": [BASE, "runtime/launch", "runtime/sim/cli", "config", "runtime/loading/model_slice.hpp", "storage/file_slice.hpp", "storage/files", "storage/memory_room.hpp", "transport/net/secret.hpp", "transport/net/secret_file.hpp"],
    "actors/store": [BASE, "actors/cluster/shutdown.hpp", "actors/http", "actors/metrics", "runtime/api", "runtime/log", "runtime/pages",
                     "runtime/sim/cli", "config", "storage", "storage/objects/**", "transport/net"],
    "actors/process": ["actors/**", "runtime/**", "storage/**", "transport/**", "gpu/**", "config"],
    "actors": ["actors/**", "runtime/**", "storage/**", "transport/**", "gpu/**", "config"],
}
WITH_CAF = ("actors", "actors/cluster", "actors/process")
# Folders that include each other, and why that is so still. A folder that does not any more leaves the list.
CIRCLES = {
    ("transport", "transport/local", "transport/rdma", "transport/shm", "transport/tcp"):
        "the interface of a transport lies beside the data plane, which starts them all",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(caf/[^>]+)>)', re.MULTILINE)
SOURCES = (".hpp", ".cpp", ".inl", ".h", ".cu", ".cuh")


def folder_of(path):
    return path.rpartition("/")[0]


def fits(header, allowed):
    if allowed.endswith("/**"):
        return header.startswith(allowed[:-2])
    return header == allowed or folder_of(header) == allowed


def violations(path, text):
    folder = folder_of(path)
    if folder not in MAY_INCLUDE:
        yield f"{path} lies in no folder of the table: add it"
        return
    for ours, caf in INCLUDE.findall(text):
        if caf and folder not in WITH_CAF:
            yield f"{path} includes <{caf}>: only actors may"
        if "/" in ours and folder_of(ours) != folder and not any(fits(ours, a) for a in MAY_INCLUDE[folder]):
            yield f"{path} includes {ours}, which {folder} may not see"


def circles(edges):
    """The groups of folders that reach each other; `edges` are pairs (folder, a folder that it includes)."""
    reached = collections.defaultdict(set)
    for a, b in edges:
        reached[a].add(b)
    grown = True
    while grown:
        grown = False
        for folder in list(reached):
            more = set().union(*(reached.get(f, set()) for f in reached[folder])) - reached[folder]
            grown |= bool(more)
            reached[folder] |= more
    return {tuple(sorted(o for o in reached[f] if f in reached.get(o, ()))) for f in reached if f in reached[f]}


def main():
    assert list(violations("runtime/sched/a.cpp", '#include "gpu/device.hpp"\n')), "it would find nothing"
    assert list(violations("storage/a.hpp", "#include <caf/actor.hpp>\n")), "it would find nothing"
    assert list(violations("storage/a.hpp", '#include "storage/objects/b.hpp"\n')), "a folder would allow what lies below it"
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]) == {("a", "b", "c")}, "it would find no circle"
    root = pathlib.Path(__file__).resolve().parents[2]
    found = {folder: [] for folder in MAY_INCLUDE}
    edges = set()
    for top in ("runtime", "gpu", "storage", "transport", "config", "actors"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            path, text = file.relative_to(root).as_posix(), file.read_text(errors="replace")
            found.setdefault(folder_of(path), []).extend(violations(path, text))
            included = {folder_of(ours) for ours, _ in INCLUDE.findall(text) if "/" in ours}
            edges |= {(folder_of(path), folder) for folder in included - {folder_of(path)}}
    now = circles(edges)
    found["circles"] = [f"{', '.join(c)} include each other" for c in now - CIRCLES.keys()]
    found["circles"] += [f"{', '.join(c)}: no circle any more, take it from the list" for c in CIRCLES.keys() - now]
    bad = 0
    for lines in found.values():
        bad += bool(lines)
        for line in lines:
            print(line)
    print(f"{len(found) - bad} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
