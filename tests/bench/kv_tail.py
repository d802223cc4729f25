#!/usr/bin/env python3
"""What moving the KV adds between the first and the second token, as the prompt grows: sent layer by layer while
computing, beside everything sent after the prompt.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE tests/bench/kv_tail.py [tcp|shm]

Two worker processes; times are the client's.
"""
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster  # noqa: E402
from serving import three_processes  # noqa: E402

LENGTHS, ROUNDS = (512, 1024, 2048, 4096, 8000), 5


def gaps(client, ids):
    """Milliseconds from first to second token, and between later ones."""
    at = []
    for event in client.stream("/v1/completions",
                               {"prompt": ids, "max_tokens": 6, "ignore_eos": True, "temperature": 0}):
        if event and event["choices"] and event["choices"][0].get("finish_reason") is None:
            at.append(time.perf_counter() * 1e3)
    between = [b - a for a, b in zip(at, at[1:])]
    return between[0], statistics.median(between[1:])


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tcp"
    rng = random.Random(1)
    rows = {}
    for mode in ("layerwise", "after_prefill"):
        with Cluster() as cluster:
            host, port = three_processes(cluster, *(("--no-shm",) if path == "tcp" else ()), "--kv-transfer", mode)
            client = cluster.wait_healthy(host, port)
            for length in LENGTHS:
                seen = [gaps(client, [rng.randrange(1000, 40000) for _ in range(length)]) for _ in range(ROUNDS + 1)][1:]
                rows[mode, length] = [statistics.median(x) for x in zip(*seen)]
    print(f"over {path}; first to second token less a later gap, ms")
    print(f"{'prompt':>7} {'KV MB':>7} {'layerwise':>10} {'after':>8}")
    for length in LENGTHS:
        tails = [rows[mode, length][0] - rows[mode, length][1] for mode in ("layerwise", "after_prefill")]
        print(f"{length:>7} {length * 23040 / 1e6:>7.1f} {tails[0]:>10.1f} {tails[1]:>8.1f}")


if __name__ == "__main__":
    main()
