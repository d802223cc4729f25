#!/usr/bin/env python3
"""A day of examples/plan/day.toml, shortened, on machines that come and go with the load, change their roles, or are always the same:
live, with modelled devices in processes that `--scale-command` starts and stops, beside `mooncaf simulate`.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/day_live.py --minutes 20 --rate 2 --scale 5

Prints a Markdown table: the share of requests inside both SLOs and the hours that machines ran, live and simulated. A machine's hours
begin when it is asked for and end when its process has ended. Times are the profile's.
"""
import argparse
import asyncio
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, Cluster, free_port, wait_until  # noqa: E402
from modelled import LONGEST_ANSWER, play, simulated, spread, tbt  # noqa: E402

DAY = pathlib.Path(__file__).resolve().parents[2] / "examples/plan/day.toml"
PROFILE = "a800x8-llama70b"
START_UP, EVERY, DOWN_AFTER, TARGET = 20, 5, 60, 0.6  # seconds of the profile's time, and a load
ROLES = {"prefill": "prefill,cache", "decode": "decode", "coupled": "prefill,decode,cache"}


def day(folder, minutes, times):
    """The day's requests in so many minutes, at so many times its rates: less of a short day's curve is left by the turns of
    its conversations."""
    text = DAY.read_text()
    rate = float(re.search(r"requests_per_s = (\S+)", text)[1]) * times
    text = re.sub(r"requests_per_s = \S+", f"requests_per_s = {rate}", text)
    text = re.sub(r"\nrequests = \d+", f"\nrequests = {round(rate * minutes * 60)}", text).replace("day_s = 86400", f"day_s = {minutes * 60}")
    described = pathlib.Path(folder, "day.toml")
    described.write_text(text)
    made = subprocess.run([BINARY, "trace", "generate", "--workload", str(described)], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in made.splitlines()]
    for r in rows:
        r["output_length"] = min(max(r["output_length"], 1), LONGEST_ANSWER)
    return spread(rows)


class Machines(threading.Thread):
    """The operator: has as many processes of each part as it is asked for, each a while after it was asked for."""

    def __init__(self, cluster, scale, common, asked, at_first):
        super().__init__()
        self.cluster, self.scale, self.common, self.asked = cluster, scale, common, asked
        self.over, self.named, self.hours_ran, self.changes = threading.Event(), 0, 0.0, 0
        self.there = {part: [] for part in at_first}   # (asked at, name), in order
        self.starting, self.leaving = [], []           # (serves at, part, asked at); (asked at, name)
        for part, count in at_first.items():
            for _ in range(count):
                self.begin(part, time.monotonic())

    def begin(self, part, asked_at):
        name = f"{part}{self.named}"
        self.named += 1
        self.cluster.start(name, "--role", ROLES[part], *self.common)
        self.there[part].append((asked_at, name))

    def run(self):
        while not self.over.wait(0.05):
            now = time.monotonic()
            for one in [s for s in self.starting if s[0] <= now]:
                self.starting.remove(one)
                self.begin(one[1], one[2])
            for asked_at, name in [x for x in self.leaving if not self.cluster.processes[x[1]].alive()]:
                self.leaving.remove((asked_at, name))
                self.hours_ran += now - asked_at
            if self.asked.exists():
                self.follow(dict(part.split("=") for part in self.asked.read_text().split()), now)

    def follow(self, wanted, now):
        for part, count in wanted.items():
            there = len(self.there[part]) + sum(s[1] == part for s in self.starting)
            self.changes += abs(int(count) - there)
            for _ in range(int(count) - there):
                self.starting.append((now + START_UP / self.scale, part, now))
            for _ in range(there - int(count)):
                if late := [s for s in self.starting if s[1] == part]:
                    self.starting.remove(late[-1])
                    self.hours_ran += now - late[-1][2]
                    continue
                self.leaving.append(self.there[part].pop())
                self.cluster.processes[self.leaving[-1][1]].process.terminate()

    def hours(self):
        """To be called once it is over."""
        now, left = time.monotonic(), [*self.leaving, *(x for part in self.there.values() for x in part)]
        return (self.hours_ran + sum(now - at for at, _ in left) + sum(now - s[2] for s in self.starting)) * self.scale / 3600


def lived(rows, scale, slo, at_first, options):
    with Cluster() as cluster:
        http, control = free_port(), free_port()
        asked = pathlib.Path(cluster.folder.name, "asked")
        program = pathlib.Path(cluster.folder.name, "operator")
        program.write_text(f'#!/bin/sh\necho "$@" > {asked}.new && mv {asked}.new {asked}\n')
        program.chmod(0o700)
        common = ["--device", f"model:{PROFILE}", "--time-scale", str(scale), "--metrics-listen", "127.0.0.1:0",
                  "--data-listen", "127.0.0.1:0", "--model="]
        if any(o.startswith("--scale-") for o in options):
            options = [*options, "--scale-every", f"{EVERY}s", "--down-after", f"{DOWN_AFTER}s", "--target-load", str(TARGET),
                       "--scale-command", str(program)]
        cluster.start("front", "--role", "conductor,gateway", *common, "--http", f"127.0.0.1:{http}", "--listen", f"127.0.0.1:{control}",
                      "--ttft-slo", f"{slo[0]}s", "--tbt-slo", f"{round(slo[1] * 1000)}ms", *options)
        join = [*common, "--prefill-instances", "1", "--decode-instances", "1", "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
        machines = Machines(cluster, scale, join, asked, at_first)
        client = cluster.wait_healthy("127.0.0.1", http)
        wait_until("all are there", lambda: len({i["node"] for i in client.cluster()["instances"]}) == sum(at_first.values()), 60)
        machines.start()
        try:
            answers = asyncio.run(play(http, rows, scale))
        finally:
            machines.over.set()
            machines.join()
        hours, changed = machines.hours(), client.cluster()["counters"]["role_changes"]
    good = [x["status"] == 200 and x["ttft"] <= slo[0] and tbt(x["gaps"]) <= slo[1] for x in answers]
    lost = sum(x["status"] not in (200, 429, 503) for x in answers)
    return sum(good) / len(good), hours, machines.changes, changed, lost


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=int, default=30, help="that the day lasts")
    p.add_argument("--scale", type=float, default=5)
    p.add_argument("--rate", type=float, default=1.5, help="times that of the day")
    p.add_argument("--simulated", action="store_true", help="no live run")
    p.add_argument("--only", nargs="*", help="names of the clusters")
    a = p.parse_args()
    slo = (30, 0.1)
    apart = ("--scale-prefill", "1-4", "--scale-decode", "1-2")
    rules = ("--start-up", f"{START_UP}s", "--scale-every", f"{EVERY}s", "--down-after", f"{DOWN_AFTER}s", "--target-load", str(TARGET))
    clusters = {  # at first, live; options, live; at first, simulated; options, simulated
        "4P + 2D": ({"prefill": 4, "decode": 2}, (), (4, 2), ()),
        "3P + 1D": ({"prefill": 3, "decode": 1}, (), (3, 1), ()),
        "nodes": ({"prefill": 2, "decode": 1}, apart, (2, 1), (*apart, *rules)),
        "roles": ({"coupled": 5}, ("--elastic-roles",), (3, 2), ("--switch-roles", "--switch-time", "0s")),
        "nodes and roles": ({"coupled": 3}, ("--elastic-roles", "--scale-nodes", "2-6"), (2, 1),
                            (*apart, *rules, "--switch-roles", "--switch-time", "0s")),
    }
    with tempfile.TemporaryDirectory() as folder:
        rows = day(folder, a.minutes, a.rate)
        trace = pathlib.Path(folder, "trace.jsonl")
        trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
        print(f"{len(rows)} requests in {a.minutes} min, TTFT {slo[0]} s, TBT {slo[1] * 1000:g} ms, time x {a.scale:g}\n")
        print("| cluster | inside both, % | simulated | machine-hours | simulated | nodes changed | roles changed | failed |\n|" + "---|" * 8)
        for name, (at_first, options, (prefill, decode), played) in clusters.items():
            if a.only and name not in a.only:
                continue
            made = simulated(trace, prefill, decode, PROFILE, *played, slo=slo)
            share, hours = 100 * made["requests"]["slo_met"] / len(rows), made["machines"]["hours"]
            if a.simulated:
                print(f"| {name} | | {share:.1f} | | {hours:.2f} | | | |", flush=True)
                continue
            good, ran, nodes, roles, lost = lived(rows, a.scale, slo, at_first, options)
            print(f"| {name} | {100 * good:.1f} | {share:.1f} | {ran:.2f} | {hours:.2f} | {nodes} | {roles} | {lost} |", flush=True)


if __name__ == "__main__":
    main()
