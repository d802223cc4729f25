#!/usr/bin/env python3
"""What a decode node's link costs a request that comes from another node: from the first token, which prefill chose, to the second.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/first_step_on_device.py

Prefill on the host device in one process, decode on a linked device in another; KV lands in the decode node's memory layer by layer
while the prompt is computed, and is loaded to the device from there. Beside it the same on a link a thousand times as fast, by turns,
and the time that the prompt's bytes take on the link alone. Random weights whose KV is large beside what computing it costs.
"""
import argparse
import contextlib
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, free_port, wait_until  # noqa: E402
from ttft_by_tier import BYTES_PER_TOKEN, MODEL  # noqa: E402

STEPS = 8


def start(cluster, a, link):
    port, control = free_port(), free_port()
    common = ["--model", MODEL, "--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--context-length", "4160"]
    cluster.start("front", "--role", "conductor,gateway,prefill", "--prefill-instances", "1", "--http", f"127.0.0.1:{port}", "--listen",
                  f"127.0.0.1:{control}", "--admission", "none", "--cache-dram", "1GiB", *common)
    cluster.start("decode", "--role", "decode", "--cache-dram", "1GiB", "--device", "linked", "--link-bandwidth", link, "--device-kv",
                  "512MiB", "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", *common)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_until("two members", lambda: len(client.cluster()["nodes"]) == 2, 60)
    return client


def ask(client, ids):
    """Milliseconds from the first token to the second, and from each later one to the next."""
    at = [time.perf_counter() for event in client.stream("/v1/completions", {"prompt": ids, "max_tokens": STEPS, "ignore_eos": True,
                                                                               "temperature": 0}) if event and event["choices"]]
    gaps = [(b - a) * 1e3 for a, b in zip(at, at[1:])]
    return gaps[0], statistics.median(gaps[1:STEPS - 1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--link", type=int, default=1024, help="MiB a second between the device's memory and the host's")
    p.add_argument("--prompts", type=int, nargs="+", default=[512, 2048, 4096], help="tokens")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    rng = random.Random(1)
    links = (f"{a.link}MiB", "1024GiB")
    with contextlib.ExitStack() as stack:
        clients = {link: start(stack.enter_context(Cluster()), a, link) for link in links}
        print("| prompt | load ms | first step ms | a later one | on a fast link | a later one | waits / load |\n" + "| --- " * 7 + "|")
        for tokens in a.prompts:
            rows = {link: [] for link in links}
            for _ in range(a.rounds):
                for link, client in clients.items():
                    rows[link].append(ask(client, [rng.randrange(1, 256) for _ in range(tokens)]))
            (first, later), (free, free_later) = ([statistics.median(x) for x in zip(*rows[link])] for link in links)
            load = tokens * BYTES_PER_TOKEN / (a.link << 20) * 1e3
            print(f"| {tokens} | {load:.0f} | {first:.0f} | {later:.1f} | {free:.0f} | {free_later:.1f} | "
                  f"{(first - free) / load:.2f} |", flush=True)


if __name__ == "__main__":
    main()
