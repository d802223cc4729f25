#!/usr/bin/env python3
"""Conversations that outgrow one tier of KV after the other: TTFT per turn with L1 alone, with L2, with L3, live and simulated.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=M.gguf tests/bench/turns_by_tier.py [--figure FILE.svg]

L1 is the memory of a linked device, L2 the server's, L3 an SSD. Each has a server of its own with such a device; "L1 only"
gives it no more memory than the device has, since L2 holds all that L1 holds. The conversations take turns, one request at a time,
and ask for one token. Beside it `mooncaf simulate` with a profile that is measured before and after, and the server's own sizes.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), os.path.join(HERE, "figures")]
from cluster import BINARY, MODEL, Cluster, one_server, wait_until  # noqa: E402
from make import COLOURS, Panel, page  # noqa: E402

BLOCK = 64
SPARE = 8  # blocks of memory for what is not kept: the unfinished end of a prompt, and its answer
VOCABULARY = range(1000, 40000)
TIERS = ("L1 only", "+ L2", "+ L3")


def lengths(a):
    return [a.first + a.step * t for t in range(a.turns)]


def memory_tokens(a, tier):
    return (a.l1 if tier == "L1 only" else a.l2) + SPARE * BLOCK


def start(a, cluster, tier, folder):
    kib = lambda n: f"{n * a.kv_bytes // 1024}KiB"
    extra = ["--ssd-path", os.path.join(folder, "ssd"), "--ssd-size", "4GiB"] if tier == "+ L3" else []
    client = one_server(cluster, "--model", MODEL, "--device", "linked", "--link-bandwidth", a.link, "--device-kv", kib(a.l1),
                        "--cache-dram", kib(memory_tokens(a, tier)), "--block-tokens", str(BLOCK), "--context-length", "4096",
                        "--admission", "none", "--device-write-policy", a.device_write_policy, *extra)
    client.complete(prompt=random.Random("warm").choices(VOCABULARY, k=a.first), max_tokens=1)
    return client


def live(a, folder):
    """Mean TTFT per turn in seconds, and what the servers counted, by tier. The servers are asked in turns, so that what else the
    machine does meets all of them."""
    talks = [random.Random(i).choices(VOCABULARY, k=lengths(a)[-1]) for i in range(a.conversations)]
    means = {tier: [] for tier in TIERS}
    with contextlib.ExitStack() as stack:
        clients = {tier: start(a, stack.enter_context(Cluster()), tier, folder) for tier in TIERS}
        for length in lengths(a):
            took = {tier: [] for tier in TIERS}
            for talk in talks:
                for tier, client in clients.items():
                    began = time.monotonic()
                    client.complete(prompt=talk[:length], max_tokens=1, temperature=0)
                    took[tier].append(time.monotonic() - began)
            for tier in TIERS:
                means[tier].append(statistics.mean(took[tier]))
            print(f"  {length} tokens: " + ", ".join(f"{tier} {means[tier][-1]:.3f} s" for tier in TIERS), flush=True)
        asked = a.conversations * sum(lengths(a))
        counted = {}
        for tier, client in clients.items():
            wait_until("the node reported its passes", lambda: client.cluster()["counters"]["prompt_tokens"] >= asked)
            seen = client.cluster()
            counted[tier] = {"cached": seen["counters"]["cached_tokens"] / asked, "device": seen["devices"][0],
                             "ssd": seen["shards"][0]["ssd_read_bytes_per_s"]}
        return means, counted


def calibrated(folder, name):
    path = os.path.join(folder, name)
    subprocess.run([BINARY, "calibrate", "--model", MODEL, "--chunk-tokens", "512", "--output", path], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def simulated(a, tier, profile, folder, ssd_bytes_per_s):
    """Mean TTFT per turn: of the turns up to one, less those up to the one before. And the share of all prompts that was reused."""
    rows = []
    for turn, length in enumerate(lengths(a)):
        for talk in range(a.conversations):
            blocks = -(-length // BLOCK)
            rows.append({"timestamp": 100_000 * len(rows), "input_length": length, "output_length": 1,
                         "hash_ids": [talk * 1000 + b for b in range(blocks)]})
    link = int(a.link.removesuffix("MiB")) * 2**20 * 1e-9
    text = pathlib.Path(profile).read_text()
    if ssd_bytes_per_s:
        text = re.sub(r"ssd_gb_per_s = \S+", f"ssd_gb_per_s = {ssd_bytes_per_s * 1e-9}", text)
    here = os.path.join(folder, "profile.toml")
    pathlib.Path(here).write_text(text)
    sums = [0.0]
    for turn in range(a.turns):
        trace = os.path.join(folder, "trace.jsonl")
        pathlib.Path(trace).write_text("".join(json.dumps(r) + "\n" for r in rows[:(turn + 1) * a.conversations]))
        out = subprocess.run([BINARY, "simulate", trace, "--profile", here, "--prefill", "1", "--decode", "1", "--json",
                              "--trace-block-tokens", str(BLOCK), "--device-link-gb", f"{link:.6f}", "--device-kv-tokens", str(a.l1),
                              "--dram-tokens", str(memory_tokens(a, tier)),
                              "--ssd-tokens", "200000" if tier == "+ L3" else "0", "--max-tokens", "1",
                              "--prefetch", "wait_complete", "--admission", "none"],
                             check=True, capture_output=True, text=True).stdout
        run = json.loads(out)
        sums.append(run["ttft_s"]["mean"] * run["ttft_s"]["count"])
    return [(b - a_) / a.conversations for a_, b in zip(sums, sums[1:])], 1 - run["computed_tokens"] / run["prompt_tokens"]


def draw(path, a, measured, predicted):
    most = max(max(v) for v in [*measured.values(), *predicted.values()])
    top = next(t for t in (0.5, 1, 2, 4, 8, 16, 32, 64) if t >= most)
    panels = []
    for title, rows in (("measured: mean TTFT of a turn, s", measured), ("simulated", predicted)):
        p = Panel(title, (1, a.turns), (0, top), "turn")
        for colour, tier in zip(COLOURS, TIERS):
            p.line(range(1, a.turns + 1), rows[tier], colour)
        panels.append(p)
    page(path, panels, TIERS, 2)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--link", default="2048MiB", help="bytes a second between the device's memory and the host's, in MiB")
    p.add_argument("--l1", type=int, default=8192, help="tokens of KV that the device holds")
    p.add_argument("--l2", type=int, default=15_360, help="tokens of KV in memory")
    p.add_argument("--conversations", type=int, default=6)
    p.add_argument("--turns", type=int, default=8)
    p.add_argument("--first", type=int, default=512, help="tokens of a first prompt")
    p.add_argument("--step", type=int, default=384, help="tokens that a turn adds")
    p.add_argument("--device-write-policy", default="write_through", help="of the servers; the simulator's prefill and decode have a "
                   "device each, where everything is written through")
    p.add_argument("--kv-bytes", type=int, default=23_040, help="of a token: SmolLM2-135M's")
    p.add_argument("--figure", help="name of an SVG beside figures/make.py")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = calibrated(folder, "before.toml")
        measured, counted = live(a, folder)
        after = calibrated(folder, "after.toml")
        predicted, reused = {}, {}
        for tier in TIERS:
            both = [simulated(a, tier, profile, folder, counted["+ L3"]["ssd"]) for profile in (before, after)]
            predicted[tier] = [statistics.mean(pair) for pair in zip(*(means for means, _ in both))]
            reused[tier] = both[0][1]
    print("\n| turn | prompt tokens | all KV, tokens | " + " | ".join(f"{t}, s (simulated)" for t in TIERS) + " |")
    print("| --- " * (3 + len(TIERS)) + "|")
    for turn, length in enumerate(lengths(a)):
        cells = [f"{measured[t][turn]:.2f} ({predicted[t][turn]:.2f})" for t in TIERS]
        print(f"| {turn + 1} | {length} | {length * a.conversations} | " + " | ".join(cells) + " |")
    for t in TIERS:
        d = counted[t]["device"]
        print(f"{t}: {100 * counted[t]['cached']:.0f} % of prompt tokens cached (simulated: {100 * reused[t]:.0f} %); link: "
              f"{d['loaded_bytes'] * 1e-9:.2f} GB loaded, {d['stored_bytes'] * 1e-9:.2f} GB written back")
    print(f"SSD read at {counted['+ L3']['ssd'] * 1e-9:.2f} GB/s")
    if a.figure:
        draw(a.figure, a, measured, predicted)


if __name__ == "__main__":
    main()
