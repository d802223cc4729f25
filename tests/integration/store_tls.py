#!/usr/bin/env python3
"""The object store's links over TCP: nothing on them can be read, strangers hold up nobody, and other tests of the store hold over them."""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
import store  # noqa: E402
import store_faults  # noqa: E402
import store_tenants  # noqa: E402
import store_world  # noqa: E402
from cluster import Cluster, main, wait_until  # noqa: E402
from store_proxy import Proxy  # noqa: E402
from store_world import UNREACHABLE, noise, package, ready  # noqa: E402

TLS_HANDSHAKE = b"\x16\x03"


class Listener(Proxy):
    """Keeps what goes over each connection, by who said it."""

    def __init__(self, *args):
        self.heard = {}  # socket -> what came from it; one that is closed stays
        super().__init__(*args)

    def passes(self, one, got):
        self.heard[one] = self.heard.get(one, b"") + got


def test_nothing_that_clients_and_holders_say_can_be_read_on_the_way():
    with Cluster() as cluster:
        world = store_tenants.World(cluster, segments=0, shards=2)
        tap = Listener(world.port, store_world.HOST)
        tapped = f"127.0.0.1:{tap.port}"
        holder = world.start("holder", "store", "mount", "--name", "name-of-a-segment", "--size", "16MiB", "--directory", tapped,
                             "--cluster-secret-file", world.secret)
        ready(holder)
        world.at = tapped
        ours, red = world.client(), world.of("red")
        for who, key in ((ours, "prompt-of-somebody"), (red, "prompt-of-red")):
            assert who.put(key, noise(3000, 1)) == 0 and who.get(key) == noise(3000, 1) and who.is_exist(key) == 1
            assert who.put_batch([f"{key}-{i}" for i in range(20)], [noise(64, i) for i in range(20)]) == 0
        assert "prompt-of-somebody-7" in [o["key"] for o in world.json("ls")]
        ours.close()
        red.close()
        said = list(tap.heard.values())
        assert len(said) >= 8 and sum(map(len, said)) > 10_000, "the links of holder, clients and command line, both ways"
        assert all(s.startswith(TLS_HANDSHAKE) for s in said), [s[:2] for s in said]
        hidden = (b"prompt-of", b"name-of-a-segment", b"the token of", b"a secret of this test")
        assert not [h for h in hidden for s in said if h in s]
        tap.close()


def test_who_comes_back_after_a_cut_is_let_in_again():
    with Cluster() as cluster:
        world = store_world.Store(cluster, segments=1, recovery="1s")
        tap = Listener(world.port, store_world.HOST)
        world.at = f"127.0.0.1:{tap.port}"
        client = world.client()
        assert client.put("key", noise(1000, 1)) == 0
        for i in range(5):
            tap.cut()
            wait_until("the client has another link", lambda: client.is_exist("key") == 1, 20)
            assert client.get("key") == noise(1000, 1) and client.put(f"key-{i}", b"value") == 0
        client.close()
        tap.close()


def test_strangers_hold_up_nobody_and_are_shown_out():
    with Cluster() as cluster:
        world = store_world.Store(cluster, segments=1)
        client = world.client()
        assert client.put("key", b"value") == 0
        began = time.monotonic()
        strangers = []
        for i in range(200):
            s = socket.create_connection((store_world.HOST, world.port), 20)
            strangers.append(s)
            try:
                s.sendall((b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", noise(500, i), b"\x16")[i % 5])
            except OSError:
                pass
            if i % 20 == 0:
                assert client.get("key") == b"value"
        # Five seconds for each; the rest is this machine's.
        for s in strangers:
            s.settimeout(60)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            s.close()
        assert time.monotonic() - began < 60
        assert client.get("key") == b"value" and world.client().get("key") == b"value"
        client.close()


def test_another_secret_is_refused_with_words():
    from mooncaf.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = store_world.Store(cluster, segments=1)
        world.secret = store_tenants.kept(os.path.join(world.folder, "other"), "the secret of another cluster, 0123\n")
        assert b"another cluster secret, or a token" in store_tenants._complaint(world, "segments")
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        stranger = MooncakeDistributedStore()
        assert stranger.setup("x", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", world.at) == UNREACHABLE
        assert "another cluster secret" in stranger.last_error()


TESTS = (
    test_nothing_that_clients_and_holders_say_can_be_read_on_the_way,
    test_who_comes_back_after_a_cut_is_let_in_again,
    test_strangers_hold_up_nobody_and_are_shown_out,
    test_another_secret_is_refused_with_words,
    store.test_two_processes_share_objects,
    store.test_what_is_drained_stays_so_when_the_directory_is_killed,
    store_faults.test_a_client_killed_in_the_middle_of_a_put_leaves_nothing,
    store_faults.test_clients_go_on_through_kills_of_the_directory,
    store_faults.test_what_was_stored_is_there_again_after_the_directory_was_killed,
    store_faults.test_who_mounts_waits_for_its_directory,
    store_tenants.test_tenants_share_a_store_and_nothing_else,
    store_tenants.test_who_is_no_tenant_is_told_so,
)

if __name__ == "__main__":
    store_world.HOST = "127.0.0.2"
    package()
    main(TESTS)
