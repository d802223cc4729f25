#!/usr/bin/env python3
"""Every word that --policy, --admission, --cache-eviction, --cache-write-policy, --l2-layout, --device and
--device-write-policy take, in a server that answers.

The model is small and random: whatever is chosen, the tokens must be the same, nothing may be held in the end, and
what sets the choices apart must be seen where a client can see it.
"""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402

SMALL = ("--model", "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512", "--prefill-instances", "2",
         "--threads", "1")
PROMPTS = [f"{i}: " + "the tide comes in and goes out again. " * 6 for i in range(12)]

_expected = {}


def ask(client, prompt, **fields):
    return client.complete(prompt=prompt, temperature=0, max_tokens=6, ignore_eos=True, **fields)


def check_answers(client, prompts=PROMPTS):
    """Every prompt is answered as it always is. Returns how many tokens came out of the cache."""
    cached = 0
    for prompt in prompts:
        body = ask(client, prompt)
        assert text_of(body) == _expected.setdefault(prompt, text_of(body)), (prompt[:4], body)
        cached += body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def shard(client):
    return client.cluster()["shards"][0]


def every_placement_policy_serves():
    for policy in ("random", "load_balancing", "cache_aware", "kvcache_centric"):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, "--policy", policy)
            assert check_answers(client) == 0, policy
            assert check_answers(client) >= 64 * len(PROMPTS), policy
            used = {r["prefill"] for r in client.cluster()["recent"]}
            if policy == "random":  # all on one of two instances: once in 2^23 runs
                assert len(used) == 2, used
            counters = client.cluster()["counters"]
            assert counters["placed"] == counters["finished"] == 2 * len(PROMPTS), counters
            cluster.wait_idle()
        print(f"     {policy}: prefill on {len(used)} of 2 instances", flush=True)


def every_admission_mode_serves_what_can_be_served_in_time():
    refusing = {"none": False, "baseline": True, "early": True, "predictive": True, "per_request": True, "priced": True,
                "queue": False, "adaptive": False}  # adaptive begins as queue
    # 6,000 tokens cannot be computed in the millisecond that this request allows.
    impossible = {"prompt": "x" * 6000, "max_tokens": 2, "ttft_slo_ms": 1}
    for mode, refuses in refusing.items():
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, "--admission", mode)
            check_answers(client)
            status, _, data = client.request("POST", "/v1/completions", impossible)
            assert status == 200, f"{mode}: alone on an instance, and refused: {data}"
            # Many at once: whoever meets an instance at work is refused, where that is what the mode does.
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                answers = list(pool.map(lambda i: client.request("POST", "/v1/completions", {
                    **impossible, "prompt": f"{i}" + "x" * 6000}), range(24)))
            refused = [headers for status, headers, _ in answers if status == 429]
            print(f"     {mode}: {len(refused)} of 24 that ask for the impossible at once are refused", flush=True)
            assert {status for status, _, _ in answers} <= {200, 429}, answers
            assert bool(refused) == refuses and len(refused) < 24, (mode, len(refused))
            assert all(int(headers["Retry-After"]) >= 1 for headers in refused), refused
            counters = client.cluster()["counters"]
            by_stage = counters["rejected_ttft"] + counters["rejected_tbt"] + counters["rejected_at_decode"]
            assert by_stage == len(refused), (mode, counters)
            check_answers(client)
            cluster.wait_idle()


def every_eviction_order_keeps_what_fits_and_the_right_tokens():
    for order in ("lru", "lfu", "length_aware"):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, "--cache-eviction", order, "--cache-dram", "2MiB",
                                "--block-tokens", "16")
            slots = shard(client)["slots_total"]
            rounds = 2 + slots // (len(PROMPTS) * 12)
            for i in range(rounds):
                check_answers(client, [f"{i} " + p for p in PROMPTS])
            evictions = wait_until(f"{order} evicted", lambda: shard(client)["evictions"], 30)
            # What was used last is held in any order.
            latest = f"{rounds - 1} " + PROMPTS[-1]
            assert ask(client, latest)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, order
            assert shard(client)["consistent"]
            cluster.wait_idle()
        print(f"     {order}: {evictions} evictions from {slots} slots", flush=True)


def every_write_policy_writes_when_it_says():
    for policy in ("write_back", "write_through", "write_through_selective"):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, "--cache-write-policy", policy, "--ssd-path",
                                os.path.join(cluster.folder.name, "ssd"), "--cache-selective-hits", "3")
            on_ssd = lambda: shard(client)["ssd_blocks"]
            blocks = lambda: shard(client)["slots_committed"]
            check_answers(client)
            wait_until("blocks are committed", blocks, 30)
            if policy == "write_through":
                wait_until("what was committed is on the SSD", lambda: on_ssd() >= blocks(), 30)
            else:
                assert on_ssd() == 0, (policy, on_ssd())
            check_answers(client, PROMPTS[:4])
            check_answers(client, PROMPTS[:4])
            if policy == "write_through_selective":
                wait_until("what was used three times is on the SSD", lambda: on_ssd() >= 4, 30)
                assert on_ssd() < blocks(), "what was used once went to the SSD, too"
            elif policy == "write_back":
                assert on_ssd() == 0, on_ssd()
            cluster.wait_idle()
        print(f"     {policy}: as it says", flush=True)


def every_device_gives_the_same_tokens():
    # 12 prompts of about 280 tokens and a device that holds four: what is decoded together takes turns there.
    small = ("--device", "linked", "--device-kv", "1MiB", "--context-length", "512", "--block-tokens", "16")
    slow = ("--link-bandwidth", "64MiB", "--link-latency", "1ms")
    long = ["and " + p + "the moon pulls. " * 3 for p in PROMPTS]
    with Cluster() as cluster:
        check_answers(one_server(cluster, *SMALL, "--device", "host"), PROMPTS + long)
    for name, choice in (("linked", ("--device", "linked")), ("small and slow", small + slow),
                         ("one engine", small + ("--copy-engines", "1")),
                         ("pages by token", small + ("--l2-layout", "page_first")),
                         ("pages by layer", small + ("--l2-layout", "layer_first"))):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, *choice)
            for _ in range(2):  # computed, then loaded from the host's blocks
                with concurrent.futures.ThreadPoolExecutor(12) as pool:
                    cached = sum(pool.map(lambda prompt: check_answers(client, [prompt]), PROMPTS + long))
            assert cached >= 64 * len(PROMPTS), cached
            assert shard(client)["consistent"]
            cluster.wait_idle()
            seen = lambda: client.cluster()["devices"][0]
            wait_until("the node reported its passes", lambda: seen()["hit_tokens"] + seen()["loaded_tokens"] > cached)
            device = seen()
            if name == "linked":  # it holds all of it: nothing that was computed on it comes over the link again
                assert device["loaded_bytes"] == 0, device
            else:
                assert device["loaded_bytes"] > 0 and device["blocks_used"] <= device["blocks"], device
            assert device["hit_tokens"] > 0 and device["stored_bytes"] > 0, device
        print(f"     {name}: {cached} tokens out of the cache, {device['hit_tokens']} read on the device, "
              f"{device['loaded_tokens']} loaded", flush=True)


def every_device_write_policy_brings_kv_to_memory_when_it_says():
    long = [p + "and the moon pulls. " * 3 for p in PROMPTS]
    large = ("--device", "linked", "--block-tokens", "16")
    small = large + ("--device-kv", "1MiB", "--context-length", "512")  # holds 512 tokens for those who wait, and 512
    device = lambda client: client.cluster()["devices"][0]

    def ask_all(client, prompts):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            return sum(pool.map(lambda prompt: check_answers(client, [prompt]), prompts))

    for policy in ("write_through", "write_back", "write_through_selective"):
        with Cluster() as cluster:
            client = one_server(cluster, *SMALL, *large, "--device-write-policy", policy)
            assert ask_all(client, long) == 0
            assert ask_all(client, long) >= 64 * len(long), policy  # found, wherever it lies
            if policy == "write_through":
                wait_until("the node reported", lambda: shard(client)["slots_committed"] > 0, 30)
                assert device(client)["unwritten_blocks"] == 0, device(client)
            elif policy == "write_back":  # the device holds all of it: nothing had to leave
                wait_until("the node reported", lambda: device(client)["unwritten_blocks"] > 0, 30)
                assert shard(client)["slots_committed"] == 0 and device(client)["stored_bytes"] == 0, device(client)
            else:  # two more requests have used it than computed it
                ask_all(client, long)
                wait_until("what is used often is in memory",
                           lambda: shard(client)["slots_committed"] > 0 and device(client)["stored_bytes"] > 0, 30)
            cluster.wait_idle()
            wait_until("nothing is reserved", lambda: shard(client)["slots_reserved"] == 0, 30)
            assert shard(client)["consistent"], shard(client)
        print(f"     {policy}: as it says", flush=True)
    with Cluster() as cluster:  # a device that holds four prompts, over memory that holds all
        client = one_server(cluster, *SMALL, *small, "--device-write-policy", "write_back")
        for prompt in long:  # one after the other: what has to leave can be written before
            check_answers(client, [prompt])
            wait_until("the coldest is in memory", lambda: device(client)["unwritten_blocks"] <= device(client)["blocks"] * 7 // 8,
                       30)
        cached = check_answers(client, long)
        wait_until("the node reported", lambda: shard(client)["slots_committed"] > 0, 30)
        assert cached >= 32 * len(long), cached
        ask_all(client, long)
        cluster.wait_idle()
        wait_until("nothing is reserved", lambda: shard(client)["slots_reserved"] == 0, 30)
        assert shard(client)["consistent"], shard(client)
        print(f"     a small device: {cached} tokens found, {device(client)['lost_blocks']} blocks lost, "
              f"{device(client)['stored_bytes']} bytes written", flush=True)


def kv_travels_between_devices_of_both_kinds():
    for prefill, decode in (("linked", "host"), ("host", "linked")):
        with Cluster() as cluster:
            control, port = free_port(), free_port()
            own = ("--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0")
            cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                          f"127.0.0.1:{control}", *SMALL, *own)
            for role, device in (("prefill", prefill), ("decode", decode)):
                cluster.start(role, "--role", role, "--device", device, "--join", f"127.0.0.1:{control}", *SMALL, *own)
            client = cluster.wait_healthy("127.0.0.1", port)
            check_answers(client)
            assert check_answers(client) >= 64 * len(PROMPTS)
            cluster.wait_idle()
        print(f"     prefill on {prefill}, decode on {decode}: as on one host", flush=True)


TESTS = [every_placement_policy_serves, every_admission_mode_serves_what_can_be_served_in_time,
         every_eviction_order_keeps_what_fits_and_the_right_tokens, every_write_policy_writes_when_it_says,
         every_device_gives_the_same_tokens, every_device_write_policy_brings_kv_to_memory_when_it_says,
         kv_travels_between_devices_of_both_kinds]

if __name__ == "__main__":
    main(TESTS)
