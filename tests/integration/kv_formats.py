#!/usr/bin/env python3
"""KV in integers of 8 and 4 bits: every tier, path and device has the same bytes, so that an answer does not depend on where
its prefix came from, and no node of another format takes part."""
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402
from serving import FETCH_ALL, three_processes  # noqa: E402

PROMPT = "The harbour master wrote down each ship that came in before the storm, its cargo and its captain. " * 20
FORMATS = {"int8": 0.57, "k8v4": 0.44}  # and the share of f16's bytes that a block has, at most
F16_BLOCK = 64 * 30 * 3 * 2 * 64 * 2    # tokens, layers, KV heads, keys and values, dimensions, bytes


def ask(client, text=PROMPT, tokens=40):
    body = client.complete(prompt=text, max_tokens=tokens, temperature=0, ignore_eos=True)
    return text_of(body), body["usage"]["prompt_tokens_details"]["cached_tokens"]


def block_bytes(client):
    """Bytes of a block of KV, of what the SSD holds."""
    wait_until("blocks are on the SSD", lambda: shard(client)["ssd_blocks"] > 4)
    return shard(client)["ssd_bytes"] // shard(client)["ssd_blocks"]


def shard(client):
    return next(s for s in client.cluster()["shards"])


def tokens_are_the_same_from_memory_from_ssd_and_from_another_node():
    for dtype, share in FORMATS.items():
        options = ("--kv-dtype", dtype)
        with Cluster() as cluster:
            folder = os.path.join(cluster.folder.name, "ssd")
            client = one_server(cluster, *options, "--ssd-path", folder, "--cache-write-policy", "write_through",
                                "--prefetch-threshold", "0", "--prefetch", "wait_complete", "--prefill-instances", "1")
            computed, none = ask(client)
            in_memory, some = ask(client)
            assert none == 0 and some > 300, (dtype, none, some)
            assert in_memory == computed, (dtype, computed, in_memory)
            assert block_bytes(client) <= share * F16_BLOCK, (dtype, block_bytes(client))
            process = cluster.processes["all"]
            process.stop()
            process.start()
            wait_until("it serves again", client.healthy)
            from_ssd, some = ask(client)
            assert some > 300 and from_ssd == computed, (dtype, some, computed, from_ssd)
        for path in ((), ("--no-shm",), ("--device", "linked", "--l2-layout", "page_first")):
            with Cluster() as cluster:
                host, port = three_processes(cluster, *options, *path)
                client = cluster.wait_healthy(host, port)
                assert ask(client)[0] == computed, (dtype, path)
                longer = PROMPT + computed
                apart = ask(client, longer)  # of which the decode node alone has the answer's blocks
                assert apart[1] > 300, (dtype, path, apart)
                if not path:
                    reference = apart[0]
                assert apart[0] == reference, (dtype, path, reference, apart[0])
                cluster.wait_idle()


def a_node_of_another_format_is_refused_by_name():
    with Cluster() as cluster:
        port, control = free_port(), free_port()
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", "--metrics-listen", "127.0.0.1:0", "--kv-dtype", "int8")
        other = cluster.start("other", "--role", "prefill", "--prefill-instances", "1", *FETCH_ALL, "--listen",
                              "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--join", f"127.0.0.1:{control}",
                              "--metrics-listen", "127.0.0.1:0")
        wait_until("it is refused", lambda: not other.alive())
        assert "int8" in other.output() and "f16" in other.output(), other.output()


if __name__ == "__main__":
    main([tokens_are_the_same_from_memory_from_ssd_and_from_another_node, a_node_of_another_format_is_refused_by_name])
