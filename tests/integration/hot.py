#!/usr/bin/env python3
"""Hot blocks: what many prompts begin with is copied to another prefill node ahead of need, and serves there."""
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, free_port, main, text_of, wait_until  # noqa: E402
from modelled import check_journal  # noqa: E402
from serving import STORY  # noqa: E402

BLOCK = 64
SYSTEM = STORY * 8  # what every prompt begins with
MOST_REQUESTS = 60  # that it may take to become hot: a loaded machine is slow, and heat fades


def start(cluster, *front):
    """Conductor and gateway, two prefill nodes, a decode node. Cache-aware placement never fetches: whoever holds a prefix
    gets its prompts, so that nothing but a copy ahead of need brings it to another node."""
    port, control = free_port(), free_port()
    more = ["--data-listen", "127.0.0.1:0", "--cache-dram", "256MiB"]
    join = ["--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
    cluster.meters = {name: free_port() for name in ("front", "one", "other", "decode")}
    begin = lambda name, *args: cluster.start(name, *args, "--metrics-listen", f"127.0.0.1:{cluster.meters[name]}", *more)
    begin("front", "--role", "conductor,gateway", "--policy", "cache_aware", "--http", f"127.0.0.1:{port}", "--listen",
          f"127.0.0.1:{control}", *front)
    for name in ("one", "other"):
        begin(name, "--role", "prefill", "--prefill-instances", "1", *join)
    begin("decode", "--role", "decode", *join)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_until("all nodes are members", lambda: len(client.cluster()["instances"]) == 3, 60)
    wait_until("the nodes know each other", lambda: all(
        cluster.processes[n].output().count(" peer up ") >= 3 for n in ("one", "other", "decode")), 60)
    return client


def ask(client, i):
    return client.complete(prompt=f"{SYSTEM}Question {i}:", temperature=0, max_tokens=4)


def shard(client, process):
    return next(s for s in client.cluster()["shards"] if s["node"] == process.node())


def reused(cluster, process, tier):
    """Blocks that requests reused at a process, as its metrics count them."""
    page = Client("127.0.0.1", cluster.meters[process.name]).request("GET", "/metrics")[2].decode()
    found = re.findall(r'^mooncaf_kv_hit_blocks_total\{[^}]*tier="%s"[^}]*\} (\S+)$' % tier, page, re.M)
    return sum(map(float, found))


def make_hot(client, enough):
    """Asks until `enough()`. Returns how often that was."""
    for i in range(MOST_REQUESTS):
        ask(client, i)
        if enough():
            return i + 1
    raise AssertionError(client.cluster()["counters"])


def a_hot_prefix_is_copied_ahead_of_need_and_serves_when_its_first_node_is_gone():
    with Cluster() as cluster:
        journal = pathlib.Path(cluster.folder.name) / "decisions"
        client = start(cluster, "--journal", str(journal))
        hot = client.json("POST", "/tokenize", {"prompt": SYSTEM})[1]["count"] // BLOCK
        assert hot >= 5, hot
        before = text_of(ask(client, "A"))
        busy = client.cluster()["recent"][0]["prefill"].split("/")[0]
        source, target = sorted((cluster.processes[n] for n in ("one", "other")), key=lambda p: p.node() != busy)
        counters = lambda: client.cluster()["counters"]
        asked = make_hot(client, lambda: counters()["hot_copies"] >= hot)
        wait_until("the copies are there", lambda: shard(client, target)["slots_committed"] >= hot)
        seen = client.cluster()
        # Nobody needed them there: it neither computed a prompt nor fetched for one.
        assert all(r["prefill"].startswith(busy) and not r["source"] for r in seen["recent"]), seen["recent"]
        assert reused(cluster, target, "dram") == 0 and counters()["fetches"] == 0, seen
        source.kill9()
        wait_until("its node has left", lambda: len(client.cluster()["instances"]) == 2)
        body = ask(client, "A")
        assert text_of(body) == before, (text_of(body), before)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= hot * BLOCK, body["usage"]
        wait_until("the copies were used", lambda: reused(cluster, target, "dram") >= hot)
        assert reused(cluster, target, "remote") == 0 and counters()["fetches"] == 0
        print(f"    {hot} blocks copied after {asked + 1} prompts, {reused(cluster, target, 'dram'):.0f} used on the other node")
        cluster.wait_idle()
        cluster.processes["front"].stop()
        check_journal(journal, asked + 2)


def without_a_share_of_memory_nothing_is_copied():
    with Cluster() as cluster:
        client = start(cluster, "--hot-copy-share", "0")
        for i in range(24):
            ask(client, i)
        seen = client.cluster()
        assert seen["counters"]["hot_copies"] == 0, seen["counters"]
        assert sorted(s["slots_committed"] > 0 for s in seen["shards"]
                      if s["node"] != cluster.processes["decode"].node()) == [False, True], seen["shards"]
        cluster.wait_idle()


if __name__ == "__main__":
    main([a_hot_prefix_is_copied_ahead_of_need_and_serves_when_its_first_node_is_gone,
          without_a_share_of_memory_nothing_is_copied])
