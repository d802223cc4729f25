#!/usr/bin/env python3
"""What KV in fewer bits is worth: conversations that outgrow memory, with the same memory, and with twice of it.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=M.gguf tests/bench/kv_gain.py [--memory 120MiB]

A server for each format, asked in turns: the share of prompt tokens that was reused, the mean TTFT of the last two turns, and the
time of a token in a batch of eight. Prints a Markdown table.
"""
import argparse
import concurrent.futures
import contextlib
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, one_server, wait_until  # noqa: E402

VOCABULARY = range(1000, 40000)


def decode_ms(client, context, tokens):
    """Of a token in a batch of eight, whose prompts are there already."""
    prompts = [random.Random(1000 + i).choices(VOCABULARY, k=context) for i in range(8)]
    ask = lambda p, n: client.complete(prompt=p, max_tokens=n, temperature=0, ignore_eos=True)
    for p in prompts:
        ask(p, 1)
    took = {}
    for n in (1, tokens):
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda p: ask(p, n), prompts))
        took[n] = time.monotonic() - began
    return 1e3 * (took[tokens] - took[1]) / (tokens - 1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--memory", type=int, default=160, help="MiB for KV")
    p.add_argument("--conversations", type=int, default=8)
    p.add_argument("--turns", type=int, default=8)
    p.add_argument("--first", type=int, default=384, help="tokens of a first prompt")
    p.add_argument("--step", type=int, default=256, help="tokens that a turn adds")
    p.add_argument("--context", type=int, nargs="*", default=[1024, 4096], help="of the batch of eight")
    a = p.parse_args()
    servers = {"f16": ("f16", a.memory), "int8": ("int8", a.memory), "k8v4": ("k8v4", a.memory), "f16, twice the memory": ("f16", 2 * a.memory)}
    lengths = [a.first + a.step * t for t in range(a.turns)]
    talks = [random.Random(i).choices(VOCABULARY, k=lengths[-1]) for i in range(a.conversations)]
    asked = a.conversations * sum(lengths)
    print(f"{a.conversations} conversations of {a.turns} turns, up to {lengths[-1]} tokens; {a.memory} MiB of memory\n")
    rows = {name: [] for name in servers}
    with contextlib.ExitStack() as stack:
        clients = {name: one_server(stack.enter_context(Cluster()), "--kv-dtype", dtype, "--cache-dram", f"{mib}MiB", "--block-tokens", "64",
                                    "--admission", "none") for name, (dtype, mib) in servers.items()}
        for c in clients.values():
            c.complete(prompt=[7] * 200, max_tokens=1)
        took = {name: [] for name in servers}
        before = {name: c.cluster()["counters"]["prompt_tokens"] for name, c in clients.items()}
        for turn, length in enumerate(lengths):
            for talk in talks:
                for name, c in clients.items():
                    began = time.monotonic()
                    c.complete(prompt=talk[:length], max_tokens=1, temperature=0)
                    if turn >= a.turns - 2:
                        took[name].append(time.monotonic() - began)
        for name, c in clients.items():
            wait_until("all passes are counted", lambda: c.cluster()["counters"]["prompt_tokens"] >= before[name] + asked)
            rows[name] = [100 * c.cluster()["counters"]["cached_tokens"] / asked, 1e3 * statistics.mean(took[name])]
    for context in a.context:  # one server at a time: the steps are to have the machine for themselves
        for name, (dtype, _) in servers.items():
            if name in ("f16", "int8", "k8v4"):
                with Cluster() as cluster:
                    client = one_server(cluster, "--kv-dtype", dtype, "--cache-dram", "1GiB", "--admission", "none", "--max-batch", "8")
                    rows[name].append(min(decode_ms(client, context, 48) for _ in range(3)))
    heads = "".join(f" ms a token, 8 x {c} |" for c in a.context)
    print(f"| KV | reused, % | TTFT, last turns, ms |{heads}\n|" + "---|" * (3 + len(a.context)))
    for name, row in rows.items():
        print(f"| {name} | {row[0]:.1f} | {row[1]:.0f} |" + "".join(f" {x:.2f} |" for x in row[2:]))


if __name__ == "__main__":
    main()
