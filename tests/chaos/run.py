#!/usr/bin/env python3
"""Faults by the dozen, over real processes: random clusters, loads and schedules of faults, each from a seed.

    tests/chaos/run.py --brief              # 30 seeds, faults within three seconds: what CI runs
    tests/chaos/run.py --seeds 1000-1999 --jobs 4 --json out.json
    tests/chaos/run.py --seed 1017 --shrink # one again, then without whatever it fails without, too

After each run: every request was answered with exactly its tokens, and ended once, or with an honest error after a right
beginning, within a bound; every node is a member, serves, and can talk to all others; nothing is held for any request; the
conductor's index has what the shards hold; memory, threads and descriptors are as before; every process stops cleanly and
soon; and the decisions that conductors and workers wrote down, up to the moment when they were killed, follow again from
what they were told. Needs root for the network namespaces.
"""
import argparse
import concurrent.futures
import glob
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
from cluster import BINARY, Cluster, PATIENCE, free_port, wait_until  # noqa: E402

BOUND = 45 * PATIENCE   # seconds that any request may take, faults and all
REJOIN = 45 * PATIENCE  # … that the cluster may take to be whole again once the last fault is over
STOP = 8 * PATIENCE     # … that a process may take to stop
GROWTH = {"bytes of memory": 64 << 20, "threads": 4, "descriptors": 32}
ANY_RECORD = 64         # bytes of a journal that has one
KINDS = ("wrong text", "dishonest", "hang", "leak", "crash", "decision", "other")


def references():
    """What an undisturbed server of its own answers, by device."""
    out = {}
    for device in ("host", "model"):
        with Cluster() as cluster:
            port = free_port()
            cluster.start("reference", *worlds.common_options(device, cluster.folder.name), "--role", "all", "--http",
                          f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
            client = cluster.wait_healthy("127.0.0.1", port)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                ask = lambda i: load.texts(client.complete(**load.question(i, device)))
                out[device] = list(pool.map(ask, range(load.PROMPTS)))
    out["linked"] = out["host"]
    return out


def run_one(scenario, expected):
    """@returns what the run showed: {"violations": [(kind, text), …], counts of outcomes, seconds}."""
    began = time.monotonic()
    expected = expected[scenario["device"]]
    out = {"seed": scenario["seed"], "faults": len(scenario["faults"]), "violations": [], "logs": ""}
    with worlds.World(scenario) as world:
        try:
            world.wait_complete(30)
            for gateway in world.gateways():
                wait_until(f"{gateway} is ready", world.client(gateway, 5).healthy, 30)
            before = {name: (world.process(name).process.pid, world.usage(name)) for name in world.members()}
            clients = load.Load(world, expected, BOUND)
            start = time.monotonic()
            for when, step in world.steps():
                wait_for(start + when)
                step()
                world.revive_leaders()
            world.heal()
            wait_for(time.monotonic() + 0.5)
            clients.finish()
            out.update(clients.counts)
            out["violations"] += clients.violations
            afterwards(world, expected, before, out)
        except AssertionError as e:
            out["violations"].append(("crash" if "ended by itself" in str(e) else "hang", str(e)))
        except Exception as e:  # whatever went wrong is the result of this run
            out["violations"].append(("other", f"{type(e).__name__}: {e}"))
        out["violations"] += world.problems
        if out["violations"]:
            out["logs"] = "\n".join(f"---- {name}\n" + process.output()[-8000:]
                                    for name, process in world.cluster.processes.items())
    out["seconds"] = round(time.monotonic() - began, 1)
    return out


def wait_for(moment):
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def afterwards(world, expected, before, out):
    """What must hold once everything is over."""
    began = time.monotonic()
    world.wait_complete(REJOIN)
    out["slowest to be whole"] = round(time.monotonic() - began, 1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ask = lambda gateway, i: served_again(world, gateway, i, expected)
        for work in [pool.submit(ask, gateway, i) for n, gateway in enumerate(world.gateways())
                     for i in range(n, load.PROMPTS, 4)]:
            work.result()
    for gateway in world.gateways():
        held = {}
        try:
            wait_until("idle", lambda: held.update(world.client(gateway).integrity()) or held["idle"], 40)
        except AssertionError:
            out["violations"].append(("leak", f"40 s after the last request {gateway} says {held}"))
    for path in world.client(world.gateways()[0]).cluster()["paths"]:
        key = f"KiB by {path['path']}"
        out[key] = out.get(key, 0) + (path["bytes"] >> 10)
    try:
        wait_until("agreed", lambda: not disagreements(world), 10)
    except AssertionError:
        out["violations"].append(("leak", "the conductor's index and the shards: " + "; ".join(disagreements(world))))
    for name, (pid, was) in before.items():
        if name not in world.members() or world.process(name).process.pid != pid:
            continue  # started again since
        for what, amount in world.usage(name).items():
            out[f"most {what} more"] = max(out.get(f"most {what} more", 0), amount - was[what])
            if amount > was[what] + GROWTH[what]:
                out["violations"].append(("leak", f"{name} had {was[what]} {what} and has {amount}"))
    for name in reversed(world.members()):
        began = time.monotonic()
        process = world.process(name).process
        process.terminate()
        try:
            code = process.wait(STOP)
            if code != 0:
                out["violations"].append(("crash", f"{name} stopped with exit status {code}"))
        except subprocess.TimeoutExpired:
            out["violations"].append(("hang", f"{name} did not stop within {STOP} s of SIGTERM"))
            process.kill()
        out["slowest stop"] = max(out.get("slowest stop", 0), round(time.monotonic() - began, 2))
    replay(world, out)


def replay(world, out):
    """The journals of all processes, and of those that they followed."""
    for path in sorted(p for name in world.nodes for p in glob.glob(glob.escape(world.journal(name)) + "*")):
        if os.path.getsize(path) < ANY_RECORD:
            continue  # killed as soon as it had started
        done = subprocess.run([BINARY, "replay", path], capture_output=True, text=True)
        if done.returncode != 0:
            out["violations"].append(("decision", f"{os.path.basename(path)}: {done.stdout[-600:]}{done.stderr[-600:]}"))
        else:
            out["decisions"] = out.get("decisions", 0) + int(done.stdout.rsplit(" decisions, ", 1)[0].rsplit(" ", 1)[1])


def disagreements(world):
    """Shards of which the conductor thinks that they hold more or fewer blocks than they do. A block that is in memory and
    on disk counts once there, and how many are both is not told."""
    found = []
    for s in world.client(world.gateways()[0]).cluster()["shards"]:
        memory, disk = s["slots_committed"], s["ssd_blocks"]
        if not max(memory, disk) <= s["indexed"] <= memory + disk:
            found.append(f"{s['node']} holds {memory} in memory and {disk} on disk, {s['indexed']} are indexed")
    return found


def served_again(world, gateway, i, expected):
    """A refusal is retried for a while (a node may have joined a moment ago); a wrong answer never."""
    def answered():
        try:
            status, body = world.client(gateway).json("POST", "/v1/completions",
                                                      load.question(i, world.scenario["device"]))
        except OSError:
            return False
        if status != 200:
            return False
        if load.texts(body) != expected[i]:
            world.problems.append(("wrong text", f"prompt {i}, after all: {load.texts(body)!r}, not {expected[i]!r}"))
        return True
    wait_until(f"{gateway} answers prompt {i}", answered, REJOIN)


def shrink(scenario, run):
    """The smallest scenario found that still fails, and how it does. `run` gives what a scenario showed."""
    smallest, result = scenario, run(scenario)
    if not result["violations"]:
        return scenario, result
    again = True
    while again:
        again = False
        for candidate in scenarios.simpler(smallest):
            tried = run(candidate)
            print(f"  {'still fails' if tried['violations'] else 'passes'}: {scenarios.describe(candidate)}", flush=True)
            if tried["violations"]:
                smallest, result, again = candidate, tried, True
                break
    return smallest, result


def child(seed, brief, references_file, folder):
    """One run in a process of its own: namespaces belong to a process's thread."""
    out = os.path.join(folder, f"{seed}.json")
    command = [sys.executable, __file__, "--seed", str(seed), "--references", references_file, "--json", out]
    subprocess.run(command + ["--brief"] * brief, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with open(out) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {"seed": seed, "faults": 0, "violations": [("other", "the run itself ended early")], "logs": "", "seconds": 0}


def campaign(seeds, args):
    failed, totals = [], dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory(prefix="mooncaf-chaos-") as folder:
        file = os.path.join(folder, "references.json")
        with open(file, "w") as f:
            json.dump(references(), f)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            runs = [pool.submit(child, seed, args.brief, file, folder) for seed in seeds]
            for n, run in enumerate(concurrent.futures.as_completed(runs), 1):
                result = run.result()
                for key, value in result.items():
                    if key.startswith(("slowest", "most")):
                        totals[key] = max(totals.get(key, 0), value)
                    elif isinstance(value, (int, float)) and key != "seed":
                        totals[key] = totals.get(key, 0) + value
                for kind, _ in result["violations"]:
                    totals[kind] += 1
                verdict = "ok  " if not result["violations"] else "FAIL"
                print(f"{verdict} [{n}/{len(seeds)}] {scenarios.describe(scenarios.make(result['seed'], args.brief))} "
                      f"({result['seconds']} s)", flush=True)
                for kind, text in result["violations"][:5]:
                    print(f"       {kind}: {text}", flush=True)
                if result["violations"]:
                    failed.append(result)
    print("in all: " + ", ".join(f"{v:g} {k}" for k, v in totals.items()))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"totals": totals, "failed": failed}, f, indent=1)
    for result in failed[:3]:
        print(f"\n==== seed {result['seed']}\n{result['logs'][-12000:]}")
    print(f"RUNS: {len(seeds)} scenarios, {len(failed)} failed\n{int(not failed)} passed, {int(bool(failed))} failed, 0 skipped")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-30", help="a range, e.g. 1-30")
    parser.add_argument("--seed", type=int, help="this one alone, in this process")
    parser.add_argument("--brief", action="store_true", help="the same kinds of faults in less time")
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
        return campaign(list(range(int(first), int(last or first) + 1)), args)
    scenario = json.load(open(args.scenario)) if args.scenario else scenarios.make(args.seed, args.brief)
    expected = json.load(open(args.references)) if args.references else references()
    print(scenarios.describe(scenario), flush=True)
    if args.shrink:
        scenario, result = shrink(scenario, lambda candidate: run_one(candidate, expected))
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
