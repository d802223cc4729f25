"""The object store between three hosts (network namespaces of the virtual machine) with Soft-RoCE NICs between them, from Python as an engine uses it.

What went over which path is told by the devices themselves: packets that the NICs sent, and bytes that the plain network between the hosts took.
"""
import ctypes
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

MOONCAF, DIRECTORY, MIB = "/tests/mooncaf", "10.9.1.1:7460", 1 << 20
SECRET = ("--cluster-secret-file", "/tmp/secret")
HOSTS = {"h1": "10.9.1.2", "h2": "10.9.2.2"}
SIZES = (4096, 160 << 10, 1 * MIB, 5 * MIB + 17)
processes = {}


def start(name, *command):
    log = open(f"/tmp/{name}.log", "wb")
    processes[name] = subprocess.Popen(command, stdout=log, stderr=log)


def private(name, text):
    """A file that this user alone may read."""
    path = pathlib.Path("/tmp", name)
    path.touch(0o600)
    path.write_text(text)
    return str(path)


def mount(host, size="48MiB"):
    start(host, "/usr/sbin/ip", "netns", "exec", host, MOONCAF, "store", "mount", "--directory", DIRECTORY, *SECRET, "--name", host, "--size", size,
          "--data-listen", f"{HOSTS[host]}:0")


def until(what, true, limit=60):
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)


def store(**more):
    made = MooncakeDistributedStore()
    code = made.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": DIRECTORY, "protocol": "rdma",
                       "global_segment_size": 0, "local_buffer_size": 4 * MIB, **more})
    assert code == 0, (code, made.last_error())
    return made


def command(*args):
    done = subprocess.run([MOONCAF, "store", args[0], "--directory", DIRECTORY, *SECRET, *args[1:]], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def counted():
    """Packets of the NICs, and bytes of the plain network in both directions."""
    read = lambda path: int(pathlib.Path(path).read_text())  # noqa: E731
    packets = sum(read(f"/sys/class/infiniband/rxe{n}/ports/1/hw_counters/sent_pkts") for n in (0, 1))
    return packets, sum(read(f"/sys/class/net/a{n}/statistics/{way}_bytes") for n in (1, 2) for way in ("rx", "tx"))


class Moved:
    """Holds what a block moves to the path that it is to take."""

    def __init__(self, what, nic=0, plain=None):
        self.what, self.nic, self.plain = what, nic, plain

    def __enter__(self):
        self.before, self.begin = counted(), time.monotonic()

    def __exit__(self, kind, *_):
        if kind is None:
            packets, plain = (now - then for now, then in zip(counted(), self.before))
            took = time.monotonic() - self.begin
            print(f"STORE {self.what}: {took:.2f} s, {packets} packets of the NICs, {plain} bytes of the plain network", flush=True)
            assert packets * 4096 >= self.nic, "the NICs moved it"  # of the port's MTU
            assert self.nic == 0 or plain < 64 * 1024 + self.nic // 20, "nothing of it went another way"
            assert self.plain is None or plain >= self.plain and packets < 64, "no NIC moved it"


class Memory:
    """Of this process, as an engine's pool."""

    def __init__(self, size):
        self.bytes = ctypes.create_string_buffer(size)
        self.at = ctypes.addressof(self.bytes)

    def put(self, offset, value):
        ctypes.memmove(self.at + offset, value, len(value))

    def get(self, offset, size):
        return ctypes.string_at(self.at + offset, size)


def values(seed, sizes=SIZES):
    return {f"{seed}/{n}": random.Random(f"{seed}/{n}").randbytes(n) for n in sizes}


def there(client, wanted):
    for key, value in wanted.items():
        assert client.get(key) == value, key


def pool_of_an_engine(client):
    """Registered buffers: put from and got into by address, one piece or many."""
    pool, wanted = Memory(32 * MIB), values("pool")
    assert client.register_buffer(pool.at, 32 * MIB) == 0
    total, at = sum(map(len, wanted.values())), {}
    for key, value in wanted.items():
        at[key] = sum(len(wanted[k]) for k in at)
        pool.put(at[key], value)
    keys, sizes = list(wanted), [len(v) for v in wanted.values()]
    with Moved("put of registered memory", nic=total):
        assert client.batch_put_from(keys, [pool.at + at[k] for k in keys], sizes) == [0] * len(keys)
    with Moved("get into registered memory", nic=total):
        assert client.batch_get_into(keys, [pool.at + 16 * MIB + at[k] for k in keys], sizes) == sizes
    for key in keys:
        assert pool.get(16 * MIB + at[key], len(wanted[key])) == wanted[key], key
    # A page as engines keep it: of each layer a piece, wherever it lies.
    pieces = [(1 * MIB + 50_000 * i, 9000 + 13 * i) for i in range(60)]
    page = b"".join(pool.get(*piece) for piece in pieces)
    with Moved("put of a page in 60 pieces", nic=len(page)):
        assert client.batch_put_from_multi_buffers(["page"], [[pool.at + o for o, _ in pieces]], [[n for _, n in pieces]]) == [0]
    with Moved("get of a page in 60 pieces", nic=len(page)):
        assert client.batch_get_into_multi_buffers(["page"], [[pool.at + 16 * MIB + o for o, _ in pieces]], [[n for _, n in pieces]]) == [len(page)]
    assert b"".join(pool.get(16 * MIB + o, n) for o, n in pieces) == page
    # Memory that goes back to its owner, and other memory at its place.
    assert client.unregister_buffer(pool.at) == 0
    assert client.register_buffer(pool.at, 8 * MIB) == 0
    assert client.get_into(keys[2], pool.at, 1 * MIB) == 1 * MIB and pool.get(0, 1 * MIB) == wanted[keys[2]]
    assert client.unregister_buffer(pool.at) == 0


def rates(client):
    """16 MiB by 1 MiB, the second of two rounds: through the staging memory, and straight."""
    memory, keys = Memory(16 * MIB), [f"rate/{i}" for i in range(16)]
    places, sizes = [memory.at + i * MIB for i in range(16)], [MIB] * 16
    for how in ("staged", "straight"):
        if how == "straight":
            assert client.register_buffer(memory.at, 16 * MIB) == 0
        for round_ in range(2):
            client.remove_by_regex("^rate/", True)
            begin = time.monotonic()
            assert client.batch_put_from(keys, places, sizes) == [0] * 16
            middle = time.monotonic()
            assert client.batch_get_into(keys, places, sizes) == sizes
            end = time.monotonic()
        print(f"STORE rate {how}: put {16.777 / (middle - begin):.1f} MB/s, get {16.777 / (end - middle):.1f} MB/s", flush=True)
    assert client.unregister_buffer(memory.at) == 0
    client.remove_by_regex("^rate/", True)


def main():
    token = "x" * 43
    tenants = private("tenants.toml", f'[guest]\ntoken = "{token}"\nquota = "8MiB"\n')
    os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = private("secret", os.urandom(32).hex())
    start("directory", MOONCAF, "store", "directory", "--listen", "0.0.0.0:7460", *SECRET, "--tenants-file", tenants, "--recovery", "1s")
    until("the directory", lambda: b" ready " in pathlib.Path("/tmp/directory.log").read_bytes())
    for host in HOSTS:
        mount(host)
    until("both segments", lambda: command("segments").count("MiB") >= 2 and all(h in command("segments") for h in HOSTS))
    client = store()
    wanted = values("plain")
    total = sum(map(len, wanted.values()))
    with Moved("put", nic=total):
        for key, value in wanted.items():
            assert client.put(key, value) == 0, client.last_error()
    with Moved("get", nic=total):
        there(client, wanted)
    pool_of_an_engine(client)
    rates(client)
    # Two replicas, on both hosts. One host is killed; what was on it alone is a miss, all else is whole.
    twice = ReplicateConfig()
    twice.replica_num = 2
    safe = values("twice")
    with Moved("put of two replicas", nic=2 * sum(map(len, safe.values()))):
        for key, value in safe.items():
            assert client.put(key, value, twice) == 0
    processes["h1"].kill()
    processes.pop("h1").wait()
    there(client, safe)
    for key, value in wanted.items():
        assert client.get(key) in (value, b""), key
    mount("h1")
    until("h1 again", lambda: "h1" in command("segments"))
    after = values("after")
    for key, value in after.items():
        assert client.put(key, value, twice) == 0
    there(client, {**safe, **after})
    # A host is emptied: what lay there alone is elsewhere.
    with Moved("drain", nic=4 * MIB):
        command("drain", "h2")
    there(client, {**safe, **after})
    # A tenant knows no key of the store: the segments' endpoints serve it, which hold it to its pass.
    guest, own = store(token_file=private("token", token)), values("guest", (4096, 1 * MIB))
    with Moved("a tenant's put and get", plain=2 * MIB):
        for key, value in own.items():
            assert guest.put(key, value) == 0, guest.last_error()
        there(guest, own)
    assert all(guest.get(key) == b"" for key in safe)
    guest.close()
    client.close()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        for log in pathlib.Path("/tmp").glob("*.log"):
            print(f"---- {log.name}\n{log.read_text()[-1500:]}", file=sys.stderr)
        raise
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
            process.wait()
