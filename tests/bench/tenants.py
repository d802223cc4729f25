#!/usr/bin/env python3
"""What a tenant's flood costs the others, and what turns by shares cost all together.

    tests/bench/tenants.py build conversation_trace.jsonl [--csv FILE] [--order NAME]

Sessions of the trace are divided among four tenants. For 20 minutes each request of the first comes FLOOD times. Simulated with
admission `queue`: the share inside both SLOs of the first tenant and of the others, the goodput, and the goodput of the same
requests without tenants, which are served first come, first served.
"""
import argparse
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile

FLOODED_MS = range(1_200_000, 2_400_000)
HEAD = ("order", "flood", "prefill", "decode", "flood_inside_slos", "others_inside_slos", "goodput_per_s", "goodput_without_tenants")


def flooded(rows, times, drawn):
    """The requests of all tenants, those of the first `times` over while it floods."""
    owner, out = {}, []
    for r in rows:
        session = r["hash_ids"][min(1, len(r["hash_ids"]) - 1)]
        tenant = owner.setdefault(session, drawn.choice([1, 2, 3, 4]))
        copies = times if tenant == 1 and r["timestamp"] in FLOODED_MS else 1
        for k in range(copies):
            out.append({**r, "timestamp": r["timestamp"] + (drawn.randrange(20_000) if k else 0),
                        "hash_ids": [h + k * 10**8 for h in r["hash_ids"]], "tenant": tenant})
    return sorted(out, key=lambda r: r["timestamp"])


def play(binary, rows, prefill, decode, folder):
    trace = pathlib.Path(folder) / "trace.jsonl"
    trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return json.loads(subprocess.run([binary, "simulate", trace, "--prefill", str(prefill), "--decode", str(decode), "--slo-tbt", "100ms",
                                      "--json"], capture_output=True, text=True, check=True).stdout)


def main():
    take = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    take.add_argument("build", type=pathlib.Path)
    take.add_argument("trace", type=pathlib.Path)
    take.add_argument("--csv", type=pathlib.Path, help="a table to which the rows are added")
    take.add_argument("--order", default="turns", help="in the table: how this build orders tenants' requests")
    asked = take.parse_args()
    rows = [json.loads(line) for line in asked.trace.read_text().splitlines()]
    table = []
    for times, prefill, decode in ((1, 8, 8), (8, 8, 8), (24, 8, 8), (1, 4, 4), (8, 4, 4)):
        with tempfile.TemporaryDirectory() as folder:
            asked_for = flooded(rows, times, random.Random(5))
            turns = play(asked.build / "actors/mooncaf", asked_for, prefill, decode, folder)
            nobodys = [{k: v for k, v in r.items() if k != "tenant"} for r in asked_for]
            first_come = play(asked.build / "actors/mooncaf", nobodys, prefill, decode, folder)
        first, others = turns["tenants"]["1"], [turns["tenants"][t] for t in "234"]
        share = lambda parts: sum(p["slo_met"] for p in parts) / sum(p["arrived"] for p in parts)
        table.append((asked.order, times, prefill, decode, f"{share([first]):.4f}", f"{share(others):.4f}", f"{turns['goodput_per_s']:.3f}",
                      f"{first_come['goodput_per_s']:.3f}"))
        print(*table[-1], sep="\t", flush=True)
    if asked.csv:
        fresh = not asked.csv.exists()
        with asked.csv.open("a", newline="") as out:
            to = csv.writer(out, lineterminator="\n")
            if fresh:
                to.writerow(HEAD)
            to.writerows(table)


if __name__ == "__main__":
    sys.exit(main())
