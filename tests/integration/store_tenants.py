#!/usr/bin/env python3
"""Tenants of the object store over processes: tokens, keys, quotas, the endpoint, a directory that is killed."""
import http.client
import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import store_world  # noqa: E402
from cluster import Cluster, free_port, main, wait_until  # noqa: E402
from store_world import NOT_FOUND, NOT_SUPPORTED, UNREACHABLE, Store, noise, package, ready  # noqa: E402

QUOTA_EXCEEDED, NOT_REGISTERED = -1700, -1701


def kept(path, text, mode=0o600):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


class World(Store):
    """A store with the tenants `red` and `blue`, and a file with the token of each."""

    def __init__(self, cluster, quota="4MiB", ssd_quota="1GiB", **more):
        self.make_secret()
        self.tokens = {name: kept(os.path.join(self.folder, name), f"the token of {name}, 0123456789\n") for name in ("red", "blue")}
        self.tenants = kept(os.path.join(self.folder, "tenants"), "".join(
            f'[{name}]\ntoken = "the token of {name}, 0123456789"\nquota = "{quota}"\nssd_quota = "{ssd_quota}"\nobjects = 100\n' for name in self.tokens))
        made, self.make_secret = self.make_secret, lambda: None
        super().__init__(cluster, directory=("--tenants-file", self.tenants), **more)
        self.make_secret = made

    def of(self, tenant, mount=0, **more):
        from mooncaf.store import MooncakeDistributedStore

        store = MooncakeDistributedStore()
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", mount, 16 << 20, "tcp", "", self.at, token_file=self.tokens[tenant], **more)
        return store if code == 0 else code

    def run_as(self, tenant, *args, **more):
        return self.run(*args, "--token-file", self.tokens[tenant], **more)


def test_tenants_share_a_store_and_nothing_else():
    with Cluster() as cluster:
        world = World(cluster)
        red, blue = world.of("red", tenant_id="red"), world.of("blue")
        ours, theirs = noise(300_000, 1), noise(200_000, 2)
        assert red.put("key", ours) == 0 and blue.put("key", theirs) == 0 and blue.put("other", theirs) == 0
        assert red.get("key") == ours and blue.get("key") == theirs
        assert red.is_exist("other") == 0 and red.remove("other", True) == NOT_FOUND and red.get("other") == b""
        assert [o["key"] for o in json.loads(world.run_as("red", "ls", "--json"))] == ["key"]
        assert json.loads(world.run_as("blue", "stat", "--json"))["objects"] == 2 and world.json("stat")["objects"] == 3
        assert world.json("ls") == [], "those are nobody's in particular"
        assert {t["name"]: (t["objects"], t["quota_bytes"]) for t in world.json("tenants")} == {"red": (1, 4 << 20), "blue": (2, 4 << 20)}
        assert [t["name"] for t in json.loads(world.run_as("red", "tenants", "--json"))] == ["red"]
        # A value in parts, and several in a batch, go through the endpoints as well.
        assert red.put_batch(["a", "b"], [ours, ours[:7]]) == 0 and red.get_batch(["a", "b"]) == [ours, ours[:7]]
        assert red.remove_by_regex("^[ab]$", True) == 2 and blue.remove_all(True) == 2 and red.get("key") == ours
        # What is over the quota: one's own objects make way, and what no way is left for is refused.
        values = {f"n{i}": noise(1_000_000, i) for i in range(8)}
        assert blue.put("first", theirs) == 0 and all(blue.put(k, v) == 0 for k, v in values.items())
        used = {t["name"]: t["used_bytes"] for t in world.json("tenants")}
        assert 3_000_000 <= used["blue"] <= 4 << 20 and red.get("key") == ours, used
        left = {o["key"] for o in json.loads(world.run_as("blue", "ls", "--json"))} & values.keys()
        assert blue.get("n7") == values["n7"] and len(left) in (3, 4), "with several shards not the oldest ones to the millisecond"
        assert blue.put("too large", bytes(5 << 20)) == QUOTA_EXCEEDED
        # A drained segment's objects move, whoever's they are, and stay his.
        segment = world.json("segments")[0]["name"]
        world.run("drain", segment)
        assert blue.get("n7") == values["n7"] and red.get("key") == ours
        world.run_as("red", "drain", segment, "--undo", status=1)
        world.run("drain", segment, "--undo")
        # Kill the directory: who comes next hears from the holders whose is what.
        cluster.processes["directory"].kill9()
        world.directory = world.start("directory", "store", "directory", "--listen", world.at, "--lease", "10s", "--recovery", "5s",
                                      "--cluster-secret-file", world.secret, "--tenants-file", world.tenants, "--shards", str(store_world.SHARDS))
        ready(world.directory)
        wait_until("it answers again", lambda: red.is_exist("key") == 1, 60)
        wait_until("it does the other", lambda: blue.is_exist("n7") == 1, 60)
        assert red.get("key") == ours and red.is_exist("n7") == 0 and blue.get("n7") == values["n7"]
        assert {t["name"]: t["used_bytes"] for t in world.json("tenants")}["blue"] >= 3_000_000


def test_who_is_no_tenant_is_told_so():
    from mooncaf.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = World(cluster)
        assert world.of("red", tenant_id="blue") == NOT_REGISTERED
        store = MooncakeDistributedStore()
        assert store.setup("x", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", world.at, tenant_id="red") == NOT_REGISTERED, "no token"
        assert world.of("red", mount=1 << 20) == NOT_SUPPORTED, "others' objects would lie there"
        world.tokens["green"] = kept(os.path.join(world.folder, "green"), "a token that nobody gave out\n")
        assert world.of("green") == UNREACHABLE
        world.tokens["open"] = kept(os.path.join(world.folder, "open"), "the token of red, 0123456789\n", 0o644)
        assert world.of("open") == UNREACHABLE
        assert b"lets other users read" in _complaint(world, "segments", "--token-file", world.tokens["open"])
        for text, why in (("[red]\nquota = \"1MiB\"\n", b"has no token"), ("[red]\ntoken = \"short\"\n", b"at least 16 bytes"),
                          ("[red]\ntoken = \"0123456789abcdef\"\n[blue]\ntoken = \"0123456789abcdef\"\n", b"another tenant's"),
                          ("[red]\ntoken = \"0123456789abcdef\"\nquota = \"much\"\n", b"3: red.quota must be a size"), ("", b"has no tenant")):
            bad = kept(os.path.join(world.folder, "bad"), text)
            assert why in _complaint(world, "directory", "--listen", "127.0.0.1:1", "--tenants-file", bad), text


def _complaint(world, *args):
    import subprocess

    from cluster import BINARY

    at = () if args[0] == "directory" else ("--directory", world.at)
    secret = () if "--token-file" in args else ("--cluster-secret-file", world.secret)
    done = subprocess.run([BINARY, "store", *args, *at, *secret], capture_output=True, timeout=60)
    assert done.returncode != 0
    return done.stderr


def test_the_endpoint_takes_tenants_tokens():
    with Cluster() as cluster:
        world = World(cluster)
        port = free_port()
        alone, token = free_port(), kept(os.path.join(world.folder, "http"), "the token of the endpoint, 0123456789\n")
        for name, at, more in (("http", port, ("--token-file", token)), ("alone", alone, ())):
            ready(world.start(name, "store", "http", "--directory", world.at, "--cluster-secret-file", world.secret, "--tenants",
                              "--listen", f"127.0.0.1:{at}", *more))

        def ask(who, method, path, body=None, at=port):
            connection = http.client.HTTPConnection("127.0.0.1", at, timeout=60)
            connection.request(method, path, body, {"Authorization": "Bearer " + who} if who else {})
            answer = connection.getresponse()
            return answer.status, answer.read()

        red, blue = "the token of red, 0123456789", "the token of blue, 0123456789"
        own = "the token of the endpoint, 0123456789"
        assert ask(red, "PUT", "/objects/k", b"red's")[0] == ask(blue, "PUT", "/objects/k", b"blue's")[0] == ask(own, "PUT", "/objects/k", b"ours")[0] == 201
        for path in ("/store/figures", "/metrics", "/segments", "/objects/k"):  # a missing token shows no more than a wrong one, on loopback, too
            assert [ask(who, "GET", path, at=at)[0] for who in ("", "a token that nobody gave out") for at in (port, alone)] == [401] * 4, path
        assert ask(red, "GET", "/objects/k", at=alone)[1] == b"red's" and ask("", "GET", "/health", at=alone)[0] == ask("", "GET", "/store", at=alone)[0] == 200
        assert [ask(who, "GET", "/objects/k")[1] for who in (red, blue, own)] == [b"red's", b"blue's", b"ours"]
        assert ask(red, "DELETE", "/objects/k?force=1")[0] == 200 and ask(red, "GET", "/objects/k")[0] == 404 and ask(blue, "GET", "/objects/k")[0] == 200
        assert ask("a token that nobody gave out", "GET", "/objects/k")[0] == 401 and ask("short", "GET", "/metrics")[0] == 401
        assert ask(red, "PUT", "/objects/large", bytes(5 << 20))[0] == 507
        ours, of_blue = ask(own, "GET", "/metrics")[1].decode(), ask(blue, "GET", "/metrics")[1].decode()
        assert 'mooncaf_store_tenant_objects{tenant="blue"} 1' in ours and 'tenant="red"' in ours and "mooncaf_store_objects 2" in ours
        assert "mooncaf_store_objects 1" in of_blue and 'tenant="red"' not in of_blue and f"mooncaf_store_capacity_bytes {4 << 20}" in of_blue
        quota = "mooncake_tenant_quota_%s_bytes{tenant_id=\"blue\"} %d\n"  # by the names of Mooncake's master
        assert quota % ("used", 64) in ours and quota % ("requested", 4 << 20) in of_blue and quota % ("effective", 4 << 20) in of_blue
        assert 'mooncake_tenant_quota_committed_count{tenant_id="blue"} 1' in ours and f"mooncake_tenant_quota_allocatable_capacity_bytes {4 << 20}" in of_blue
        figures = json.loads(ask(blue, "GET", "/store/figures")[1])
        assert figures["counts"]["objects"] == 1 and sum(s["used_bytes"] for s in figures["segments"]) == 64


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
