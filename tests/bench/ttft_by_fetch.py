#!/usr/bin/env python3
"""TTFT with a prefix that has to be loaded, beside max(load, compute) and load + compute.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/ttft_by_fetch.py [shm] [tcp] [ssd]

A prefill node whose memory holds a prompt and a half, and a decode node that holds them all (its SSD does, with `ssd`).
The prefix was pushed out of the prefill node's memory; `compute` is the same request when the prefix is in its memory,
`load` the bytes over the rate that the node learned. Random weights whose KV is large beside what computing it costs.
"""
import os
import random
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, free_port, wait_until  # noqa: E402
from first_token import ttft  # noqa: E402

MODEL = "dummy:layers=16,dim=512,heads=8,kv_heads=8,ffn=512,vocab=512,ctx=8192"
BYTES_PER_TOKEN = 16 * 2 * 512 * 2
PROMPT, ROUNDS = 4096, 4
SHARES = (50, 90, 98)


def start(cluster, path):
    port, control = free_port(), free_port()
    common = ["--model", MODEL, "--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"]
    join = ["--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
    where = {"shm": [], "tcp": ["--no-shm"], "ssd": []}[path]
    # With `ssd` the decode node is no source: only the own disk is.
    far = ["--kvcache-balancing-threshold", "1000000"] if path == "ssd" else []
    disk = ["--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", "write_through"]
    cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                  f"127.0.0.1:{control}", *far, *common)
    cluster.start("prefill", "--role", "prefill", "--prefill-instances", "1", "--cache-dram", "200MiB", "--prefetch",
                  "wait_complete", "--chunk-tokens", "2048", *join, *common, *where, *(disk if path == "ssd" else []))
    cluster.start("decode", "--role", "decode", "--cache-dram", "3GiB", *join, *common, *where)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_until("three members", lambda: len(client.cluster()["nodes"]) == 3, 60)
    return client


def rate_of(client, path):
    seen = client.cluster()
    if path == "ssd":
        return max(s["ssd_read_bytes_per_s"] for s in seen["shards"])
    return max(p["learned_bytes_per_s"] for p in seen["paths"] if p["path"] == path)


def on_disk(client):
    return max(s["ssd_blocks"] for s in client.cluster()["shards"])


def measure(path):
    rng = random.Random(1)

    def fresh(n):
        return [rng.randrange(1, 256) for _ in range(n)]

    found = {share: [] for share in SHARES}
    with Cluster() as cluster:
        client = start(cluster, path)
        ttft(client, fresh(PROMPT))
        for _ in range(ROUNDS):
            for share in SHARES:
                base, kept = fresh(PROMPT), PROMPT * share // 100 // 64 * 64
                # Two others push the prefix out of the prefill node's memory. With `ssd` each is written first: what is
                # displaced before that is lost, and the disk should have nothing else to do when it reads.
                for prompt in (base, fresh(PROMPT), fresh(PROMPT)):
                    before = on_disk(client)
                    ttft(client, prompt)
                    if path == "ssd":
                        wait_until("the prompt is on disk", lambda: on_disk(client) >= before + PROMPT // 64, 30)
                loaded, cached = ttft(client, base[:kept] + fresh(PROMPT - kept))
                computed, again = ttft(client, base[:kept] + fresh(PROMPT - kept))
                if cached == again == kept:
                    found[share].append((loaded, computed, kept * BYTES_PER_TOKEN / rate_of(client, path) * 1e3))
    for share in SHARES:
        if not found[share]:
            print(f"{path:>4} {share:>4}%  not loaded in any of {ROUNDS} rounds")
            continue
        loaded, computed, load = (statistics.median(r[i] for r in found[share]) for i in range(3))
        print(f"{path:>4} {share:>4}% {len(found[share]):>3} {loaded:>9.1f} {computed:>9.1f} {load:>8.1f} "
              f"{max(load, computed):>9.1f} {load + computed:>9.1f}")


def main():
    print(f"{'path':>4} {'kept':>5} {'n':>3} {'TTFT ms':>9} {'compute':>9} {'load':>8} {'max':>9} {'sum':>9}")
    for path in sys.argv[1:] or ("shm", "tcp", "ssd"):
        measure(path)


if __name__ == "__main__":
    main()
