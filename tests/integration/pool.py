#!/usr/bin/env python3
"""Nodes that only store: what workers computed is copied there, outlives them, and is missed by nobody when it dies."""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import serving  # noqa: E402
from cluster import Cluster, free_port, main, wait_until  # noqa: E402


def with_pool(cluster):
    """Gateway and conductor, a prefill node, a decode node, a cache node with an SSD tier."""
    port, control = free_port(), free_port()
    more = ["--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"]
    join = ["--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
    cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                  f"127.0.0.1:{control}", *more)
    cluster.start("prefill", "--role", "prefill", "--prefill-instances", "1", *serving.FETCH_ALL, *join, *more)
    cluster.start("decode", "--role", "decode", *join, *more)
    cluster.start("cache", "--role", "cache", "--ssd-path", os.path.join(cluster.folder.name, "ssd"), *join, *more)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_members(client, 4)
    return client


def wait_members(client, count):
    wait_until(f"{count} nodes are members", lambda: len(client.cluster()["nodes"]) == count, 60)


def shard(client, process):
    return next((s for s in client.cluster()["shards"] if s["node"] == process.node()), None)


def wait_copied(client, cache, blocks):
    wait_until(f"{blocks} blocks were copied to the cache node",
               lambda: (shard(client, cache) or {"slots_committed": 0})["slots_committed"] >= blocks)


def restart(client, cluster, *names):
    """kill -9, and the same command again. Members join one by one and greet each other after that: waits until those
    that came back and the others have, since until then blocks of others are a miss."""
    greeted = lambda a, b: cluster.processes[a].output().count(f"peer up peer={cluster.processes[b].node()} ")
    others = [n for n in cluster.processes if n not in names]
    before = {(a, b): greeted(a, b) for a in names for b in others}
    for name in names:
        cluster.processes[name].kill9()
    wait_members(client, 4 - len(names))
    for name in names:
        cluster.processes[name].start()
    wait_members(client, 4)
    for (a, b), count in before.items():
        wait_until(f"{a} and {b} know each other", lambda: greeted(a, b) > count and greeted(b, a) > 0, 60)
    wait_until("requests can be served again", client.healthy, 60)


def blocks_of(prompts, client):
    """Full blocks of 64 tokens that the prompts have in all."""
    return sum(client.json("POST", "/tokenize", {"prompt": p})[1]["count"] // 64 for p in prompts)


def blocks_outlive_the_workers_that_made_them():
    expected = serving.reference()
    with Cluster() as cluster:
        client = with_pool(cluster)
        serving.check_all(client)
        wait_copied(client, cluster.processes["cache"], blocks_of(serving.PROMPTS, client))
        restart(client, cluster, "prefill", "decode")
        # The workers' memory is empty now: what is cached can only have come from the cache node.
        for prompt in serving.PROMPTS:
            body = serving.ask(client, prompt)
            assert serving.text_of(body) == expected[prompt]
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, body["usage"]
        cluster.wait_idle()


def a_killed_cache_node_is_a_miss_and_no_more():
    expected = serving.reference()
    with Cluster() as cluster:
        client = with_pool(cluster)
        cache = cluster.processes["cache"]
        for i, prompt in enumerate(serving.PROMPTS):
            if i == 4:
                cache.kill9()  # while it copies
            assert serving.text_of(serving.ask(client, prompt)) == expected[prompt]
        wait_members(client, 3)
        cache.start()
        wait_members(client, 4)
        # A node that joins is offered what others hold already.
        wait_copied(client, cache, blocks_of(serving.PROMPTS, client))
        serving.check_all(client, cached=True)
        cluster.wait_idle()


def a_long_prefix_comes_from_several_nodes_at_once():
    """The decode node and the cache node have every prompt; the prefill node lost them."""
    prompts = [f"Part {i}. " + serving.STORY * 8 for i in range(8)]
    with Cluster() as cluster:
        client = with_pool(cluster)
        expected = [serving.text_of(serving.ask(client, p)) for p in prompts]
        wait_copied(client, cluster.processes["cache"], blocks_of(prompts, client))
        restart(client, cluster, "prefill")
        name = lambda process: cluster.processes[process].node()
        cached = 0
        for prompt, text in zip(prompts, expected):
            body = serving.ask(client, prompt)
            assert serving.text_of(body) == text
            found = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert found >= 64 * 6, body["usage"]
            cached += found
        cluster.wait_idle()

        def read_from(process):
            # What it sends to decode are the rows that are not cached: less than a block of each prompt.
            return sum(p["bytes"] for p in client.cluster()["paths"] if p["node"] == name("prefill") and p["peer"] == name(process))

        own_rows = len(prompts) * 64 * 23_040
        wait_until("both gave some of it", lambda: read_from("cache") > 0 and read_from("decode") > own_rows)
        print(f"     {read_from('cache')} bytes from the cache node, {read_from('decode')} with the decode node", flush=True)
        wait_until("what came from others is counted", lambda: shard(client, cluster.processes["prefill"])["hits_remote"] * 64 == cached)
        # One of the two dies while prefixes come from it: they come from the other, or are computed.
        restart(client, cluster, "prefill")
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answers = [pool.submit(serving.ask, client, p) for p in prompts]
            concurrent.futures.wait(answers, return_when=concurrent.futures.FIRST_COMPLETED)
            cluster.processes["cache"].kill9()
            assert [serving.text_of(a.result()) for a in answers] == expected
        wait_members(client, 3)
        cluster.wait_idle()


TESTS = [blocks_outlive_the_workers_that_made_them, a_killed_cache_node_is_a_miss_and_no_more,
         a_long_prefix_comes_from_several_nodes_at_once]

if __name__ == "__main__":
    main(TESTS)
