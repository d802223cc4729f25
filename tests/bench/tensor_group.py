#!/usr/bin/env python3
"""What a tensor group costs where it cannot gain: two ranks of a thread each beside one device with two threads.

  tests/bench/tensor_group.py [ROUNDS]

Each round asks every server for a prompt of 1,024 tokens and then 128 tokens one after another, so that a machine that
slows down slows all. The models are made up: 16 layers of dim 1024, and a mixture. Medians, and their ratio to one device.
"""
import contextlib
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from cluster import Cluster, free_port, one_server  # noqa: E402
from ranks import OWN, start_ranks  # noqa: E402

MODEL = ("--model", "dummy:layers=16,dim=1024,heads=16,kv_heads=4,ffn=2816,vocab=32000,ctx=4096")
MIXTURE = ("--model", "dummy:gpt-oss-20b,layers=8,dim=1024,heads=16,kv_heads=4,ffn=1024,vocab=32000", "--context-length", "4096")
PROMPT, TOKENS = 1024, 128


def in_one_process(cluster, *options):
    return one_server(cluster, "--threads", "2", "--prefill-instances", "1", *options)


def in_two_processes(cluster, *options):
    port = free_port()
    cluster.start("leader", *options, "--threads", "1", "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", *OWN,
                  "--prefill-instances", "1", *start_ranks(cluster, 1, *options, "--threads", "1", tensor=2))
    return cluster.wait_healthy("127.0.0.1", port)


def seconds(client, prompt, tokens):
    began = time.monotonic()
    client.complete(prompt=prompt, max_tokens=tokens, temperature=0, ignore_eos=True)
    return time.monotonic() - began


def compare(ways, rounds):
    draw = random.Random(1)
    took = {way: [] for way in ways}
    with contextlib.ExitStack() as clusters:
        clients = {way: start(clusters.enter_context(Cluster()), *options) for way, (start, options) in ways.items()}
        for _ in range(rounds + 1):
            prompt = [draw.randrange(32000) for _ in range(PROMPT)]
            for way, client in clients.items():
                first = seconds(client, prompt, 1)
                took[way].append((PROMPT / first, (TOKENS - 1) / (seconds(client, prompt[:64], TOKENS) - first * 64 / PROMPT)))
    base = None
    for way, of in took.items():
        prompt, decode = (statistics.median(x) for x in zip(*of[1:]))
        base = base or (prompt, decode)
        print(f"{way:40} prompt {prompt:7.0f} tokens/s ({prompt / base[0]:.2f})   decode {decode:6.1f} tokens/s ({decode / base[1]:.2f})",
              flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    compare({"one device, 2 threads": (in_one_process, MODEL),
             "2 ranks, one process": (in_one_process, (*MODEL, "--tensor", "2")),
             "2 ranks, two processes": (in_two_processes, MODEL)}, rounds)
    divided = (*MIXTURE, "--expert", "2")
    compare({"mixture: one device, 2 threads": (in_one_process, MIXTURE),
             "2 ranks, one process, rows of experts": (in_one_process, (*MIXTURE, "--tensor", "2")),
             "2 ranks, one process, whole experts": (in_one_process, (*divided, "--tensor", "2")),
             "2 ranks, two processes, rows of experts": (in_two_processes, MIXTURE),
             "2 ranks, two processes, whole experts": (in_two_processes, divided),
             "2 ranks over TCP, rows of experts": (in_two_processes, (*MIXTURE, "--no-shm")),
             "2 ranks over TCP, whole experts": (in_two_processes, (*divided, "--no-shm"))}, rounds)


if __name__ == "__main__":
    main()
