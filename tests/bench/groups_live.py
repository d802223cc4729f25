#!/usr/bin/env python3
"""What pipeline and tensor groups are worth, and what they cost.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/groups_live.py modelled --scale 10
    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE.gguf tests/bench/groups_live.py real

modelled: 16 prefill machines as groups of several sizes, short prompts and some of up to 128k tokens: TTFT live beside `mooncaf
simulate --pipeline`. real: a prompt and an answer by one device with two threads, by stages and by ranks with one thread each; --model names
another model than MOONCAF_MODEL. Both print a Markdown table.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, Cluster, free_port, one_server, wait_until  # noqa: E402
from modelled import TRACE_BLOCK, play  # noqa: E402

PROFILE, MACHINES, DECODES = "a800x8-llama70b", 16, 4
LONG = 32768  # tokens from which on a prompt counts as long


def trace(seconds, rate, share_long, seed):
    draw, rows, at, block = random.Random(seed), [], 0.0, 0
    while at < seconds:
        at += draw.expovariate(rate)
        length = int(draw.uniform(65536, 131072) if draw.random() < share_long else draw.uniform(500, 4000))
        blocks = -(-length // TRACE_BLOCK)
        rows.append({"timestamp": int(at * 1000), "input_length": length, "output_length": draw.randint(5, 20),
                     "hash_ids": list(range(block, block + blocks))})
        block += blocks
    return rows


def live(rows, size, scale, slo):
    with Cluster() as cluster:
        http, control = free_port(), free_port()
        common = ["--device", f"model:{PROFILE}", "--time-scale", str(scale), "--metrics-listen", "127.0.0.1:0", "--data-listen",
                  "127.0.0.1:0", "--model="]
        cluster.start("front", "--role", "conductor,gateway", *common, "--http", f"127.0.0.1:{http}", "--listen",
                      f"127.0.0.1:{control}", "--ttft-slo", f"{slo}s")
        groups = MACHINES // size
        for i in range(groups + DECODES):
            role = ["--role", "prefill,cache", "--prefill-instances", "1", "--pipeline", str(size)] if i < groups else [
                "--role", "decode", "--decode-instances", "1"]
            cluster.start(f"worker{i}", *role, *common, "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0")
        client = cluster.wait_healthy("127.0.0.1", http)
        wait_until("all are there", lambda: len(client.cluster()["instances"]) == groups + DECODES, 60)
        wait_until("the gateway can use every node", lambda: all(
            " peer up " in p.output() for n, p in cluster.processes.items() if n != "front"), 60)
        return asyncio.run(play(http, rows, scale))


def simulated(path, size, slo):
    made = json.loads(subprocess.run(
        [BINARY, "simulate", str(path), "--profile", PROFILE, "--prefill", str(MACHINES // size), "--pipeline", str(size), "--decode",
         str(DECODES), "--slo-ttft", f"{slo}s", "--json"], check=True, capture_output=True, text=True).stdout)
    return made


def modelled(a):
    slo = 600
    rows = trace(a.seconds, a.rate, a.long, a.seed)
    short = [r for r in rows if r["input_length"] < LONG]
    print(f"{len(rows)} requests in {a.seconds:g} s, {len(rows) - len(short)} of them long; {MACHINES} + {DECODES} machines of {PROFILE}\n")
    print("| groups | TTFT of long | p90 | of short | p90 | of all | simulated | ratio |\n|" + "---|" * 8)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        for size in a.sizes:
            expected = simulated(path, size, slo)["ttft_s"]["mean"]
            name = f"{MACHINES // size} of {size}"
            if a.simulate_only:
                print(f"| {name} | | | | | | {expected:.2f} s | |", flush=True)
                continue
            answers = live(rows, size, a.scale, slo)
            assert all(x["status"] == 200 for x in answers), [x["status"] for x in answers if x["status"] != 200][:5]
            columns = []
            for long in (True, False):
                of = sorted(x["ttft"] for x, r in zip(answers, rows) if (r["input_length"] >= LONG) == long)
                columns += [f"{statistics.mean(of):.2f} s", f"{of[int(0.9 * (len(of) - 1))]:.2f} s"]
            mean = statistics.mean(x["ttft"] for x in answers)
            print(f"| {name} | {' | '.join(columns)} | {mean:.2f} s | {expected:.2f} s | {mean / expected:.2f} |", flush=True)


def members(cluster, threads, model, kind, size):
    """What the server of a group is told, whose other ranks are there if they are processes of their own."""
    if "processes" not in kind:
        return "--threads", str(threads), f"--{kind}", str(size)
    ports, each = [free_port() for _ in range(size - 1)], ("--threads", str(max(1, threads // size)))
    for i, port in enumerate(ports):
        cluster.start(f"rank{i + 2}", "--role", "rank", "--tensor", str(size), "--tensor-rank", str(i + 2), "--listen", f"127.0.0.1:{port}",
                      "--data-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *each, *model)
    return "--ranks", ",".join(f"127.0.0.1:{p}" for p in ports), "--tensor", str(size), *each


def real(a):
    """By turns, the best of three each: TTFT of a prompt that nobody has, and the time of a token behind it."""
    print("| group | TTFT of 4,000 tokens | token behind it | KV and weights resident |\n|---|---|---|---|")
    best, model = {}, ("--model", a.model) if a.model else ()
    for turn in range(3):
        for group in [("pipeline", n) for n in a.sizes] + [("tensor", n) for n in a.tensor] + [("tensor in processes:", n) for n in a.apart]:
            with Cluster() as cluster:
                client = one_server(cluster, "--prefill-instances", "1", *members(cluster, a.threads, model, *group),
                                    "--context-length", "8192", "--chunk-tokens", "256", "--max-batch-tokens", "256", *model)
                ids = [turn, *(300 + i * 37 % 600 for i in range(3999))]
                began, times = time.monotonic(), []
                for event in client.stream("/v1/completions", {"prompt": ids, "max_tokens": 64, "temperature": 0, "ignore_eos": True}):
                    times.append(time.monotonic())
                ttft, each = times[0] - began, (times[63] - times[0]) / 63
                had = best.get(group, (9e9, 9e9, 0))
                best[group] = (min(had[0], ttft), min(had[1], each), cluster.processes["all"].rss_bytes())
    for (kind, size), (ttft, each, resident) in best.items():
        print(f"| {kind} {size}, {max(1, a.threads // size)} threads each | {ttft:.2f} s | {1000 * each:.1f} ms | {resident / 1e6:.0f} MB |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("modelled", "real"))
    p.add_argument("--scale", type=float, default=5)
    p.add_argument("--seconds", type=float, default=300, help="of the trace, in the profile's time")
    p.add_argument("--rate", type=float, default=2, help="requests a second")
    p.add_argument("--long", type=float, default=0.1, help="share of long prompts")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4])
    p.add_argument("--tensor", type=int, nargs="*", default=[], help="sizes of tensor groups")
    p.add_argument("--apart", type=int, nargs="*", default=[], help="sizes of tensor groups whose ranks are processes")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--model", help="such as dummy:layers=16,dim=1024,heads=16,kv_heads=4,ffn=2816,vocab=32000,type=q4_0,ctx=8192")
    p.add_argument("--simulate-only", action="store_true")
    a = p.parse_args()
    (modelled if a.what == "modelled" else real)(a)


if __name__ == "__main__":
    main()
