"""A cluster, the load on it, and what befalls it, made from a seed: plain data, so that it can be printed, replayed and
shrunk."""
import random

FAULT_SECONDS = 8  # every fault begins within this time of the load's beginning


def make(seed):
    """The scenario of a seed. The same seed gives the same scenario on every machine."""
    dice = random.Random(seed)
    nodes = [{"name": "front", "roles": "conductor,gateway" if dice.random() < 0.6 else "conductor"}]
    for i in range(dice.choice((1, 1, 2)) - ("gateway" in nodes[0]["roles"])):
        nodes.append({"name": f"gateway{i}", "roles": "gateway"})
    if not any("gateway" in n["roles"] for n in nodes):
        nodes.append({"name": "gateway0", "roles": "gateway"})
    for role in ("prefill", "decode"):
        for i in range(dice.choice((1, 2, 2))):
            nodes.append({"name": f"{role}{i}", "roles": role})
    if dice.random() < 0.3:
        nodes.append({"name": "both0", "roles": "prefill,decode"})
    if dice.random() < 0.5:
        nodes.append({"name": "cache0", "roles": "cache"})
    for node in nodes:
        holds = any(r in node["roles"] for r in ("prefill", "decode", "cache"))
        if not holds:
            continue
        node["dram_mib"] = dice.choice((1, 2, 8, 32))
        if dice.random() < 0.4:
            node["ssd"] = dice.choice(("roomy", "roomy", "small"))
    faults = [make_fault(dice, nodes) for _ in range(dice.randint(1, 5))]
    return {
        "seed": seed,
        "nodes": nodes,
        "policy": dice.choice(("kvcache_centric", "kvcache_centric", "cache_aware", "load_balancing", "random")),
        "clients": dice.randint(1, 6),
        "leaving": dice.choice((0.0, 0.0, 0.2)),   # share of clients that go away in the middle of an answer
        "hostile": dice.choice((0.0, 0.0, 0.1)),   # share of requests whose body is rubbish
        "faults": sorted(faults, key=lambda f: f["at"]),
    }


def make_fault(dice, nodes):
    at = round(dice.uniform(0.2, FAULT_SECONDS), 2)
    node = dice.choice(nodes)["name"]
    other = dice.choice([n["name"] for n in nodes if n["name"] != node])
    kind = dice.choice(("kill", "kill", "pause", "pause", "cut", "cut", "one_way", "isolate", "slow", "flap", "stop",
                        "rot"))
    fault = {"at": at, "kind": kind, "node": node}
    if kind in ("kill", "stop"):
        fault["back_after"] = round(dice.uniform(0.1, 5), 2)
    elif kind == "rot":
        stores = [n["name"] for n in nodes if "ssd" in n]
        if not stores:
            return {**fault, "kind": "kill", "back_after": 1.0}
        fault.update(node=dice.choice(stores), flips=dice.choice((1, 16, 256)), back_after=0.2,
                     dice=dice.randrange(1 << 30))
    else:
        fault["for"] = round(dice.choice((dice.uniform(0.1, 3), dice.uniform(3, 20))), 2)
    if kind in ("cut", "one_way"):
        fault["other"] = other
    return fault


def simpler(scenario):
    """Scenarios with a little less in them, the largest cuts first: what a failing one is tried again as."""
    faults = scenario["faults"]
    for i in range(len(faults)):
        yield {**scenario, "faults": faults[:i] + faults[i + 1:]}
    for key in ("leaving", "hostile"):
        if scenario[key]:
            yield {**scenario, key: 0.0}
    if scenario["clients"] > 1:
        yield {**scenario, "clients": 1}
    named = {name for f in faults for name in (f["node"], f.get("other"))}
    roles = [r for n in scenario["nodes"] for r in n["roles"].split(",")]
    for node in scenario["nodes"]:
        others = roles.copy()
        for r in node["roles"].split(","):
            others.remove(r)
        if node["name"] not in named and {"conductor", "gateway", "prefill", "decode"} <= set(others):
            yield {**scenario, "nodes": [n for n in scenario["nodes"] if n is not node]}
    for node in scenario["nodes"]:
        if "ssd" in node and not any(f["kind"] == "rot" and f["node"] == node["name"] for f in faults):
            smaller = [{k: v for k, v in n.items() if k != "ssd"} if n is node else n for n in scenario["nodes"]]
            yield {**scenario, "nodes": smaller}


def describe(scenario):
    """One line for people."""
    nodes = " ".join(n["name"] + ("+ssd" if "ssd" in n else "") for n in scenario["nodes"])
    faults = ", ".join(
        f"{f['at']:.1f}s {f['kind']} {f['node']}" + (f"-{f['other']}" if "other" in f else "") +
        (f" {f['for']:.1f}s" if "for" in f else "") for f in scenario["faults"])
    return f"seed {scenario['seed']}: {nodes}; {scenario['clients']} clients; {faults}"
