#!/usr/bin/env python3
"""Faults by the dozen, over real processes: random clusters, loads and schedules of faults, each from a seed.

    tests/chaos/run.py                      # 30 seeds, three at a time (CI runs 1-12)
    tests/chaos/run.py --seeds 1000-1999 --jobs 4 --json out.json
    tests/chaos/run.py --seed 1017 --shrink # one again, then without whatever it fails without, too

After each run: every request was answered with exactly its tokens, or with an honest error after a right beginning,
within a bound; every node is a member and serves; nothing is held for any request; memory, threads and descriptors are as
before; every process stops cleanly. Needs root for the network namespaces.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import load  # noqa: E402
import scenario as scenarios  # noqa: E402
import world as worlds  # noqa: E402
from cluster import Cluster, PATIENCE, main as _, free_port, wait_until  # noqa: E402,F401

BOUND = 45 * PATIENCE   # seconds that any request may take, faults and all
REJOIN = 45 * PATIENCE  # … that the cluster may take to be whole again once the last fault is over


def references():
    """What an undisturbed server of its own answers."""
    with Cluster() as cluster:
        port = free_port()
        cluster.start("reference", *worlds.common_options(), "--role", "all", "--http", f"127.0.0.1:{port}", "--listen",
                      "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        client = cluster.wait_healthy("127.0.0.1", port)
        return [client.complete(**load.question(i))["choices"][0]["text"] for i in range(load.PROMPTS)]


def run_one(scenario, expected):
    """@returns what the run showed: {"violations": [...], counts of outcomes, seconds}."""
    began = time.monotonic()
    with worlds.World(scenario) as world:
        out = {"seed": scenario["seed"], "faults": len(scenario["faults"]), "violations": []}
        logs = []
        try:
            world.wait_complete(30)
            for gateway in world.gateways():
                wait_until(f"{gateway} is ready", world.client(gateway, 5).healthy, 30)
            before = {n["name"]: (world.process(n["name"]).process.pid, world.usage(n["name"])) for n in scenario["nodes"]}
            clients = load.Load(world, expected, scenario["clients"], scenario["leaving"], scenario["hostile"], BOUND)
            start = time.monotonic()
            for when, step in world.steps():
                wait_for(start + when)
                step()
            wait_for(start + scenarios.FAULT_SECONDS)
            world.heal()
            wait_for(time.monotonic() + 1)
            clients.finish()
            out.update(clients.counts)
            out["violations"] += clients.violations
            afterwards(world, expected, before, out)
        except Exception as e:  # whatever went wrong is the result of this run
            out["violations"].append(f"{type(e).__name__}: {e}")
        if out["violations"]:
            for name, process in world.cluster.processes.items():
                logs.append(f"---- {name}\n" + process.output()[-4000:])
    out["seconds"] = round(time.monotonic() - began, 1)
    out["logs"] = "\n".join(logs)
    return out


def wait_for(moment):
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def afterwards(world, expected, before, out):
    """What must hold once everything is over."""
    world.wait_complete(REJOIN)
    for gateway in world.gateways():
        for i in range(0, load.PROMPTS, 3):
            served_again(world.client(gateway), i, expected, f"{gateway} answers prompt {i}")
    for gateway in world.gateways():
        client = world.client(gateway)
        wait_until(f"nothing is held for any request, as {gateway} sees it", lambda: client.integrity()["idle"], 40)
        held = client.integrity()
        if held["charges"] or not held["consistent"]:
            out["violations"].append(f"{gateway}: {held}")
    for name, (pid, was) in before.items():
        if world.process(name).process.pid != pid:
            continue  # started again since
        now = world.usage(name)
        for what, old, new, more in zip(("bytes of memory", "threads", "descriptors"), was, now, (192 << 20, 16, 64)):
            if new > old + more:
                out["violations"].append(f"{name} had {old} {what} and has {new}")
    for name in reversed(list(world.cluster.processes)):
        world.process(name).stop()
        code = world.process(name).process.returncode
        if code != 0:
            out["violations"].append(f"{name} stopped with exit status {code}")


def served_again(client, i, expected, what):
    """A refusal is retried for a while (a node may have joined a moment ago); a wrong answer never."""
    def answered():
        try:
            status, body = client.json("POST", "/v1/completions", load.question(i))
        except OSError:
            return False
        if status != 200:
            return False
        text = body["choices"][0]["text"]
        assert text == expected[i], f"prompt {i}: WRONG TEXT {text!r} instead of {expected[i]!r}"
        return True
    wait_until(what, answered, REJOIN)


def shrink(scenario, expected):
    """The smallest scenario found that still fails, and how it does."""
    smallest, result = scenario, run_one(scenario, expected)
    if not result["violations"]:
        return scenario, result
    again = True
    while again:
        again = False
        for candidate in scenarios.simpler(smallest):
            tried = run_one(candidate, expected)
            print(f"  {'still fails' if tried['violations'] else 'passes'}: {scenarios.describe(candidate)}", flush=True)
            if tried["violations"]:
                smallest, result, again = candidate, tried, True
                break
    return smallest, result


def child(seed, references_file, folder):
    """One run in a process of its own: namespaces belong to a process's thread."""
    out = os.path.join(folder, f"{seed}.json")
    subprocess.run([sys.executable, __file__, "--seed", str(seed), "--references", references_file, "--json", out],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with open(out) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {"seed": seed, "faults": 0, "violations": ["the run itself ended early"], "logs": "", "seconds": 0}


def campaign(seeds, jobs, json_path):
    failed = []
    totals = {}
    with tempfile.TemporaryDirectory(prefix="mooncaf-chaos-") as folder:
        file = os.path.join(folder, "references.json")
        with open(file, "w") as f:
            json.dump(references(), f)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            runs = [pool.submit(child, seed, file, folder) for seed in seeds]
            for n, run in enumerate(concurrent.futures.as_completed(runs), 1):
                result = run.result()
                for key, value in result.items():
                    if isinstance(value, (int, float)) and key != "seed":
                        totals[key] = totals.get(key, 0) + value
                verdict = "ok  " if not result["violations"] else "FAIL"
                print(f"{verdict} [{n}/{len(seeds)}] {scenarios.describe(scenarios.make(result['seed']))} "
                      f"({result['seconds']} s)", flush=True)
                for violation in result["violations"][:5]:
                    print(f"       {violation}", flush=True)
                if result["violations"]:
                    failed.append(result)
    print("in all: " + ", ".join(f"{v:g} {k}" for k, v in totals.items()))
    if json_path:
        with open(json_path, "w") as f:
            json.dump({"totals": totals, "failed": failed}, f, indent=1)
    for result in failed[:3]:
        print(f"\n==== seed {result['seed']}\n{result['logs'][-12000:]}")
    print(f"{len(seeds) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-30", help="a range, e.g. 1-30")
    parser.add_argument("--seed", type=int, help="this one alone, in this process")
    parser.add_argument("--scenario", help="file with a scenario as JSON, in place of a seed")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller scenario that fails, too")
    parser.add_argument("--jobs", type=int, default=3, help="runs at the same time")
    parser.add_argument("--references", help="file with the right answers (made if not given)")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    if os.geteuid() != 0 or not worlds.hosts.possible():
        print("SKIPPED: faults between hosts need network namespaces, hence root\n0 passed, 0 failed, 1 skipped")
        return 0
    if args.seed is None and not args.scenario:
        first, _, last = args.seeds.partition("-")
        return campaign(list(range(int(first), int(last or first) + 1)), args.jobs, args.json)
    scenario = json.load(open(args.scenario)) if args.scenario else scenarios.make(args.seed)
    expected = json.load(open(args.references)) if args.references else references()
    print(scenarios.describe(scenario), flush=True)
    if args.shrink:
        scenario, result = shrink(scenario, expected)
        print(json.dumps(scenario))
    else:
        result = run_one(scenario, expected)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f)
    print(result.pop("logs")[-20000:])
    print(json.dumps(result, indent=1))
    print(f"{int(not result['violations'])} passed, {int(bool(result['violations']))} failed, 0 skipped")
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
