#!/usr/bin/env python3
"""A device's memory (L1), the node's (L2) and its SSD (L3) together, each with a write policy of its own: KV that stays on the
device until it has to leave, over memory that is too small, over a disk that survives the process.

The tokens are those of a server without any of it, and nothing is held in the end.
"""
import concurrent.futures
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402

REST = ("--threads", "1", "--block-tokens", "16", "--context-length", "512")
SMALL = ("--model", "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512", *REST)
# Reading its KV is faster than computing it, on any disk.
SLOW = ("--model", "dummy:layers=4,dim=512,heads=8,kv_heads=1,head_dim=64,ffn=2048,vocab=600,type=q8_0,ctx=512", *REST)
DEVICE = ("--device", "linked", "--device-write-policy", "write_back")
PROMPTS = [f"{i}: " + "the tide comes in and goes out again. " * 6 + "and the moon pulls. " * 2 for i in range(24)]
_expected = {}


def ask(client, prompt, tokens=6):
    """The answer is what a host alone says. Returns how many tokens came out of the cache."""
    body = client.complete(prompt=prompt, temperature=0, max_tokens=tokens, ignore_eos=True)
    assert text_of(body) == _expected.setdefault((prompt, tokens), text_of(body)), (prompt[:4], body)
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def ask_all(client, prompts=PROMPTS, tokens=6, at_once=6):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lambda prompt: ask(client, prompt, tokens), prompts))


def learn(prompts=PROMPTS, tokens=6, model=SMALL):
    _expected.clear()
    with Cluster() as cluster:
        ask_all(one_server(cluster, *model, "--device", "host"), prompts, tokens)


def shard(client):
    return client.cluster()["shards"][0]


def device(client):
    return client.cluster()["devices"][0]


def metrics_of(cluster):
    """Of the node itself, as Prometheus would ask it."""
    return cluster.client.request("GET", "/metrics")[2].decode()


def hit_blocks(text, tier):
    found = re.search(rf'^mooncaf_kv_hit_blocks_total\{{[^}}]*tier="{tier}"[^}}]*\}} (\S+)$', text, re.M)
    return float(found[1]) if found else 0


def nothing_is_held(cluster, client):
    cluster.wait_idle()
    wait_until("nothing is reserved", lambda: shard(client)["slots_reserved"] == 0 and shard(client)["slots_pinned"] == 0)
    assert shard(client)["consistent"], shard(client)


def what_only_the_device_held_survives_a_planned_stop():
    """Nothing had to leave the device; a stop brings it to memory and from there to the SSD, whatever the policy of either."""
    few = PROMPTS[:2]
    learn(few, model=SLOW)
    found = 0
    for policy in ("write_back", "write_through_selective", "write_through"):
        with Cluster() as cluster:
            ssd = ("--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", policy, "--prefetch-threshold", "0",
                   "--prefetch", "wait_complete")
            client = one_server(cluster, *SLOW, *DEVICE, *ssd)
            assert ask_all(client, few) == 0
            cluster.wait_idle()
            wait_until("the node reported", lambda: device(client)["unwritten_blocks"] > 0)
            assert shard(client)["slots_committed"] == shard(client)["ssd_blocks"] == device(client)["stored_bytes"] == 0
            cluster.processes.pop("all").stop()
            again = one_server(cluster, *SLOW, *DEVICE, *ssd, name="again")
            wait_until("all of it is on the SSD", lambda: shard(again)["ssd_blocks"] >= 16 * len(few))
            found += ask_all(again, few, at_once=1)
            nothing_is_held(cluster, again)
        print(f"     {policy}: on the SSD after a restart", flush=True)
    # A disk that is busy when the process starts may be held for slower than computing, once.
    assert found >= 256 * len(few), found


def every_tier_too_small_gives_the_same_tokens():
    """A device that holds seven prompts over memory that holds seven over an SSD that holds all."""
    learn()
    for policy in ("write_back", "write_through"):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, *DEVICE, "--device-kv", "1MiB", "--cache-dram", "1MiB", "--ssd-path",
                                os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", policy, "--prefetch-threshold", "0")
            found = 0
            for _ in range(4):
                found += ask_all(client)
            wait_until("the node reported", lambda: device(client)["stored_bytes"] > 0 and shard(client)["ssd_written_bytes"] > 0)
            assert found > 0, policy
            nothing_is_held(cluster, client)
            seen, of_disk = device(client), shard(client)
        print(f"     {policy}: {found} tokens found, {seen['stored_bytes']} bytes to memory, {seen['lost_blocks']} blocks lost on the "
              f"way, {of_disk['ssd_written_bytes']} to the SSD, {of_disk['hits_ssd']} blocks back", flush=True)


def what_was_found_in_each_tier_adds_up_to_the_prompts():
    """Device, memory and SSD, each too small: blocks found there are the tokens that answers call cached, and with the misses all of
    the prompts' full blocks. Whatever fits stays on the device alone at first, so most hits are there."""
    few = PROMPTS[:10]
    learn(few, model=SLOW)

    def counted(client, asked, found):
        def counts():
            s = shard(client)
            return {k: s[k] for k in ("hits_device", "hits_dram", "hits_ssd", "hits_remote", "misses")}

        agree = lambda c: 16 * (sum(c.values()) - c["misses"]) == found and sum(c.values()) == asked
        try:
            wait_until("the counts add up", lambda: agree(counts()), 20)
        except AssertionError:
            raise AssertionError(f"{counts()}, but {asked} blocks were asked for and {found} tokens found") from None
        text = metrics_of(cluster)
        for tier in ("device", "dram", "ssd", "remote"):
            assert hit_blocks(text, tier) == counts()[f"hits_{tier}"], (tier, counts(), text)
        return counts()

    with Cluster() as cluster:
        client = one_server(cluster, *SLOW, *DEVICE)
        blocks = [(client.json("POST", "/tokenize", {"prompt": p})[1]["count"] - 1) // 16 for p in few]
        asked = found = 0
        for _ in range(2):
            found += ask_all(client, few, at_once=1)
            asked += sum(blocks)
        seen = counted(client, asked, found)
        assert found == 16 * sum(blocks) and seen["hits_device"] == sum(blocks) == seen["misses"], (seen, found, blocks)
        print(f"     room for all: {seen}", flush=True)
    with Cluster() as cluster:
        client = one_server(cluster, *SLOW, *DEVICE, "--device-kv", "1MiB", "--cache-dram", "1MiB", "--ssd-path",
                            os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", "write_back", "--prefetch-threshold", "0",
                            "--prefetch", "wait_complete")
        asked = found = 0
        for i in range(4):
            found += ask_all(client, few + few[-2:], at_once=1)
            asked += sum(blocks) + sum(blocks[-2:])
        seen = counted(client, asked, found)
        assert seen["hits_device"] > 0 and seen["hits_dram"] + seen["hits_ssd"] > 0, seen
        nothing_is_held(cluster, client)
        print(f"     none large enough: {seen}", flush=True)


def every_order_of_pages_gives_the_same_tokens_with_every_policy():
    """Each order with each policy of the device and each of the SSD, over tiers that are all too small; alone and six at once."""
    few = PROMPTS[:10]  # 170 blocks: the device holds 64, memory 128
    learn(few, model=SLOW)
    on_ssd = loaded = 0
    policies = ("write_through", "write_through_selective", "write_back")
    for i, layout in enumerate(("page_first_direct", "page_first", "layer_first")):
        for j, policy in enumerate(policies):
            of_disk = policies[(i + j) % 3]
            with Cluster() as cluster:
                client = one_server(cluster, *SLOW, "--device", "linked", "--device-write-policy", policy, "--l2-layout", layout,
                                    "--device-kv", "1MiB", "--cache-dram", "1MiB", "--ssd-path", os.path.join(cluster.folder.name, "ssd"),
                                    "--cache-write-policy", of_disk, "--cache-selective-hits", "2", "--prefetch-threshold", "0",
                                    "--prefetch", "wait_complete")
                found = ask_all(client, few, at_once=1)
                found += ask_all(client, few)
                found += ask_all(client, few[-2:] * 2, at_once=1)  # found in every case
                assert found > 0, (layout, policy, of_disk)
                nothing_is_held(cluster, client)
                seen, shown = device(client), shard(client)
            on_ssd, loaded = on_ssd + shown["hits_ssd"], loaded + seen["loaded_bytes"]
            print(f"     {layout}, {policy} over {of_disk}: {found} tokens found, {shown['hits_ssd']} blocks on SSD, "
                  f"{seen['loaded_bytes']} bytes loaded, {seen['stored_bytes']} written", flush=True)
    assert on_ssd > 0 and loaded > 0, (on_ssd, loaded)


def a_request_that_lost_its_place_on_the_device_goes_on_from_memory():
    """Six answers grow until the device cannot hold them: what they had is loaded again, and nothing is computed twice."""
    learn(PROMPTS[:6], 180)
    with Cluster() as cluster:
        client = one_server(cluster, *SMALL, *DEVICE, "--device-kv", "1MiB")
        assert ask_all(client, PROMPTS[:6], 180) == 0
        wait_until("the node reported", lambda: client.cluster()["counters"]["finished"] == 6 and device(client)["loaded_bytes"] > 0)
        counters, seen = client.cluster()["counters"], device(client)
        assert counters["placed"] == 6, counters  # no second attempt
        assert seen["stored_bytes"] > 0 and seen["loaded_tokens"] > 0, seen
        nothing_is_held(cluster, client)
        print(f"     {seen['stored_bytes']} bytes left the device, {seen['loaded_bytes']} came back", flush=True)


def shards_of(client):
    return [s for s in client.cluster()["shards"] if s["slots_total"] > 0]


def two_nodes(cluster, *args):
    """Conductor and gateway, and two nodes that prefill and decode, each with a device of its own. Whoever is said to hold most of a
    prompt gets it."""
    port, control = free_port(), free_port()
    cluster.start("front", "--role", "conductor,gateway", "--policy", "cache_aware", "--http", f"127.0.0.1:{port}", "--listen",
                  f"127.0.0.1:{control}", "--metrics-listen", "127.0.0.1:0", *args)
    for name in ("one", "other"):
        cluster.start(name, "--role", "prefill,decode", "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", "--data-listen",
                      "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *args, *DEVICE)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_until("both are members", lambda: len(shards_of(client)) == 2, 60)
    wait_until("the nodes know each other", lambda: all(
        cluster.processes[n].output().count(" peer up ") >= 2 for n in ("one", "other")), 60)
    return client


def the_next_turn_goes_to_the_node_whose_device_has_the_session():
    """Memory is never written, so nothing but the devices' own blocks can be found; and with decode on whichever node, KV that only a
    device has goes there, too."""
    few = [p + p[3:175] for p in PROMPTS[:8]]  # some 20 times as long as what the next turn adds
    turns = [p + "Then" for p in few]
    learn(few + turns, model=SLOW)
    for mode in ("coupled", "disaggregated"):
        with Cluster() as cluster:
            client = two_nodes(cluster, *SLOW, "--mode", mode)
            assert ask_all(client, few) == 0
            cluster.wait_idle()
            shards = lambda: shards_of(client)
            alone = mode == "coupled"  # else some was decoded on the other node, by way of memory
            wait_until("the blocks are announced", lambda: sum(s["indexed"] for s in shards()) >= 25 * len(few))
            assert not alone or all(s["slots_committed"] == 0 for s in shards()), shards()
            first = [r["prefill"].split("/")[0] for r in client.cluster()["recent"]]
            assert len(set(first)) == 2, first
            found = [ask(client, turn) for turn in turns]
            assert min(found) >= 400, found
            second = [r["prefill"].split("/")[0] for r in client.cluster()["recent"]][:len(turns)]
            assert not alone or (sorted(second) == sorted(first) and all(s["slots_committed"] == 0 for s in shards())), (first, second)
            cluster.wait_idle()
        print(f"     {mode}: {found} tokens found", flush=True)


def a_full_ssd_gives_up_what_another_node_keeps():
    """One node's disk holds six prompts of its own and six that the other has, too. When it gets full it gives up of the latter, though
    the others are longer and all were used last at the same time; and no prompt is lost that one of them had."""
    own = [f"{i}: mine alone. " + "the tide comes in and goes out again. " * 8 for i in range(6)]
    both = [f"{i}: everybody's. " + "and the moon pulls. " * 8 for i in range(6)]
    fresh = [f"{i}: later. " + "a gull. " * 8 for i in range(60)]  # some of them go to the other node
    model = ("--model", "dummy:layers=4,dim=128,heads=4,kv_heads=4,head_dim=128,ffn=128,vocab=512", *REST)
    learn(own + both + fresh, model=model)
    cached = (*model, "--cache-dram", "8MiB", "--prefetch-threshold", "0", "--prefetch", "wait_complete", "--cache-write-policy", "write_through",
              "--no-ssd-pack")
    blocks_of_mib = 8  # a block: 4 layers, keys and values, 4 heads of 128, 16 tokens, 2 bytes each
    with Cluster() as cluster:
        folder = lambda name: os.path.join(cluster.folder.name, "ssd-" + name)
        held = {}
        for name, prompts in (("one", own + both), ("other", both)):
            client = one_server(cluster, *cached, "--ssd-path", folder(name), name=f"first-{name}")
            ask_all(client, prompts, at_once=1)
            cluster.wait_idle()
            cluster.processes.pop(f"first-{name}").stop()
            again = one_server(cluster, *cached, "--ssd-path", folder(name), name=f"count-{name}")
            held[name] = wait_until("it is on the SSD", lambda: shard(again)["ssd_blocks"], 60)
            cluster.processes.pop(f"count-{name}").stop()
        port, control = free_port(), free_port()
        cluster.start("front", "--role", "conductor,gateway", "--policy", "random", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", "--metrics-listen", "127.0.0.1:0", *model)
        for name in ("one", "other"):
            cluster.start(name, "--role", "prefill,decode", "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", "--data-listen",
                          "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *cached, "--ssd-path", folder(name), "--ssd-size",
                          f"{-(-held['one'] // blocks_of_mib)}MiB")
        client = cluster.wait_healthy("127.0.0.1", port)
        of = lambda name: next(s for s in client.cluster()["shards"] if s["node"] == cluster.processes[name].node())
        wait_until("both are members", lambda: len(shards_of(client)) == 2, 60)
        copies = wait_until("it knows what the other keeps", lambda: of("one")["ssd_copies"], 60)
        for prompt in fresh:
            if of("one")["ssd_copies_dropped"] >= copies // 2:
                break
            ask(client, prompt)
            cluster.wait_idle()
            asked = time.monotonic()
            silent = lambda: next(n["silent_s"] for n in client.cluster()["nodes"] if n["name"] == cluster.processes["one"].node())
            wait_until("it reported since", lambda: silent() < time.monotonic() - asked)
        seen = of("one")
        assert seen["ssd_last_copies_kept"] > 0 and seen["ssd_copies_dropped"] >= copies // 2, seen
        assert seen["ssd_evictions"] == seen["ssd_copies_dropped"], seen
        print(f"     {copies} of {held['one']} blocks were the other's, too: {seen['ssd_copies_dropped']} left, no other did", flush=True)


TESTS = [what_only_the_device_held_survives_a_planned_stop, every_tier_too_small_gives_the_same_tokens,
         what_was_found_in_each_tier_adds_up_to_the_prompts, every_order_of_pages_gives_the_same_tokens_with_every_policy,
         a_request_that_lost_its_place_on_the_device_goes_on_from_memory,
         the_next_turn_goes_to_the_node_whose_device_has_the_session, a_full_ssd_gives_up_what_another_node_keeps]

if __name__ == "__main__":
    main(TESTS)
