#!/usr/bin/env python3
"""Copies of hot blocks ahead of need: prompts that share a system prompt, over modelled nodes, with and without.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/hot_prefix.py [--prefill 8] [--rounds 3]

Every node is a process of its own. Questions to one system prompt come at a rate that one node can serve, and then, all at
once, at several times that rate: TTFT is of those. "Busiest" is the share of all reused blocks that one node's memory gave
until the end; an even share is 1 / prefill nodes. Rounds with and without take turns.
"""
import argparse
import asyncio
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster  # noqa: E402
from modelled import TRACE_BLOCK, play, start  # noqa: E402

ANSWER = 8


def questions(a, first):
    """The rows of a trace."""
    system, rows, due = [first + i for i in range(a.system)], [], 0.0
    for q in range(a.calm + a.surge):
        rows.append({"timestamp": round(1000 * due), "input_length": (a.system + 1) * TRACE_BLOCK, "output_length": ANSWER,
                     "hash_ids": [*system, first + a.system + q]})
        # The first is computed before the others come: else each of them would be, wherever it goes.
        due += a.first if q == 0 else 1 / (a.calm_rate if q < a.calm else a.surge_rate)
    return rows


def measure(a, policy, share, first):
    with Cluster() as cluster:
        client, port = start(cluster, a.prefill, a.decode, True, a.profile, a.scale, "--policy", policy, "--admission", "none",
                             "--hot-copy-share", share)
        answers = asyncio.run(play(port, questions(a, first), a.scale))
        seen = client.cluster()
        cluster.wait_idle()
    assert all(x["status"] == 200 for x in answers), [x["status"] for x in answers]
    ttft = sorted(x["ttft"] for x in answers[a.calm:])
    given = [s["hits_dram"] for s in seen["shards"]]
    counters = seen["counters"]
    return {"mean": statistics.mean(ttft), "p90": ttft[int(0.9 * (len(ttft) - 1))],
            "computed": 1 - counters["cached_tokens"] / counters["prompt_tokens"],
            "busiest": max(given) / max(1, sum(given)), "fetches": counters["fetches"], "copies": counters["hot_copies"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--prefill", type=int, default=8)
    p.add_argument("--decode", type=int, default=2)
    p.add_argument("--profile", default="a800x8-llama70b")
    p.add_argument("--scale", type=float, default=4)
    p.add_argument("--system", type=int, default=32, help="blocks of 512 tokens of a system prompt")
    p.add_argument("--first", type=float, default=6, help="seconds that the first question has for itself")
    p.add_argument("--calm", type=int, default=80, help="questions at first")
    p.add_argument("--calm-rate", type=float, default=3, help="of them, per second of the profile's time")
    p.add_argument("--surge", type=int, default=80)
    p.add_argument("--surge-rate", type=float, default=30)
    p.add_argument("--rounds", type=int, default=2)
    a = p.parse_args()
    print("| policy | copies of hot blocks | mean TTFT, s | p90 | computed | busiest | fetches | blocks copied |\n" + "|---" * 8
          + "|")
    for policy in ("cache_aware", "kvcache_centric"):
        found = {"0": [], "0.1": []}
        for i in range(a.rounds):
            for share in found:
                found[share].append(measure(a, policy, share, 1 + 10_000_000 * i))
        for share, rounds in found.items():
            m = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
            print(f"| `{policy}` | {share} | {m['mean']:.2f} | {m['p90']:.2f} | {100 * m['computed']:.1f} % | "
                  f"{100 * m['busiest']:.0f} % | {m['fetches']:.0f} | {m['copies']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
