#!/usr/bin/env python3
"""Tests of the object store again, over a directory in three shards: those that do not count on one shard's room. And what goes over several of them: groups, chains, quotas."""
import http.client
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
import store  # noqa: E402
import store_faults  # noqa: E402
import store_ssd  # noqa: E402
import store_tenants  # noqa: E402
import store_world  # noqa: E402
from cluster import Cluster, free_port, main, wait_until  # noqa: E402
from store_world import Store, noise, package, ready  # noqa: E402


def test_another_number_of_shards_is_another_store():
    with Cluster() as cluster:
        world = Store(cluster, segments=2, size="30MiB", ssd="64MiB", mount=("--write-policy", "write_through"))
        client = world.client()
        keys = [f"k{i}" for i in range(50)]
        assert client.put_batch(keys, [noise(5000, i) for i in range(50)]) == 0
        assert {s["name"]: s["bytes"] for s in world.json("segments") if s["medium"] == "dram"} == {"s0": 30 << 20, "s1": 30 << 20}
        wait_until("all is on SSD", lambda: world.json("stat")["ssd_objects"] == 50)
        for shards, found in ((3, 50), (2, 0), (3, 0), (1, 0), (3, 0)):
            world.directory.kill9()
            args = world.directory.args = list(world.directory.args)
            args[args.index("--shards") + 1] = str(shards)
            world.directory.start()
            ready(world.directory)
            wait_until("all is mounted again", lambda: len(world.json("segments")) == 4 and world.json("stat")["capacity_bytes"] == (56 if shards == 2 else 60) << 20)
            wait_until("the client is back", lambda: client.put(f"with {shards}", b"x") == 0)
            assert client.batch_is_exist(keys) == [int(found > 0)] * 50, shards
        client.close()


def test_groups_and_parents_go_over_all_shards_from_python_command_line_and_http():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="24MiB", lease="200ms")
        client, port = world.client(), free_port()
        ready(world.start("http", "store", "http", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen", f"127.0.0.1:{port}"))
        together = ReplicateConfig()
        keys = [f"g{i}" for i in range(12)]
        together.group_ids, together.parents = ["group"] * len(keys), [""] + keys[:-1]
        assert client.put_batch(keys, [noise(1000, i) for i in range(len(keys))], together) == 0
        world.run("put", "by command", "--group", "group", "--parent", keys[-1], stdin=b"x")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", "/objects/by-http?group=group&parent=g3", b"x")
        assert connection.getresponse().status == 201
        keys += ["by command", "by-http"]
        assert client.batch_is_exist(keys) == [1] * len(keys)
        large, n = noise(1 << 20, 1), 0
        while client.is_exist(keys[5]) == 1:  # which leases it, and what goes with it
            threading.Event().wait(0.25)
            for n in range(n, n + 24):
                client.put(f"large {n}", large)
        assert client.batch_is_exist(keys) == [0] * len(keys)
        client.close()


TESTS = (
    test_groups_and_parents_go_over_all_shards_from_python_command_line_and_http,
    test_another_number_of_shards_is_another_store,
    store.test_a_model_s_layers_come_and_go_one_by_one,
    store.test_coroutines_share_a_store,
    store.test_every_form_of_put_and_get_moves_the_same_bytes,
    store.test_tasks_copy_and_move_what_others_wrote,
    store.test_two_processes_share_objects,
    store.test_what_is_drained_stays_so_when_the_directory_is_killed,
    store.test_what_lies_in_a_drained_segment_outlives_its_process,
    store_faults.test_clients_go_on_through_kills_of_the_directory,
    store_faults.test_what_replaced_an_object_is_what_is_there_after_the_directory_was_killed,
    store_faults.test_what_was_stored_is_there_again_after_the_directory_was_killed,
    store_faults.test_who_mounts_waits_for_its_directory,
    store_ssd.test_a_directory_without_notes_takes_nothing_that_it_cannot_know_of,
    store_ssd.test_what_is_on_ssd_outlives_kills_of_everybody_in_any_order_and_what_was_removed_does_not,
    store_tenants.test_tenants_share_a_store_and_nothing_else,
    store_tenants.test_the_endpoint_takes_tenants_tokens,
    store_tenants.test_who_is_no_tenant_is_told_so,
)

if __name__ == "__main__":
    store_world.SHARDS = 3
    package()
    main(TESTS)
