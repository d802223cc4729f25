"""A cluster, the load on it, and what befalls it, made from a seed: plain data, so that it can be printed, replayed and
shrunk.

Times are seconds after the load's beginning. A brief scenario has the same faults in a shorter time.
"""
import random

FAULT_SECONDS, BRIEF_SECONDS = 8, 3  # every fault begins within this time

PROCESS_FAULTS = ("kill", "kill", "pause", "pause", "stop")
NETWORK_FAULTS = ("cut", "cut", "one_way", "isolate", "slow", "flap", "lossy", "laggy")
DISK_FAULTS = ("rot", "rot_live", "full", "gone", "broken", "dawdle")
ENDS_PROCESS = ("kill", "stop", "rot")  # … which is started again


def make(seed, brief=False):
    """The scenario of a seed. The same seed gives the same scenario on every machine."""
    dice = random.Random(seed)
    span = BRIEF_SECONDS if brief else FAULT_SECONDS
    device = dice.choices(("host", "model", "linked"), (5, 4, 1))[0]
    coupled = device != "linked" and dice.random() < 0.12
    nodes = topology(dice, coupled)
    for node in nodes:
        if any(r in node["roles"] for r in ("prefill", "decode", "cache")):
            node["dram_mib"] = dice.choice((1, 2, 8, 32))
            if dice.random() < 0.4:
                node["ssd"] = dice.choice(("roomy", "roomy", "small"))
    share_hosts(random.Random(f"hosts of {seed}"), nodes)
    scenario = {
        "seed": seed, "brief": brief, "device": device, "coupled": coupled, "nodes": nodes,
        "policy": dice.choice(("kvcache_centric", "kvcache_centric", "cache_aware", "load_balancing", "random")),
        "clients": dice.choice((1, 2, 3, 4, 6, 6, 16)),
        "leaving": dice.choice((0.0, 0.0, 0.2)),   # share of clients that go away in the middle of an answer
        "hostile": dice.choice((0.0, 0.0, 0.1)),   # share of requests whose body is rubbish
    }
    rolling = dice.random() < 0.1
    kinds = NETWORK_FAULTS if rolling else PROCESS_FAULTS * 2 + NETWORK_FAULTS + DISK_FAULTS + ("clock",)
    faults = [make_fault(dice, kinds, nodes, span) for _ in range(dice.randint(1, 5))]
    if rolling:  # one node after the other, each when the one before is back
        faults.append({"at": round(dice.uniform(0.2, span / 2), 2), "kind": "roll", "node": "front"})
    faults += come_and_go(dice, nodes, span, coupled)
    faults += form_groups(random.Random(f"groups of {seed}"), scenario, span, rolling)
    faults += stand_by(random.Random(f"conductors of {seed}"), nodes, span, rolling)
    scenario["faults"] = sorted(faults, key=lambda f: f["at"])
    return scenario


def topology(dice, coupled):
    """The first node has a conductor; what else is in its process, and how many others there are, is drawn."""
    if coupled:  # one worker that does both, in one process
        front = dice.choice(("conductor,gateway,prefill,decode", "conductor,prefill,decode"))
    else:
        front = dice.choices(("conductor,gateway", "conductor", "conductor,gateway,prefill,decode",
                              "conductor,prefill,decode,cache", "conductor,gateway,cache"), (10, 6, 2, 1, 1))[0]
    nodes = [{"name": "front", "roles": front}]
    gateways = dice.choice((1, 1, 2, 3)) - ("gateway" in front)
    workers = 0 if coupled else 1
    for role, count in (("gateway", gateways),
                        ("prefill", workers and dice.choice((1, 2, 2)) - ("prefill" in front)),
                        ("decode", workers and dice.choice((1, 2, 2)) - ("decode" in front))):
        nodes += [{"name": f"{role}{i}", "roles": role} for i in range(count)]
    if workers and dice.random() < 0.3:
        nodes.append({"name": "both0", "roles": "prefill,decode"})
    if dice.random() < 0.5:
        nodes.append({"name": "cache0", "roles": "cache"})
    return nodes


def share_hosts(dice, nodes):
    """Some processes that hold KV live on one host, where it moves through shared memory."""
    alike = [n for n in nodes if n["name"] != "front" and "gateway" not in n["roles"]]
    if len(alike) > 1 and dice.random() < 0.4:
        for node in alike[1:]:
            if dice.random() < 0.7:
                node["host"] = alike[0]["name"]


def form_groups(dice, scenario, span, rolling):
    """Some workers are groups: of several devices, or with a stage in a process of its own, on a host of its own, which has
    faults of its own."""
    nodes, faults = scenario["nodes"], []
    if scenario["coupled"] or scenario["device"] == "linked":
        return faults
    for node in [n for n in nodes[1:] if {"prefill", "decode"} & set(n["roles"].split(","))]:
        if dice.random() > 0.35:
            continue
        if scenario["device"] == "model":  # a modelled decode instance is one machine
            if node["roles"] == "prefill":
                node["group"] = ("pipeline", 2)
            continue
        node["group"] = dice.choice((("pipeline", 2), ("tensor", 2), ("tensor", 4), ("ranks", 2), ("shares", 2)))
        if node["group"][0] not in ("ranks", "shares") or "joins" in node:
            continue
        rank = {"name": f"{node['name']}-rank", "roles": "rank", "leader": node["name"]}
        nodes.insert(1, rank)  # it ends behind its leader, when all do
        if dice.random() < 0.7:
            kinds = ("cut", "isolate", "slow", "lossy") if rolling else ("kill", "kill", "stop", "pause", "cut", "isolate", "slow")
            faults.append(make_fault(dice, kinds, [rank, node], span))
    return faults


def stand_by(dice, nodes, span, rolling):
    """Further conductors, of which one takes over when that of the first node is lost; they have faults of their own."""
    if dice.random() > 0.4:
        return []
    others = [{"name": f"conductor{i + 1}", "roles": "conductor"} for i in range(dice.choice((1, 2, 2)))]
    nodes[1:1] = others  # they end last of all, with the first
    kinds = ("cut", "isolate", "slow", "lossy") if rolling else ("kill", "kill", "kill", "stop", "pause", "pause", "cut", "isolate")
    return [make_fault(dice, kinds, [*others, nodes[0]], span) for _ in range(dice.randint(1, 3))]


def come_and_go(dice, nodes, span, coupled):
    """A node that joins late, and one that leaves for good; never the last of a role."""
    faults = []
    if dice.random() < 0.2:
        role = dice.choice(("gateway", "cache") if coupled else ("gateway", "cache", "prefill", "decode"))
        nodes.append({"name": "late0", "roles": role, "joins": round(dice.uniform(0.2, span), 2)})
        if role != "gateway":
            nodes[-1]["dram_mib"] = 8
        faults.append({"at": nodes[-1]["joins"], "kind": "join", "node": "late0"})
    spare = [n for n in nodes[1:] if "joins" not in n and not last_of_a_role(n, nodes)]
    if spare and dice.random() < 0.2:
        faults.append({"at": round(dice.uniform(0.2, span), 2), "kind": "leave", "node": dice.choice(spare)["name"]})
    return faults


def last_of_a_role(node, nodes):
    others = [r for n in nodes if n is not node and "joins" not in n for r in n["roles"].split(",")]
    return not set(node["roles"].split(",")) - {"cache"} <= set(others)


def make_fault(dice, kinds, nodes, span):
    at = round(dice.uniform(0.2, span), 2)
    node = dice.choice(nodes)["name"]
    other = dice.choice([n["name"] for n in nodes if n["name"] != node] or [node])
    kind = dice.choice(kinds)
    stores = [n["name"] for n in nodes if "ssd" in n]
    if kind in DISK_FAULTS and not stores or other == node:
        kind = "kill"
    fault = {"at": at, "kind": kind, "node": node}
    if kind in DISK_FAULTS:
        fault["node"] = dice.choice(stores)
    short, long = (dice.uniform(0.1, 1.5), dice.uniform(1.5, 4.5)) if span == BRIEF_SECONDS else \
        (dice.uniform(0.1, 3), dice.uniform(3, 20))
    if kind in ENDS_PROCESS:
        fault["back_after"] = 0.2 if kind == "rot" else round(dice.uniform(0.1, 0.6 * span), 2)
    elif kind not in ("rot_live", "gone"):
        fault["for"] = round(dice.choice((short, long)), 2)
    if kind in ("cut", "one_way"):
        fault["other"] = other
    if kind in ("rot", "rot_live"):
        fault.update(flips=dice.choice((1, 16, 256)), dice=dice.randrange(1 << 30))
    if kind == "lossy":
        fault.update(loss=dice.choice((0.01, 0.05, 0.2)), twice=dice.choice((0, 0.05)), ways=dice.choice(("both", "in", "out")))
    if kind == "laggy":
        fault.update(delay=dice.choice((0.02, 0.1, 0.4)), ways=dice.choice(("both", "in", "out")))
        fault["jitter"] = dice.choice((0, fault["delay"]))
    if kind == "broken":  # 1: writes fail, 2: reads do
        fault["what"] = dice.choice((1, 2, 3))
    if kind == "dawdle":
        fault["delay_us"] = dice.choice((2000, 20000, 200000))
    if kind == "clock":  # seconds that the wall clock leaps
        fault["leap"] = dice.choice((-86400, -3600, -2, 2, 3600, 86400, 10 ** 9))
    return fault


def simpler(scenario):
    """Scenarios with a little less in them, the largest cuts first: what a failing one is tried again as."""
    faults = scenario["faults"]
    for i, fault in enumerate(faults):
        nodes = [n for n in scenario["nodes"] if fault["kind"] != "join" or n["name"] != fault["node"]]
        yield {**scenario, "nodes": nodes, "faults": faults[:i] + faults[i + 1:]}
    hit = {f["node"] for f in faults} | {f.get("other") for f in faults}
    for node in scenario["nodes"]:
        ranks = [n["name"] for n in scenario["nodes"] if n.get("leader") == node["name"]]
        if "group" in node and not hit & set(ranks):
            single = [{k: v for k, v in n.items() if k != "group"} if n is node else n for n in scenario["nodes"]]
            yield {**scenario, "nodes": [n for n in single if n["name"] not in ranks]}
    for key in ("leaving", "hostile"):
        if scenario[key]:
            yield {**scenario, key: 0.0}
    if scenario["clients"] > 1:
        yield {**scenario, "clients": 1}
    named = {name for f in faults for name in (f["node"], f.get("other"))}
    for node in scenario["nodes"][1:]:
        hosts_others = any(node["name"] in (n.get("host"), n.get("leader")) for n in scenario["nodes"])
        if node["name"] not in named and not hosts_others and "leader" not in node and not last_of_a_role(node, scenario["nodes"]):
            yield {**scenario, "nodes": [n for n in scenario["nodes"] if n is not node]}
    for node in scenario["nodes"]:
        if "ssd" in node and not any(f["kind"] in DISK_FAULTS and f["node"] == node["name"] for f in faults):
            smaller = [{k: v for k, v in n.items() if k != "ssd"} if n is node else n for n in scenario["nodes"]]
            yield {**scenario, "nodes": smaller}


def describe(scenario):
    """One line for people."""
    nodes = " ".join(n["name"] + ("+ssd" if "ssd" in n else "") + ("@" + n["host"] if "host" in n else "")
                     + ("/{}{}".format(*n["group"]) if "group" in n else "") for n in scenario["nodes"])
    faults = ", ".join(
        f"{f['at']:.1f}s {f['kind']} {f['node']}" + (f"-{f['other']}" if "other" in f else "") +
        (f" {f['for']:.1f}s" if "for" in f else "") for f in scenario["faults"])
    kind = scenario["device"] + (", coupled" if scenario["coupled"] else "")
    return f"seed {scenario['seed']}: {kind}; {nodes}; {scenario['clients']} clients; {faults}"
