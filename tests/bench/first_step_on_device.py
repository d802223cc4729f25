#!/usr/bin/env python3
"""What a decode node's link costs a request that comes from another node: from the first token, which prefill chose, to the second.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/first_step_on_device.py

Prefill on the host device in one process, decode on a linked device in another; KV lands in the decode node's memory layer by layer
while the prompt is computed, and is loaded to the device from there. Beside it the same on a link a thousand times as fast, by turns,
and the time that the prompt's bytes take on the link alone. Random weights whose KV is large beside what computing it costs.

Another answer streams from the same decode node meanwhile: of it the longest time between two tokens while the prompt is computed, lands
and makes its first steps, and the median of these times. `--before BINARY` has the same of an earlier build, by turns with this one.
"""
import argparse
import contextlib
import os
import random
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import cluster as processes  # noqa: E402
from cluster import BINARY as OWN_BINARY, Cluster, free_port, wait_until  # noqa: E402
from ttft_by_tier import BYTES_PER_TOKEN, MODEL  # noqa: E402

STEPS = 8


def start(cluster, a, link, binary=None):
    port, control = free_port(), free_port()
    processes.BINARY = binary or OWN_BINARY
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


class Beside:
    """An answer that streams while something else is asked for; its gaps in ms are there afterwards."""

    def __init__(self, client):
        self.client, self.at, self.over = client, [], False
        self.thread = threading.Thread(target=self.read)

    def read(self):
        for event in self.client.stream("/v1/completions", {"prompt": [7] * 32, "max_tokens": 3000, "ignore_eos": True, "temperature": 0}):
            if event and event["choices"]:
                self.at.append(time.perf_counter())
            if self.over:
                return

    def __enter__(self):
        self.thread.start()
        wait_until("the other answer runs", lambda: len(self.at) > 8, 30)
        self.began = len(self.at)
        return self

    def __exit__(self, *_):
        ended, self.over = len(self.at), True
        self.thread.join()
        self.gaps = [(b - a) * 1e3 for a, b in zip(self.at[self.began - 1:ended], self.at[self.began:ended])]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--link", type=int, default=1024, help="MiB a second between the device's memory and the host's")
    p.add_argument("--prompts", type=int, nargs="+", default=[512, 2048, 4096], help="tokens")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--before", metavar="BINARY", help="of an earlier build")
    a = p.parse_args()
    rng = random.Random(1)
    links = (f"{a.link}MiB", "1024GiB")
    kinds = [(build, link) for build in ([("before", a.before)] if a.before else []) + [("this build", None)] for link in links]
    with contextlib.ExitStack() as stack:
        clients = {(name, link): start(stack.enter_context(Cluster()), a, link, binary) for (name, binary), link in kinds}
        print("| build | prompt | load ms | first step ms | a later one | on a fast link | a later one | waits / load | beside it, longest | "
              "median | on a fast link, longest |\n" + "| --- " * 11 + "|")
        for tokens in a.prompts:
            rows = {kind: [] for kind in clients}
            for _ in range(a.rounds):
                for kind, client in clients.items():
                    with Beside(client) as beside:
                        first, later = ask(client, [rng.randrange(1, 256) for _ in range(tokens)])
                    rows[kind].append((first, later, max(beside.gaps), statistics.median(beside.gaps)))
            load = tokens * BYTES_PER_TOKEN / (a.link << 20) * 1e3
            for name in dict.fromkeys(name for name, _ in clients):
                slow, fast = ([statistics.median(x) for x in zip(*rows[name, link])] for link in links)
                print(f"| {name} | {tokens} | {load:.0f} | {slow[0]:.0f} | {slow[1]:.1f} | {fast[0]:.0f} | {fast[1]:.1f} | "
                      f"{(slow[0] - fast[0]) / load:.2f} | {slow[2]:.0f} | {slow[3]:.1f} | {fast[2]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
