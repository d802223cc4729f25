#!/usr/bin/env python3
"""The object store carried by the roles of a cluster: a conductor with the directory, cache nodes that mount memory in it."""
import os
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, Process, free_port, main, wait_until  # noqa: E402
from store_world import ROOT, Store, noise, package, package_path, ready  # noqa: E402


class RoleStore(Store):
    """The same store, of roles: nothing but `--join` is said to those who mount."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.make_secret()
        self.port, self.control, self.scrape = free_port(), free_port(), free_port()
        self.at = f"127.0.0.1:{self.port}"

    def conductor(self, *more):
        started = self.node("conductor", "--role", "conductor", "--listen", f"127.0.0.1:{self.control}", "--store-listen", self.at,
                            "--metrics-listen", f"127.0.0.1:{self.scrape}", *more)
        ready(started)
        return started

    def cache(self, name, *more):
        return self.node(name, "--role", "cache", "--join", f"127.0.0.1:{self.control}", "--name", name, "--metrics-listen",
                         "127.0.0.1:0", *more)

    def node(self, name, *args):
        process = Process(name, (*args, "--cluster-secret-file", self.secret), self.folder)
        self.cluster.processes[name] = process
        return process

    def holders(self):
        return {s["name"]: s["bytes"] for s in self.json("segments")}

    def scraped(self):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.scrape}/metrics", timeout=30).read().decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_a_cluster_without_a_model_is_a_store():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = RoleStore(cluster)
        first = world.cache("one", "--store-dram", "32MiB")  # before there is anybody to join
        conductor = world.conductor()
        world.cache("two", "--store-dram", "48MiB")
        wait_until("both mount", lambda: world.holders() == {"one": 32 << 20, "two": 48 << 20})
        assert world.scraped()["mooncaf_store_capacity_bytes"] == str(80 << 20)
        store, two = world.client(), ReplicateConfig()
        two.replica_num = 2
        values = {f"k{i}": noise(1000 * i + 1, i) for i in range(60)}
        assert all(store.put(key, value, two) == 0 for key, value in values.items())
        first.kill9()
        wait_until("what the killed one mounted is gone", lambda: world.holders() == {"two": 48 << 20})
        assert all(store.get(key) == value for key, value in values.items())
        first.start()
        wait_until("it mounts again", lambda: len(world.holders()) == 2)
        # The conductor dies, and the directory with it: those who mount tell the next one what they hold.
        conductor.kill9()
        conductor.start()
        ready(conductor)
        wait_until("it is found again", lambda: store.is_exist("k1") == 1)
        assert all(store.get(key) == value for key, value in values.items())
        wait_until("the scrape says so", lambda: world.scraped()["mooncaf_store_recovered_replicas_total"] == str(len(values)))
        store.close()


def test_nodes_that_are_stopped_in_order_hand_over_what_they_alone_have():
    """As in a rolling restart: each in turn, so that without it everything would be lost."""
    with Cluster() as cluster:
        world = RoleStore(cluster)
        world.conductor()
        nodes = {name: world.cache(name, "--store-dram", "32MiB") for name in ("one", "two", "three")}
        wait_until("all mount", lambda: set(world.holders()) == set(nodes))
        store = world.client()
        values = {f"k{i}": noise(40_000 + 1000 * i, i) for i in range(150)}
        assert all(store.put(key, value) == 0 for key, value in values.items())
        for name, node in nodes.items():
            store.put(f"late-{name}", name.encode())
            values[f"late-{name}"] = name.encode()
            node.stop()
            assert name not in world.holders()
            assert all(store.get(key) == value for key, value in values.items()), name
            node.start()
            wait_until(f"{name} mounts again", lambda: set(world.holders()) == set(nodes))
        # Also when nobody has room: it does not take longer than it may.
        for name in ("one", "two"):
            nodes[name].stop()
        began = time.monotonic()
        nodes["three"].stop()
        assert time.monotonic() - began < 10


def test_an_upgrade_and_its_way_back_lose_nothing():
    """Processes that know no later version of the store's protocol than an earlier release are replaced in turn, the directory
    between two holders, by ones of this release; then one goes back."""
    before = ("--store-protocol", "20")
    with Cluster() as cluster:
        world = RoleStore(cluster)
        nodes = {"conductor": world.conductor(*before)}
        for name in ("one", "two", "three"):
            nodes[name] = world.cache(name, "--store-dram", "32MiB", *before)
        wait_until("all mount", lambda: len(world.holders()) == 3)
        store, values = world.client(), {}

        def replaced(name, args):
            nodes[name].args = args
            nodes[name].stop()
            nodes[name].start()
            ready(nodes[name])
            wait_until(f"{name} is back", lambda: len(world.holders()) == 3)
            wait_until("it is found again", lambda: store.is_exist("k0") == 1)
            key = f"put number {len(values)}"
            values[key] = noise(50_000, len(values))
            assert store.put(key, values[key]) == 0
            lost = [key for key, value in values.items() if store.get(key) != value]
            assert not lost, (name, lost)

        def spoken():
            return {s["name"]: (s["protocol"], bool(s["release"])) for s in world.json("segments")}

        values.update({f"k{i}": noise(30_000 + 1000 * i, i) for i in range(60)})
        assert all(store.put(key, value) == 0 for key, value in values.items())
        old, new = (20, False), (22, True)
        assert set(spoken().values()) == {old}, spoken()
        this_release = {name: [a for a in node.args if a not in before] for name, node in nodes.items()}
        for name in ("one", "conductor", "two", "three"):
            replaced(name, this_release[name])
            if name == "conductor":
                assert spoken() == {"one": new, "two": old, "three": old}, spoken()
        assert set(spoken().values()) == {new}, spoken()
        replaced("two", [*this_release["two"], *before])
        assert spoken() == {"one": new, "two": old, "three": new}, spoken()
        store.close()


def test_a_cache_s_ssd_keeps_what_its_memory_has_no_room_for_through_kills():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        conductor = world.conductor()
        cache = world.cache("one", "--store-dram", "8MiB", "--store-ssd-path", world.ssd_path(0), "--store-ssd-size", "64MiB",
                            "--store-write-policy", "write_through")
        wait_until("it mounts both", lambda: world.holders() == {"one": 8 << 20, "one/ssd": 64 << 20})
        store = world.client()
        values = {f"k{i}": noise(200_000, i) for i in range(80)}
        for i, (key, value) in enumerate(values.items()):
            assert store.put(key, value) == 0
            if i % 8 == 7:  # what comes faster than it can be written stays in memory until it has to leave
                wait_until("they are written", lambda: world.scraped()["mooncaf_store_ssd_writes_total"] == str(i + 1))
        seen = world.scraped()
        assert seen["mooncaf_store_ssd_written_bytes_total"] == str(80 * 200_000), seen
        assert seen["mooncaf_store_ssd_capacity_bytes"] == str(64 << 20) and int(seen["mooncaf_store_ssd_demotions_total"]) > 30
        cache.kill9()
        conductor.kill9()
        conductor.start()
        ready(conductor)
        cache.start()
        wait_until("both are back", lambda: len(world.holders()) == 2)
        wait_until("it is found again", lambda: store.is_exist("k1") == 1)
        assert all(store.get(key) == value for key, value in values.items())
        seen = world.scraped()
        assert seen["mooncaf_store_ssd_recovered_total"] == "80" and int(seen["mooncaf_store_ssd_reads_total"]) >= 80, seen
        assert seen["mooncaf_store_ssd_damaged_total"] == "0" and int(seen["file_cache_hit_nums_"]) >= 80, seen
        store.close()


def test_a_conductor_without_a_model_says_where_its_directory_is():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        alone = world.node("alone", "--role", "conductor,cache", "--listen", f"127.0.0.1:{world.control}", "--store-listen",
                           "127.0.0.1:0", "--store-dram", "16MiB", "--metrics-listen", "127.0.0.1:0")
        ready(alone)
        at = wait_until("the log has the address", lambda: [w for w in alone.output().split() if w.startswith("directory=")])
        world.at = at[0].removeprefix("directory=").strip('"')
        wait_until("it mounts its own memory", lambda: list(world.holders().values()) == [16 << 20])
        world.run("put", "k", stdin=b"value")
        assert world.run("get", "k") == b"value"


def test_nodes_with_and_without_a_model_do_not_mix_and_a_model_s_cluster_may_carry_a_store():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        model = ("--model", "dummy:layers=1,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=600,type=q8_0,ctx=128")
        world.conductor(*model)
        world.node("blocks", "--role", "cache", "--join", f"127.0.0.1:{world.control}", "--metrics-listen", "127.0.0.1:0", "--cache-dram",
                   "16MiB", "--store-dram", "8MiB", *model)
        wait_until("it mounts beside its blocks", lambda: list(world.holders().values()) == [8 << 20])
        stranger = world.cache("stranger", "--store-dram", "8MiB")
        wait_until("it is refused", lambda: not stranger.alive())
        assert "no model" in stranger.output() and "the object store alone" in stranger.output(), stranger.output()
        assert len(world.holders()) == 1


def test_the_conductor_s_directory_takes_the_options_of_the_store_s_own():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        tenants = os.path.join(world.folder, "tenants.toml")
        with open(os.open(tenants, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write('[red]\ntoken = "a token of this test alone, 0123456789"\n')
        token = os.path.join(world.folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("a token of this test alone, 0123456789\n")
        world.conductor("--store-tenants-file", tenants, "--store-lease", "50ms", "--store-high-watermark", "0.5",
                        "--store-low-watermark", "0.3")
        endpoint = free_port()
        world.cache("one", "--store-dram", "32MiB", "--store-endpoint-port", str(endpoint), "--store-location", "row2/rack7")
        wait_until("it mounts", lambda: len(world.holders()) == 1)
        assert world.json("segments")[0]["host"].startswith("row2/rack7/") and b"row2/rack7, on this host" in world.run("segments")
        assert [t["name"] for t in world.json("tenants")] == ["red"]
        world.run("put", "of-red", "--token-file", token, stdin=b"value")  # through the endpoint
        listening = {line.split()[1].split(":")[1] for line in open("/proc/net/tcp").readlines()[1:] if line.split()[3] == "0A"}
        assert f"{endpoint:04X}" in listening and world.run("get", "of-red", "--token-file", token) == b"value"
        for i in range(24):
            world.run("put", f"k{i}", stdin=noise(1 << 20, i))
        wait_until("half of it makes way", lambda: world.json("segments")[0]["used_bytes"] <= 16 << 20)
        assert world.json("stat")["evictions"] > 0
    for args, status, reason in ((("--store-low-watermark", "0.9", "--store-high-watermark", "0.5"), 2, b"store-low-watermark: "),
                                 (("--store-tenants-file", "/nowhere"), 8, b"/nowhere"), (("--store-hot-replicas", "1"), 2, b"out of range")):
        done = subprocess.run([BINARY, "--role", "conductor", *args], capture_output=True, timeout=30)
        assert done.returncode == status and reason in done.stderr, (args, done)
        alone = subprocess.run([BINARY, "store", "directory", *[a.replace("--store-", "--") for a in args]], capture_output=True, timeout=30)
        assert alone.returncode == status, (args, alone)


def test_the_examples_in_python_run_as_printed():
    with Cluster() as cluster:
        world = RoleStore(cluster)
        world.conductor()
        world.cache("one", "--store-dram", "16MiB")
        wait_until("it mounts", lambda: len(world.holders()) == 1)
        env = {**os.environ, "PYTHONPATH": package_path(), "MOONCAF_CLUSTER_SECRET_FILE": world.secret, "MOONCAF_DIRECTORY": world.at}
        for name in ("shared_kv.py", "engine_connector.py"):
            example = ROOT / "examples" / name
            done = subprocess.run([sys.executable, str(example)], env=env, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, (name, done.stderr)
            promised = example.read_text().split("prints\n\n")[1].split("\n\n")[0].split('"""')[0]
            assert [line.strip() for line in promised.strip().splitlines()] == done.stdout.splitlines(), (name, done.stdout)


def test_what_makes_no_sense_is_refused_with_a_reason():
    for args, reason in ((("--role", "cache", "--join", "127.0.0.1:1", "--store-dram", "0B"), b"store-dram: "),
                         (("--role", "conductor", "--store-ssd-path", "/tmp/none"), b"store-ssd-path: "),
                         (("--role", "cache", "--join", "127.0.0.1:1", "--store-listen", "127.0.0.1:0"), b"store-listen: "),
                         (("--role", "conductor", "--store-listen", "0.0.0.0:0"), b"cluster-secret-file: "),
                         (("--role", "gateway", "--join", "127.0.0.1:1"), b"model: ")):
        done = subprocess.run([BINARY, *args], capture_output=True, timeout=30)
        assert done.returncode == 2 and reason in done.stderr, (args, done)


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
