#!/usr/bin/env python3
"""Memory that a node's KV blocks and the objects of the store share: it goes to whichever is hot, and back."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, Cluster, free_port, main, text_of, wait_until  # noqa: E402
from store_roles import RoleStore  # noqa: E402
from store_world import noise, package  # noqa: E402

MiB = 1 << 20
BLOCK_TOKENS = 64  # a block is 1 MiB
MODEL = ("--model", "dummy:layers=8,dim=512,heads=8,kv_heads=8,head_dim=64,ffn=512,vocab=600,type=q8_0,ctx=1024", "--block-tokens",
         str(BLOCK_TOKENS))
OWN, SHARED = 16 * MiB, 48 * MiB


def memory_of(process, name):
    """Bytes that a memfd of this name takes up, all of them together."""
    folder, seen = f"/proc/{process.process.pid}/fd", {}
    for fd in os.listdir(folder):
        try:
            if name in os.readlink(f"{folder}/{fd}"):
                at = os.stat(f"{folder}/{fd}")
                seen[at.st_ino] = at.st_blocks * 512
        except FileNotFoundError:
            pass
    return sum(seen.values())


def test_memory_goes_to_objects_that_are_hot_then_to_blocks_and_all_is_right_throughout():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = RoleStore(cluster)
        http = free_port()
        node = world.node("node", "--role", "all", "--http", f"127.0.0.1:{http}", "--listen", f"127.0.0.1:{world.control}", "--store-listen",
                          world.at, "--metrics-listen", f"127.0.0.1:{world.scrape}", "--cache-dram", str(OWN) + "B", "--store-dram",
                          str(OWN) + "B", "--store-dram-shared", str(SHARED) + "B", "--store-lease", "200ms", *MODEL)
        client = Client("127.0.0.1", http)
        wait_until("it serves", client.healthy, 60)

        def shared(side):
            return int(world.scraped().get(f'mooncaf_store_shared_bytes{{side="{side}"}}', -1))

        def segment():
            return world.json("segments")[0]

        wait_until("all that is shared is with the blocks", lambda: shared("blocks") == SHARED and segment()["withheld_bytes"] >= SHARED)
        assert shared("objects") == 0 and OWN - MiB <= segment()["bytes"] <= OWN, segment()
        store, hard = world.client(), ReplicateConfig()
        hard.with_hard_pin = True
        pinned = noise(MiB, 10_000)
        assert store.put("pinned", pinned, hard) == 0

        answers = {}

        def ask(n):
            """A prompt of its own; that it was asked before, and what of it lies where, changes nothing of the answer."""
            tokens = [(n * 7919 + i * 104729) % 590 + 5 for i in range(14 * BLOCK_TOKENS + 5)]
            text = text_of(client.complete(prompt=tokens, max_tokens=3, temperature=0))
            assert answers.setdefault(n, text) == text, n

        for n in range(2):
            ask(n)
        # Objects are put, and read again: they need more than their own, and blocks have most of theirs idle.
        count = 0

        def put_some():
            nonlocal count
            for _ in range(4):
                assert store.put(f"k{count}", noise(MiB, count)) == 0
                count += 1
            return shared("objects") >= SHARED - 8 * MiB

        wait_until("objects have it", put_some, 60, every=0)
        assert segment()["bytes"] >= OWN + SHARED - 10 * MiB, segment()
        picture = world.run("segments").decode()
        assert "KV blocks have" in picture or segment()["withheld_bytes"] == 0, picture
        kept = [n for n in range(count) if store.get(f"k{n}") == noise(MiB, n)]
        assert len(kept) * MiB >= (OWN + SHARED) * 0.7, (len(kept), count)
        ask(0)
        assert memory_of(node, "mooncaf-kv") + memory_of(node, "mooncaf-segment") <= 2 * OWN + SHARED + 4 * MiB

        # Now prompts come, ever others, and nobody asks for objects any more.
        asked = 2

        def ask_some():
            nonlocal asked
            ask(asked)
            ask(asked - 2)
            asked += 1
            return shared("blocks") >= SHARED - 8 * MiB

        wait_until("blocks have it", ask_some, 120, every=0)
        assert segment()["bytes"] <= OWN + 10 * MiB, segment()
        assert memory_of(node, "mooncaf-segment") <= OWN + 11 * MiB, memory_of(node, "mooncaf-segment")
        assert store.get("pinned") == pinned
        still = 0
        for n in range(count):  # what is there is whole
            value = store.get(f"k{n}")
            assert value in (b"", noise(MiB, n)), n
            still += value != b""
        assert 0 < still * MiB <= OWN + 10 * MiB, still
        for n in sorted(answers)[-6:]:
            ask(n)
        seen = world.scraped()
        assert int(seen['mooncaf_store_shared_slabs_total{side="objects"}']) >= 20, seen
        assert int(seen['mooncaf_store_shared_slabs_total{side="blocks"}']) >= 10, seen
        def told():
            """Both are asked one after the other, and the boundary may move between."""
            of = segment()
            name = f'mooncaf_store_segment_withheld_bytes{{segment="{of["name"]}",host="{of["host"]}"}}'
            return world.scraped().get(name) == str(of["withheld_bytes"])

        wait_until("the directory's metrics say what it withholds", told, 20)
        wait_until("nothing is held any more", lambda: client.integrity()["idle"])
        shard = client.cluster()["shards"][0]
        assert shard["slots_total"] + shard["slots_withheld"] == (OWN + SHARED) // MiB, shard
        store.close()


def test_a_directory_that_is_killed_leaves_the_boundary_where_it_was():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        conductor = world.conductor(*MODEL)
        node = world.node("node", "--role", "cache", "--name", "node", "--join", f"127.0.0.1:{world.control}", "--metrics-listen", "127.0.0.1:0", "--cache-dram",
                          str(OWN) + "B", "--store-dram", str(OWN) + "B", "--store-dram-shared", str(SHARED) + "B", *MODEL)
        wait_until("it mounts", lambda: world.holders().get("node", 0) > 0)
        wait_until("the shared is withheld", lambda: world.json("segments")[0]["withheld_bytes"] >= SHARED)
        store, count = world.client(), 0

        def put_some():
            nonlocal count
            assert store.put(f"k{count}", noise(MiB, count)) == 0
            count += 1
            return world.holders()["node"] >= OWN + SHARED / 2

        wait_until("objects have half of it", put_some, 60, every=0)
        there = [n for n in range(count) if store.is_exist(f"k{n}") == 1]
        conductor.kill9()
        conductor.start()
        wait_until("it is found again", lambda: store.is_exist(f"k{count - 1}") == 1)
        values = [(n, store.get(f"k{n}")) for n in there]  # some may make way where memory was about full
        assert all(value in (b"", noise(MiB, n)) for n, value in values) and sum(v != b"" for _, v in values) > 0.7 * len(there), len(there)
        wait_until("what blocks have is withheld again", lambda: 0 < world.json("segments")[0]["withheld_bytes"] <= SHARED / 2)
        assert all(store.get(f"k{n}") in (b"", noise(MiB, n)) for n in there)
        assert memory_of(node, "mooncaf-segment") <= OWN + SHARED
        store.close()


def test_what_cannot_be_shared_is_refused_with_a_reason():
    cache = ("--role", "cache", "--join", "127.0.0.1:1", "--store-dram-shared", "64MiB")
    for args, reason in ((cache, b"give --model"),
                         ((*cache, *MODEL, "--store-dram", "0B"), b"--store-dram SIZE"),
                         ((*cache[:-1], "1MiB", *MODEL), b"at least 4MiB"),
                         ((*cache, *MODEL, "--l2-layout", "layer_first", "--data-listen", "127.0.0.1:0"), b"blocks that lie in pieces"),
                         (("--role", "all", "--store-dram-shared", "64MiB", "--device", "linked", *MODEL), b"a device keeps the pages")):
        done = subprocess.run([BINARY, *args], capture_output=True, timeout=30)
        assert done.returncode == 2 and b"store-dram-shared: " in done.stderr and reason in done.stderr, (args, done)


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
