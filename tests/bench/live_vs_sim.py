#!/usr/bin/env python3
"""The live CPU cluster against the simulator: the same short trace, mean TTFT and TBT of both.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE tests/bench/live_vs_sim.py --trace TRACE.jsonl

A conductor with gateway, one prefill and one decode process, each computing with one thread of its own, so that what
`mooncaf calibrate --threads 1 --beside` measures is what each gets. Lengths of the trace are divided, times stretched; equal
hash ids become equal blocks of token ids. Needs two idle cores for as long as the replay takes.

A shared machine is at times faster and at times slower. So it is calibrated before and after every replay, the replay is
compared with the mean of the two simulations, and with --rounds all of it is done again.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, MODEL, Cluster, free_port, wait_until  # noqa: E402

TRACE_BLOCK = 512
TICK_MS = 3000
CHUNK = 512
CONTEXT = 8000
POOL_TOKENS = 22_000  # of KV in 512 MiB of memory, on either side
VOCABULARY = range(1000, 40000)  # ordinary words of the model


def scaled(trace, divide, stretch, count):
    rows, block = [], TRACE_BLOCK // divide
    for line in open(trace):
        r = json.loads(line)
        length, output = r["input_length"] // divide, max(2, r["output_length"] // divide)
        if not block <= length <= CONTEXT - output:
            continue
        rows.append({"timestamp": int(r["timestamp"] * stretch), "input_length": length, "output_length": output,
                     "hash_ids": r["hash_ids"][:-(-length // block)]})
        if len(rows) == count:
            break
    # The trace's clock ticks every three seconds; what came within a tick is spread over it.
    for tick in sorted({r["timestamp"] for r in rows}):
        same = [r for r in rows if r["timestamp"] == tick]
        for i, r in enumerate(same):
            r["timestamp"] += int(TICK_MS * stretch * i / len(same))
    return rows


def tokens_of(row, block):
    ids = []
    for h in row["hash_ids"]:
        ids += random.Random(h).choices(VOCABULARY, k=block)
    return ids[:row["input_length"]]


def ask(port, row, ids, out):
    """One streamed request; appends (TTFT, gaps) as a client sees them. Events are only read when all of them are there:
    whatever the client computes meanwhile slows the cluster, which has no other machine."""
    body = json.dumps({"prompt": ids, "max_tokens": row["output_length"], "temperature": 0,
                       "ignore_eos": True, "stream": True}).encode()
    received = []
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        begin = time.monotonic()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                  b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while data := s.recv(1 << 16):
            received.append((time.monotonic(), data))
    assert received[0][1].startswith(b"HTTP/1.1 200"), received[0][1]
    # A token's event ends with an empty line; what arrived together has one time.
    times, text, seen = [], b"", 0
    for at, data in received:
        text += data
        while (end := text.find(b"\n\n", seen)) >= 0:
            if b'"choices":[{' in text[seen:end]:
                times.append(at)
            seen = end + 2
    out.append((times[0] - begin, [b - a for a, b in zip(times, times[1:])]))


def replay(port, rows, block):
    prompts = [tokens_of(r, block) for r in rows]
    out, threads, begin = [], [], time.monotonic()
    for row, ids in zip(rows, prompts):
        time.sleep(max(0, begin + (row["timestamp"] - rows[0]["timestamp"]) / 1000 - time.monotonic()))
        threads.append(threading.Thread(target=ask, args=(port, row, ids, out)))
        threads[-1].start()
    for t in threads:
        t.join()
    assert len(out) == len(rows), "a request failed"
    return out


def live(rows, block):
    with Cluster() as cluster:
        http_port, control = free_port(), free_port()
        common = ["--threads", "1", "--block-tokens", str(block), "--metrics-listen", "127.0.0.1:0"]
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{http_port}", "--listen",
                      f"127.0.0.1:{control}", "--admission", "none", *common)
        common += ["--cache-dram", "512MiB", "--join", f"127.0.0.1:{control}"]
        cluster.start("prefill", "--role", "prefill,cache", "--prefill-instances", "1", "--chunk-tokens", str(CHUNK),
                      "--max-batch-tokens", str(CHUNK), *common)
        cluster.start("decode", "--role", "decode", *common)
        client = cluster.wait_healthy("127.0.0.1", http_port)
        wait_until("both instances are there", lambda: len(client.cluster()["instances"]) >= 2, 60)
        # A server that has been up for a while has touched all of its memory.
        for i in range(0, POOL_TOKENS + 2000, 2000):
            ask(http_port, {"output_length": 2}, random.Random(f"warm {i}").choices(VOCABULARY, k=2000), [])
        before = client.cluster()["counters"]
        answers = replay(http_port, rows, block)
        after = client.cluster()["counters"]
        return answers, {k: after[k] - before[k] for k in ("cached_tokens", "prompt_tokens")}


def calibrate(profile, block):
    subprocess.run([BINARY, "calibrate", "--model", MODEL, "--output", str(profile), "--threads", "1", "--block-tokens",
                    str(block), "--chunk-tokens", str(CHUNK), "--dram-tokens", str(POOL_TOKENS), "--beside"], check=True)


def simulated(trace, profile):
    """Mean TTFT and TBT in ms and the share of cached tokens in per cent."""
    made = json.loads(subprocess.run(
        [BINARY, "simulate", "--trace", str(trace), "--profile", str(profile), "--prefill", "1", "--decode", "1", "--json",
         "--admission", "none"],
        check=True, capture_output=True, text=True).stdout)
    gap, handover = made["gap_s"], made["handover_s"]
    # As a client sees it: the wait between the first token and joining a batch is part of the second gap.
    tbt = gap["mean"] + handover["mean"] * handover["count"] / gap["count"]
    return 1e3 * made["ttft_s"]["mean"], 1e3 * tbt, 100 * (1 - made["computed_tokens"] / made["prompt_tokens"])


def row(name, was, found):
    cells = [f"{live:.1f} | {sim:.1f} | {100 * (sim / live - 1):+.1f} %" for live, sim in zip(was, found)]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trace", required=True)
    p.add_argument("--divide", type=int, default=8, help="lengths are divided by this")
    p.add_argument("--stretch", type=float, default=12, help="times are multiplied by this")
    p.add_argument("--requests", type=int, default=40)
    p.add_argument("--rounds", type=int, default=1, help="replays, each between two calibrations")
    p.add_argument("--keep", help="write the scaled trace and the profiles into this folder")
    a = p.parse_args()
    rows, block = scaled(a.trace, a.divide, a.stretch, a.requests), TRACE_BLOCK // a.divide
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(a.keep or folder)
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / "trace.jsonl"
        trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
        print(f"{len(rows)} requests, {sum(r['input_length'] for r in rows)} prompt tokens\n\n"
              "| round | TTFT live, ms | simulated | error | TBT live, ms | simulated | error |\n|---|---|---|---|---|---|---|")
        lives, sims = [], []
        for i in range(a.rounds + 1):
            profile = folder / f"profile{i}.toml"
            calibrate(profile, block)
            sims.append(simulated(trace, profile))
            if i > 0:
                between = [(x + y) / 2 for x, y in zip(sims[i - 1], sims[i])]
                row(i, lives[-1], between)
            if i < a.rounds:
                answers, counters = live(rows, block)
                gaps = [g for _, found in answers for g in found]
                lives.append((1e3 * statistics.mean(t for t, _ in answers), 1e3 * statistics.mean(gaps)))
        middle = [[(x + y) / 2 for x, y in zip(*two)] for two in zip(sims, sims[1:])]
        row("all", [statistics.mean(v) for v in zip(*lives)], [statistics.mean(v) for v in zip(*middle)])
        found = 100 * counters["cached_tokens"] / max(1, counters["prompt_tokens"])
        spread = [100 * (max(v) / min(v) - 1) for v in zip(*sims)]
        print(f"\n{len(gaps)} gaps a round; cached: live {found:.1f} %, simulated {sims[-1][2]:.1f} %; the calibrations differ by "
              f"{spread[0]:.0f} % in TTFT and {spread[1]:.0f} % in TBT")


if __name__ == "__main__":
    main()
