#!/usr/bin/env python3
"""What changing roles is worth: a load that turns from long prompts to long answers and back, on nodes with a fixed division
and on nodes that change (`--elastic-roles`), live with modelled devices beside `mooncaf simulate --switch-roles`.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/elastic_live.py --scale 8

Prints a Markdown table: the share of requests inside both SLOs, each phase for itself. Times are the profile's.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, Cluster, free_port, wait_until  # noqa: E402
from modelled import play, tbt  # noqa: E402

BLOCK = 512
PROFILE = """name = "small"
[model]
layers = 2
kv_bytes_per_token = 8
block_tokens = 512
[prefill]
constant_ms = 10
token_us = 900
pair_ns = 20
cached_token_us = 5
chunk_tokens = 2048
[decode]
constant_ms = 40
sequence_us = 1000
context_token_ns = 100
max_batch = 8
device_kv_tokens = 200000
[node]
nic_gbit_per_s = 100
network_latency_us = 50
ssd_gb_per_s = 1
dram_tokens = 400000
ssd_tokens = 0
"""


def trace(lasts, phases, seed, prompts_per_s, answers_per_s):
    """Of `lasts` seconds each: long prompts with short answers, the reverse, long prompts again, and so on."""
    draw, rows, at, block = random.Random(seed), [], 0.0, 0
    for phase in range(phases):
        long_prompts = phase % 2 == 0
        while at < (phase + 1) * lasts:
            at += draw.expovariate(prompts_per_s if long_prompts else answers_per_s)
            length = int(draw.uniform(1500, 3500) if long_prompts else draw.uniform(200, 600))
            blocks = -(-length // BLOCK)
            rows.append({"timestamp": int(at * 1000), "input_length": length, "phase": phase,
                         "output_length": int(draw.uniform(10, 30) if long_prompts else draw.uniform(200, 400)),
                         "hash_ids": list(range(block, block + blocks))})
            block += blocks
    return rows


def live(rows, profile, scale, slo, prefill, decode, *more):
    """Answers in order, and how often a node took up another role."""
    with Cluster() as cluster:
        http, control = free_port(), free_port()
        common = ["--device", f"model:{profile}", "--time-scale", str(scale), "--metrics-listen", "127.0.0.1:0",
                  "--data-listen", "127.0.0.1:0", "--model=", "--prefill-instances", "1", "--decode-instances", "1"]
        cluster.start("front", "--role", "conductor,gateway", *common, "--http", f"127.0.0.1:{http}", "--listen",
                      f"127.0.0.1:{control}", "--ttft-slo", f"{slo[0]}s", "--tbt-slo", f"{round(slo[1] * 1000)}ms", *more)
        roles = ["prefill,decode,cache"] * (prefill + decode) if more else ["prefill,cache"] * prefill + ["decode"] * decode
        for i, role in enumerate(roles):
            cluster.start(f"worker{i}", "--role", role, *common, "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0")
        client = cluster.wait_healthy("127.0.0.1", http)
        wait_until("all are there", lambda: len({i["node"] for i in client.cluster()["instances"]}) == prefill + decode, 60)
        wait_until("the gateway can use every node", lambda: all(
            " peer up " in p.output() for n, p in cluster.processes.items() if n != "front"), 60)
        before = client.cluster()["counters"]["role_changes"]
        answers = asyncio.run(play(http, rows, scale))
        return answers, client.cluster()["counters"]["role_changes"] - before


def inside(answers, rows, slo, columns):
    """Shares of requests inside both SLOs: of each phase, or of the phases of a kind where there are more, and of all."""
    good = [a["status"] == 200 and a["ttft"] <= slo[0] and tbt(a["gaps"]) <= slo[1] for a in answers]
    of = [[g for g, r in zip(good, rows) if r["phase"] % columns == c] for c in range(columns)]
    return [sum(x) / len(x) for x in (*of, good)]


def simulated(path, profile, slo, prefill, decode, *more):
    made = json.loads(subprocess.run(
        [BINARY, "simulate", str(path), "--profile", str(profile), "--prefill", str(prefill), "--decode", str(decode), "--slo-ttft",
         f"{slo[0]}s", "--slo-tbt", f"{round(slo[1] * 1000)}ms", "--json", *more], check=True, capture_output=True, text=True).stdout)
    return made["requests"]["slo_met"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scale", type=float, default=8)
    p.add_argument("--minutes", type=float, default=6, help="of a phase, in the profile's time")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--prompts", type=float, default=2.0, help="requests a second with long prompts")
    p.add_argument("--answers", type=float, default=2.4, help="… with long answers")
    p.add_argument("--flap", type=float, default=0, help="the load turns every so many seconds of the profile's time instead, "
                   "in the same time all together")
    p.add_argument("--simulate-only", action="store_true")
    a = p.parse_args()
    slo, nodes, lasts = (10, 0.1), 8, a.flap or a.minutes * 60
    phases, columns = (round(3 * a.minutes * 60 / lasts), 2) if a.flap else (3, 3)
    rows = trace(lasts, phases, a.seed, a.prompts, a.answers)
    with tempfile.TemporaryDirectory() as folder:
        profile, path = pathlib.Path(folder) / "small.toml", pathlib.Path(folder) / "trace.jsonl"
        profile.write_text(PROFILE)
        path.write_text("".join(json.dumps({k: r[k] for k in r if k != "phase"}) + "\n" for r in rows))
        print(f"{len(rows)} requests in {3 * a.minutes:g} min, {nodes} nodes, TTFT {slo[0]} s, TBT {slo[1] * 1000:g} ms, time x {a.scale:g}\n")
        kinds = " | ".join(("long prompts", "long answers", "long prompts")[:columns])
        print(f"| nodes | {kinds} | all | simulated | changes |\n|" + "---|" * (columns + 4))
        runs = [(f"{n} + {nodes - n}, fixed", n, (), ()) for n in (2, 4, 6)]
        runs.append(("change", nodes // 2, ("--elastic-roles",), ("--switch-roles", "--switch-time", "0s")))
        for name, prefill, options, switch in runs:
            expected = simulated(path, profile, slo, prefill, nodes - prefill, *switch) / len(rows)
            if a.simulate_only:
                print(f"| {name} |{' |' * columns} | {100 * expected:.1f} % | |", flush=True)
                continue
            answers, changes = live(rows, profile, a.scale, slo, prefill, nodes - prefill, *options)
            shares = " | ".join(f"{100 * x:.1f} %" for x in inside(answers, rows, slo, columns))
            print(f"| {name} | {shares} | {100 * expected:.1f} % | {changes} |", flush=True)


if __name__ == "__main__":
    main()
