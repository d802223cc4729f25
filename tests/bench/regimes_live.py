#!/usr/bin/env python3
"""A day that changes its mind, live: chats, then long documents, then agents, replayed through HTTP on modelled nodes, under each
fixed admission rule and `adaptive`; beside `mooncaf simulate`.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/regimes_live.py --minutes 4 --scale 4

Prints a Markdown table: the share inside both SLOs by phase and over all, live and simulated, the rules in force over time, and
the processor time of the conductor's process.
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, Cluster  # noqa: E402
from modelled import LONGEST_ANSWER, play, simulated, spread, start, tbt  # noqa: E402

# Kind and requests a second of each phase: more than two and two nodes carry of each.
PHASES = (("chat", 6), ("long_doc", 1.3), ("agent", 12))
RULES = ("queue", "early", "predictive", "priced", "adaptive")


def phases(minutes):
    """Each phase's requests, one after the other; no block of one is another's."""
    rows, begins = [], []
    for number, (kind, rate) in enumerate(PHASES):
        count = round(rate * 60 * minutes)
        made = subprocess.run([BINARY, "trace", "generate", "--kind", kind, "--requests", str(count), "--rate", str(rate), "--seed",
                               str(30 + number), "--input-max", "32768"], check=True, capture_output=True, text=True).stdout
        begins.append(len(rows))
        base = number * 60_000 * minutes
        for row in map(json.loads, made.splitlines()):
            if row["timestamp"] >= 60_000 * minutes:
                break
            row["timestamp"] += base
            row["hash_ids"] = [h + (number << 28) for h in row["hash_ids"]]
            row["output_length"] = min(max(row["output_length"], 1), LONGEST_ANSWER)
            rows.append(row)
    return spread(rows), begins


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """The rule in force, as /cluster tells it, with the time at which it was first seen."""

    def __init__(self, client, scale):
        super().__init__()
        self.client, self.scale, self.over, self.rules = client, scale, threading.Event(), []

    def run(self):
        began = time.monotonic()
        while not self.over.wait(0.3):
            rule = self.client.cluster()["admission"].get("rule", "")
            if not self.rules or self.rules[-1][1] != rule:
                self.rules.append(((time.monotonic() - began) * self.scale, rule))


def lived(rows, rule, scale, slo, prefill, decode):
    with Cluster() as cluster:
        client, http = start(cluster, prefill, decode, True, "a800x8-llama70b", scale, "--admission", rule, "--ttft-slo", f"{slo[0]}s",
                             "--tbt-slo", f"{round(slo[1] * 1000)}ms")
        front = cluster.processes["front"].process.pid
        watch = Watch(client, scale)
        watch.start()
        before, began = processor_seconds(front), time.monotonic()
        try:
            answers = asyncio.run(play(http, rows, scale))
        finally:
            watch.over.set()
            watch.join()
        used = (processor_seconds(front) - before) / (time.monotonic() - began)
    return answers, watch.rules, used


def inside(answers, slo):
    return [a["status"] == 200 and a["ttft"] <= slo[0] and tbt(a["gaps"]) <= slo[1] for a in answers]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=int, default=4, help="of each phase")
    p.add_argument("--scale", type=float, default=4)
    p.add_argument("--prefill", type=int, default=2)
    p.add_argument("--decode", type=int, default=2)
    p.add_argument("--simulated", action="store_true", help="no live run")
    p.add_argument("--rules", nargs="*", default=RULES)
    a = p.parse_args()
    slo = (10, 0.07)
    rows, begins = phases(a.minutes)
    ends = [*begins[1:], len(rows)]
    print(f"{len(rows)} requests over {rows[-1]['timestamp'] / 1000:.0f} s, {a.prefill} + {a.decode} instances, time x {a.scale:g}\n")
    print("| rule | " + " | ".join(kind for kind, _ in PHASES) + " | all | simulated | processor | rules in force |\n|" + "---|" * 8)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.jsonl"
        trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
        for rule in a.rules:
            made = simulated(trace, a.prefill, a.decode, "a800x8-llama70b", "--admission", rule, slo=slo)
            share = made["requests"]["slo_met"] / len(rows)
            if a.simulated:
                print(f"| {rule} | | | | | {100 * share:.1f} | | |", flush=True)
                continue
            answers, rules, used = lived(rows, rule, a.scale, slo, a.prefill, a.decode)
            good = inside(answers, slo)
            cells = [f"{100 * sum(good[b:e]) / (e - b):.1f}" for b, e in zip(begins, ends)]
            said = ", ".join(f"{at:.0f} s {r}" for at, r in rules)
            print(f"| {rule} | " + " | ".join(cells) + f" | {100 * sum(good) / len(good):.1f} | {100 * share:.1f} | {100 * used:.1f} % | {said} |",
                  flush=True)


if __name__ == "__main__":
    main()
