#!/usr/bin/env python3
"""TTFT by the share of the prompt that lies in a tier: on the device (L1), in memory (L2), on SSD (L3), beside max(load, compute)
and load + compute.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/ttft_by_tier.py [--figure FILE.svg]

A linked device that holds a prompt and a half, over memory that holds all, or with L3 as much as the device. `compute` is the
same request when its prefix is on the device; `load` the bytes of the prefix over the link, or over the rate that the node learned of
its SSD, if that is slower. Random weights whose KV is large beside what computing it costs.
"""
import argparse
import os
import random
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), os.path.join(HERE, "figures")]
from cluster import Cluster, one_server, wait_until  # noqa: E402
from first_token import ttft  # noqa: E402
from make import COLOURS, Panel, page  # noqa: E402

MODEL = "dummy:layers=16,dim=512,heads=8,kv_heads=8,ffn=512,vocab=512,ctx=8192"
BYTES_PER_TOKEN = 16 * 2 * 512 * 2
BLOCK = 64
TIERS = ("L1", "L2", "L3")


def start(a, cluster, tier):
    mib = f"{a.prompt * 3 // 2 * BYTES_PER_TOKEN >> 20}MiB"
    disk = ["--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", "write_through"] if tier == "L3" else []
    return one_server(cluster, "--model", MODEL, "--device", "linked", "--link-bandwidth", f"{a.link}MiB", "--device-kv", mib,
                      "--context-length", str(a.prompt + BLOCK), "--cache-dram", mib if tier == "L3" else "3GiB", "--prefetch",
                      "wait_complete", "--chunk-tokens", "2048", "--admission", "none", *disk)


def measure(a, tier):
    """By share: medians of TTFT, computing and loading in ms, and how many rounds found all of the prefix where it should be."""
    rng = random.Random(1)
    fresh = lambda n: [rng.randrange(1, 256) for _ in range(n)]
    rows = {}
    with Cluster() as cluster:
        client = start(a, cluster, tier)
        shard = lambda: client.cluster()["shards"][0]
        ttft(client, fresh(a.prompt))
        for share in a.shares:
            kept, found = a.prompt * share // 100 // BLOCK * BLOCK, []
            for _ in range(a.rounds):
                base = fresh(a.prompt)
                # Two others push the prefix out of the device, and of memory that is no larger.
                for prompt in (base,) if tier == "L1" else (base, fresh(a.prompt), fresh(a.prompt)):
                    before = shard()["ssd_blocks"]
                    ttft(client, prompt)
                    if tier == "L3":
                        wait_until("the prompt is on disk", lambda: shard()["ssd_blocks"] >= before + a.prompt // BLOCK, 60)
                took, cached = ttft(client, base[:kept] + fresh(a.prompt - kept))
                computed, again = ttft(client, base[:kept] + fresh(a.prompt - kept))
                rate = a.link << 20 if tier == "L2" else min(a.link << 20, shard()["ssd_read_bytes_per_s"] or 1)
                load = 0 if tier == "L1" else kept * BYTES_PER_TOKEN / rate * 1e3
                if cached == again == kept:
                    found.append((took, took if tier == "L1" else computed, load))
            if found:
                rows[share] = [statistics.median(f[i] for f in found) for i in range(3)] + [len(found)]
    return rows


def draw(path, shares, found):
    panels = []
    top = max(r[1] + r[2] for rows in found.values() for r in rows.values()) / 1e3 * 1.05
    for tier in found:
        at = [s for s in shares if s in found[tier]]
        p = Panel(f"{tier}: TTFT, s", (0, 100), (0, top), "% of the prompt in the tier")
        for colour, value in zip(COLOURS, (lambda r: r[0], lambda r: max(r[1], r[2]), lambda r: r[1] + r[2])):
            p.line(at, [value(found[tier][s]) / 1e3 for s in at], colour)
        panels.append(p)
    page(path, panels, ("TTFT", "max(load, compute)", "load + compute"), 3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--link", type=int, default=1024, help="MiB a second between the device's memory and the host's")
    p.add_argument("--prompt", type=int, default=4096, help="tokens")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--shares", type=int, nargs="+", default=[0, 25, 50, 75, 90, 99], help="per cent")
    p.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    p.add_argument("--figure", help="name of an SVG beside figures/make.py")
    a = p.parse_args()
    found = {}
    print("| tier | share | rounds | TTFT ms | compute | load | / max | / sum |\n| --- " + "| --- " * 7 + "|")
    for tier in a.tiers:
        found[tier] = measure(a, tier)
        for share, (took, computed, load, rounds) in found[tier].items():
            print(f"| {tier} | {share} % | {rounds} | {took:.0f} | {computed:.0f} | {load:.0f} | {took / max(load, computed):.2f} | "
                  f"{took / (load + computed):.2f} |", flush=True)
    if a.figure:
        draw(a.figure, a.shares, found)


if __name__ == "__main__":
    main()
