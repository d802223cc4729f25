#!/usr/bin/env python3
"""TTFT of a 4,096-token prompt by the share of it that is cached, beside the same server's cold TTFT.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE tests/bench/ttft_by_hit.py

One process, streamed, at the client. Cold and warm requests alternate, so that a noisy machine hits both alike.
"""
import os
import random
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, wait_until  # noqa: E402
from first_token import ttft  # noqa: E402
from serving import one_process  # noqa: E402

PROMPT, ROUNDS = 4096, 5
SHARES = (0, 50, 90, 99)


def measure(client, ids):
    """Milliseconds to the first token at the client, of it computing the prompt's rest, tokens that were cached."""
    first, cached = ttft(client, ids)
    # The conductor hears of the first token from the gateway, beside the answer.
    wait_until("the conductor knows", lambda: client.cluster()["recent"][0]["prefill_ms"] > 0)
    return first, client.cluster()["recent"][0]["prefill_ms"], cached


def main():
    rng = random.Random(1)

    def fresh(n):
        return [rng.randrange(1000, 40000) for _ in range(n)]

    times = {share: [] for share in SHARES}
    with Cluster() as cluster:
        client = one_process(cluster, "--cache-dram", "2GiB")
        measure(client, fresh(PROMPT))  # estimators and pages warm up
        for _ in range(ROUNDS):
            base = fresh(PROMPT)
            for share in SHARES:  # 0 first: it leaves the blocks that the others hit
                kept = PROMPT * share // 100
                ms, computing, cached = measure(client, base[:kept] + fresh(PROMPT - kept) if share else base)
                assert cached == kept // 64 * 64, (share, cached)
                times[share].append((ms, computing))
    cold = statistics.median(ms for ms, _ in times[0])
    print(f"{'hit':>5} {'tokens computed':>16} {'pairs computed':>15} {'TTFT ms':>9} {'of cold':>8} {'beside computing, ms':>21}")
    for share in SHARES:
        ms = statistics.median(ms for ms, _ in times[share])
        beside = statistics.median(ms - computing for ms, computing in times[share])
        # Blocks are reused whole; a token attends to all before it, so that late ones cost more.
        kept = PROMPT * share // 100 // 64 * 64
        print(f"{share:>4}% {1 - kept / PROMPT:>16.3f} {1 - (kept / PROMPT) ** 2:>15.3f} {ms:>9.1f} {ms / cold:>8.3f} {beside:>21.1f}")


if __name__ == "__main__":
    main()
