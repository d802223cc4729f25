#!/usr/bin/env python3
"""One answer, however it is served: every arrangement of processes, caches, batches and chunks gives the same tokens.

Greedy tokens from a cold cache in one process are the reference. Everything runs the real model over real HTTP.
"""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, free_port, main, text_of, wait_until  # noqa: E402

# Long enough for several blocks of 64 tokens and several chunks; distinct openings, so that nothing is shared by chance.
STORY = ("Once upon a time a small team built a storage system for the memory of machines. They measured everything, "
         "trusted nothing, and wrote down why each part was there. The first version was slow, the second was wrong, "
         "and the third was small enough to understand. ")
PROMPTS = [f"Chapter {i}. " + STORY * (2 + i % 3) + f"In chapter {i + 1}," for i in range(8)]
TOKENS = 24
# The prompts are short: by default nothing of their length is brought from SSD or another node.
FETCH_ALL = ("--prefetch-threshold", "0", "--prefetch", "wait_complete")

_reference = {}


def ask(client, prompt, **fields):
    return client.complete(prompt=prompt, temperature=0, max_tokens=TOKENS, **fields)


def one_process(cluster, *extra, name="all"):
    port = free_port()
    cluster.start(name, "--role", "all", "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0",
                  "--metrics-listen", "127.0.0.1:0", *extra)
    return cluster.wait_healthy("127.0.0.1", port)


def reference():
    """Answers of one process, each prompt alone and from a cold cache."""
    if not _reference:
        with Cluster() as cluster:
            client = one_process(cluster, "--cache-dram", "512MiB")
            for prompt in PROMPTS:
                body = ask(client, prompt)
                assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, body["usage"]
                _reference[prompt] = text_of(body)
            cluster.wait_idle()
    return _reference


def check_all(client, cached=None):
    expected = reference()
    for prompt in PROMPTS:
        body = ask(client, prompt)
        assert text_of(body) == expected[prompt], (prompt[:12], text_of(body), expected[prompt])
        if cached is not None:
            got = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert (got > 0) == cached, (prompt[:12], body["usage"])


def same_tokens_from_cold_and_warm_cache_and_in_a_batch_of_eight():
    expected = reference()
    with Cluster() as cluster:
        client = one_process(cluster)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for prompt, body in zip(PROMPTS, pool.map(lambda p: ask(client, p), PROMPTS)):
                assert text_of(body) == expected[prompt], (prompt[:12], text_of(body), expected[prompt])
        check_all(client, cached=True)
        cluster.wait_idle()


def same_tokens_for_any_chunk_size():
    for chunk in (32, 100, 2048):
        with Cluster() as cluster:
            client = one_process(cluster, "--chunk-tokens", str(chunk), "--max-batch-tokens", str(max(chunk, 64)))
            check_all(client)


def same_tokens_when_one_worker_does_both():
    with Cluster() as cluster:
        check_all(one_process(cluster, "--mode", "coupled"))


def ssd_hits_after(policy, end):
    """Blocks on the SSD serve the next process, however this one ended."""
    folder = tempfile.mkdtemp(prefix="mooncaf-ssd-")
    try:
        with Cluster() as cluster:
            client = one_process(cluster, "--ssd-path", folder, "--cache-write-policy", policy, *FETCH_ALL)
            check_all(client, cached=False)
            end(client, cluster.processes["all"])
            cluster.processes.pop("all")
            client = one_process(cluster, "--ssd-path", folder, "--cache-write-policy", policy, *FETCH_ALL, name="again")
            check_all(client, cached=True)
            shards = client.cluster()["shards"]
            assert sum(s["hits_ssd"] for s in shards) > 0, shards
            assert all(s["ssd_read_bytes_per_s"] > 0 for s in shards), shards
            cluster.wait_idle()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ssd_hits_after_a_kill():
    def written_then_killed(client, process):
        written = lambda: sum(s["ssd_blocks"] for s in client.cluster()["shards"]) >= len(PROMPTS)
        wait_until("the blocks are on the SSD", written, 30)
        process.kill9()

    ssd_hits_after("write_through", written_then_killed)


def ssd_hits_after_a_planned_stop():
    """With write_back nothing is on the SSD until the stop writes it."""
    def stopped(client, process):
        assert sum(s["ssd_blocks"] for s in client.cluster()["shards"]) == 0
        process.stop()

    ssd_hits_after("write_back", stopped)


def three_processes(cluster, *extra, netns=(None, None, None), hosts=("127.0.0.1",) * 3, secret=None):
    """Gateway and conductor, a prefill node, a decode node."""
    port, control = free_port(), free_port()
    more = [*extra, "--metrics-listen", "127.0.0.1:0", *(("--cluster-secret-file", secret) if secret else ())]

    def own(i):
        return ["--listen", f"{hosts[i]}:{control if i == 0 else 0}", "--data-listen", f"{hosts[i]}:0"]

    join = ["--join", f"{hosts[0]}:{control}"]
    cluster.start("front", "--role", "conductor,gateway", "--http", f"{hosts[0]}:{port}", *own(0), *more, netns=netns[0])
    cluster.start("prefill", "--role", "prefill", "--prefill-instances", "1", *FETCH_ALL, *own(1), *join, *more,
                  netns=netns[1])
    cluster.start("decode", "--role", "decode", *own(2), *join, *more, netns=netns[2])
    return hosts[0], port


def bytes_by_path(client):
    moved = {}
    for p in client.cluster()["paths"]:
        moved[p["path"]] = moved.get(p["path"], 0) + p["bytes"]
    return moved


def three_processes_over(path, *extra):
    with Cluster() as cluster:
        host, port = three_processes(cluster, *(("--no-shm",) if path == "tcp" else ()), *extra)
        client = cluster.wait_healthy(host, port)
        check_all(client)
        wait_until(f"bytes were counted on {path}", lambda: bytes_by_path(client).get(path, 0) > 1 << 20)
        assert set(p for p, n in bytes_by_path(client).items() if n) == {path}, bytes_by_path(client)
        check_all(client, cached=True)
        cluster.wait_idle()


def same_tokens_from_three_processes_over_shared_memory():
    three_processes_over("shm")


def same_tokens_from_three_processes_over_tcp():
    three_processes_over("tcp")


def same_tokens_when_kv_leaves_after_the_whole_prompt():
    three_processes_over("shm", "--kv-transfer", "after_prefill")


def a_conversation_hits_what_the_decode_node_computed():
    def two_turns(client, first=None):
        first = first or client.complete(prompt=STORY * 3, temperature=0, max_tokens=200, ignore_eos=True)
        return first, client.complete(prompt=STORY * 3 + text_of(first) + " And then", temperature=0, max_tokens=TOKENS)

    texts = set()
    far = ("--device", "linked", "--l2-layout")
    for order in ((), (*far, "layer_first"), (*far, "page_first")):
        with Cluster() as cluster:
            host, port = three_processes(cluster, *order)
            client = cluster.wait_healthy(host, port)
            # The second turn contains the first answer, whose blocks only the decode node ever had.
            first, body = two_turns(client)
            texts.add(text_of(body))
            usage = body["usage"]
            answered = first["usage"]["prompt_tokens"]
            assert usage["prompt_tokens_details"]["cached_tokens"] > answered, (usage, answered)
            # Shards report twice a second.
            wait_until("blocks were fetched from another node",
                       lambda: sum(s["hits_remote"] for s in client.cluster()["shards"]) > 0)
            # Both the fetch and the hand-over taught what the link costs.
            wait_until("the link has a price", lambda: all(p["learned_bytes_per_s"] > 0 for p in client.cluster()["paths"]
                                                           if p["transfers"] > 0) and client.cluster()["paths"])
            cluster.wait_idle()
    with Cluster() as cluster:  # the second turn again where nothing is cached
        _, alone = two_turns(one_process(cluster), first)
        assert alone["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, alone["usage"]
        assert texts == {text_of(alone)}, (texts, text_of(alone))


def a_model_of_random_weights_serves():
    with Cluster() as cluster:
        client = one_process(cluster, "--model", "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512")
        bodies = [client.complete(prompt="x" * 200, temperature=0, max_tokens=50, ignore_eos=True) for _ in range(2)]
        assert text_of(bodies[0]) == text_of(bodies[1])
        assert bodies[0]["usage"]["completion_tokens"] == 50, bodies[0]["usage"]
        assert bodies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 192, bodies[1]["usage"]
        client.chat([{"role": "user", "content": "hello"}], max_tokens=8)


def same_tokens_through_every_tier_and_write_policy():
    """More prompts than the device holds (1,092 tokens), and than memory does (as many): the rest is on SSD, or computed again."""
    prompts = [f"Volume {i}. " + STORY * 6 for i in range(4)]
    with Cluster() as cluster:
        client = one_process(cluster, "--cache-dram", "512MiB")
        expected = [text_of(ask(client, p)) for p in prompts]
    for policy, layout in (("write_through", "layer_first"), ("write_through_selective", "page_first"),
                           ("write_back", "page_first_direct")):
        with tempfile.TemporaryDirectory(prefix="mooncaf-ssd-") as folder, Cluster() as cluster:
            client = one_process(cluster, "--device", "linked", "--context-length", "1024", "--device-kv", "24MiB", "--cache-dram",
                                 "24MiB", "--ssd-path", folder, "--ssd-size", "1GiB", "--cache-write-policy", policy,
                                 "--l2-layout", layout, *FETCH_ALL)
            assert [text_of(ask(client, p)) for p in prompts] == expected, policy
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                assert [text_of(b) for b in pool.map(lambda p: ask(client, p), prompts)] == expected, policy
            if policy != "write_through_selective":  # nothing is asked for twice while it is in memory
                wait_until("what was read is counted", lambda: client.cluster()["devices"][0]["loaded_tokens"] > 0)
                wait_until("the SSD was read", lambda: client.cluster()["shards"][0]["hits_ssd"] > 0)
            cluster.wait_idle()


def three_long_answers(client):
    """Of the answers' texts, and of the counters: how often a request was placed, its prompt tokens, those of them computed."""
    prompts = [[(i * 7 + j * 13) % 400 + 20 for j in range(600)] for i in range(3)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        bodies = list(pool.map(lambda p: client.complete(prompt=p, max_tokens=2200, temperature=0, ignore_eos=True), prompts))
    wait_until("all are counted", lambda: client.cluster()["counters"]["finished"] == 3)
    k = client.cluster()["counters"]
    return [text_of(b) for b in bodies], k["placed"], k["prompt_tokens"], k["prompt_tokens"] - k["cached_tokens"]


def a_request_that_gave_its_place_back_finds_its_kv_again():
    """Decode runs out of memory: who gives way is placed again, and what it had computed is read, not computed once more."""
    model = ("--model", "dummy:layers=2,dim=64,heads=4,kv_heads=2,ffn=128,vocab=512", "--block-tokens", "16", "--admission", "none")
    with Cluster() as cluster:
        expected, placed, _, computed = three_long_answers(one_process(cluster, *model, "--cache-dram", "64MiB"))
        assert (placed, computed) == (3, 1800), (placed, computed)
    for device in ((), ("--device", "linked", "--device-kv", "1MiB", "--context-length", "4096")):
        with Cluster() as cluster:  # 8,192 tokens of KV, where all three would have 8,400; 4,096 on the device
            client = one_process(cluster, *model, "--cache-dram", "2MiB", *device)
            texts, placed, prompt, computed = three_long_answers(client)
            assert texts == expected
            again, anew = prompt - 1800, computed - 1800
            print(f"     {device[1:2]}: placed {placed - 3} times again with {again} tokens, {anew} of them computed", flush=True)
            assert placed > 3 and again > 600, (placed, prompt)
            assert anew <= again / 2, f"{anew} of {again} tokens were computed again"
            cluster.wait_idle()


TESTS = [
    a_model_of_random_weights_serves,
    same_tokens_from_cold_and_warm_cache_and_in_a_batch_of_eight,
    same_tokens_for_any_chunk_size,
    same_tokens_when_one_worker_does_both,
    ssd_hits_after_a_kill,
    ssd_hits_after_a_planned_stop,
    same_tokens_from_three_processes_over_shared_memory,
    same_tokens_from_three_processes_over_tcp,
    same_tokens_when_kv_leaves_after_the_whole_prompt,
    a_conversation_hits_what_the_decode_node_computed,
    same_tokens_through_every_tier_and_write_policy,
    a_request_that_gave_its_place_back_finds_its_kv_again,
]

if __name__ == "__main__":
    main(TESTS)
