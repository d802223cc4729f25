#!/usr/bin/env python3
"""The object store beside Mooncake Store (over TCP, and by its dummy client), Redis, memcached, and copies within one
process: puts and gets of bytes, existence, places and small puts in batches, by one Python client and by two at once. Servers and
clients are processes of this host.

    python3 tests/bench/store_peers.py      in an environment with mooncaf's package, and of the peers what there is:
                                            mooncake-transfer-engine-non-cuda, redis, pymemcache; redis-server, memcached
    ... store_peers.py --between-hosts      servers in one network namespace, clients in another, a veth pair between them
                                            (as root); beside bare TCP, one connection for each client
"""
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from cluster import BINARY, free_port, wait_until  # noqa: E402

SIZES = (4 << 10, 160 << 10, 1 << 20, 16 << 20)
POOL = 2 << 30
ROUNDS = int(os.environ.get("ROUNDS", "3"))
CLIENTS = (1, 2)
BETWEEN_HOSTS = "STORE_PEERS_NAMESPACE" in os.environ
THERE = ["ip", "netns", "exec", os.environ["STORE_PEERS_NAMESPACE"]] if BETWEEN_HOSTS else []  # where servers run
HOST = "10.79.0.1" if BETWEEN_HOSTS else "127.0.0.1"
processes = []


def start(command):
    if not command[0]:
        raise FileNotFoundError("a program of it is not on the path")
    processes.append(subprocess.Popen(THERE + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def on_two_hosts():
    """Runs this again, in a namespace of its own that a link connects with another one."""
    names = [f"store-peers-{os.getpid()}-{side}" for side in ("servers", "clients")]
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.79.0.{number}/24", "dev", "wire")
            for device in ("wire", "lo"):
                ip("-n", name, "link", "set", device, "up")
        env = {**os.environ, "STORE_PEERS_NAMESPACE": names[0], "STORE_PEERS_HOST": "10.79.0.2"}
        return subprocess.run(["ip", "netns", "exec", names[1], sys.executable, __file__], env=env).returncode
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def on_path(name):
    return shutil.which(name, path=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])


def port_open(port):
    with socket.socket() as s:
        return s.connect_ex((HOST, port)) == 0


# ---- servers: each gives the word by which its clients find it


def mooncaf():
    folder = tempfile.mkdtemp()
    secret = os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write("a secret of this bench alone, 0123456789")
    at = f"{HOST}:{free_port()}"
    common = ["--cluster-secret-file", secret]
    start([BINARY, "store", "directory", "--listen", at, *common])
    wait_until("the directory listens", lambda: subprocess.run(
        [BINARY, "store", "stat", "--directory", at, *common], capture_output=True).returncode == 0)
    start([BINARY, "store", "mount", "--size", f"{POOL >> 20}MiB", "--data-listen", f"{HOST}:0", "--directory", at, *common])
    wait_until("a segment is mounted", lambda: json.loads(subprocess.run(
        [BINARY, "store", "segments", "--json", "--directory", at, *common], capture_output=True).stdout or "[]"))
    return at


def mooncake_master():
    port, metrics = free_port(), free_port()
    start([on_path("mooncake_master"), f"--rpc_port={port}", f"--metrics_port={metrics}"])
    wait_until("the master listens", lambda: port_open(port))
    return f"{HOST}:{port}"


def mooncake():
    master = mooncake_master()
    start([sys.executable, "-c", "import time\nfrom mooncake.store import MooncakeDistributedStore\n"
           "s = MooncakeDistributedStore()\n"
           f"assert s.setup('{HOST}', 'P2PHANDSHAKE', {POOL}, 0, 'tcp', '', '{master}') == 0\n"
           "while True: time.sleep(60)\n"])
    return master


def mooncake_dummy():
    if BETWEEN_HOSTS:
        raise FileNotFoundError("its clients are on the host of the process that has their data")
    port = free_port()
    start([on_path("mooncake_client"), f"--master_server_address={mooncake_master()}", "--metadata_server=P2PHANDSHAKE",
           "--host=127.0.0.1", f"--port={port}", f"--global_segment_size={POOL >> 30} GB", "--threads=2"])
    wait_until("the client's process listens", lambda: port_open(port))
    return f"127.0.0.1:{port}"


def redis():
    port = free_port()
    start([on_path("redis-server"), "--port", str(port), "--bind", HOST, "--protected-mode", "no", "--save", "", "--appendonly", "no"])
    wait_until("Redis listens", lambda: port_open(port))
    return f"{HOST}:{port}"


def memcached():
    port = free_port()
    start([on_path("memcached"), "-u", "root", "-l", HOST, "-p", str(port), "-U", "0", "-m", str(POOL >> 20), "-I", "32m"])
    wait_until("memcached listens", lambda: port_open(port))
    return f"{HOST}:{port}"


def limit():
    if not BETWEEN_HOSTS:
        return str(512 << 20)
    port = free_port()
    start([sys.executable, os.path.join(HERE, "store_peer_clients.py"), "serve", HOST, str(port)])
    wait_until("bare TCP listens", lambda: port_open(port))
    return f"{HOST}:{port}"


PEERS = {"mooncaf": ("Mooncaf", mooncaf), "Mooncake, tcp": ("Mooncake", mooncake),
         "Mooncake, dummy": ("MooncakeDummy", mooncake_dummy), "Redis": ("Redis", redis),
         "memcached": ("Memcached", memcached), "bare TCP" if BETWEEN_HOSTS else "copies": ("BareTcp" if BETWEEN_HOSTS else "Copies", limit)}


class Client:
    def __init__(self, kind, at, who):
        self.said = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "store_peer_clients.py"), kind, at, str(who)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True)
        self.answer()

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith(("{", '"ready"')):  # a library of theirs may say something, too
                return json.loads(line)
        self.said.seek(0)
        raise RuntimeError("its client ended: " + (self.said.read().strip().splitlines() or ["without a word"])[-1])

    def end(self):
        self.process.kill()
        self.process.wait()


def connect(kind, at):
    """Its clients; a store is there when the first one can write, which for some takes a while."""
    for attempts_left in reversed(range(10)):
        try:
            return [Client(kind, at, who) for who in range(max(CLIENTS))]
        except RuntimeError:
            if not attempts_left:
                raise
            time.sleep(1)


def at_once(clients, *what):
    """[{name: seconds}] of each"""
    for c in clients:
        c.ask(*what)
    return [c.answer() for c in clients]


def rate(samples, work):
    """Of all clients together, while they asked."""
    return sum(work * len(s) / sum(s) for s in samples)


def cells(samples, size):
    everything = sorted(t for s in samples for t in s)
    return (f" {rate(samples, size) / 1e9:.2f} | {statistics.median(everything) * 1e6:.0f} | "
            f"{everything[len(everything) * 99 // 100] * 1e6:.0f} |")


def by_turns(found, rounds, what):
    """{(peer, clients): [{name: seconds} of each client]}; by turns, so that what else the machine does hits all."""
    taken = {(name, n): [{} for _ in range(n)] for name in found for n in CLIENTS}
    for r in range(rounds):
        for name, clients in list(found.items()):
            for n in CLIENTS:
                for kept, now in zip(taken[name, n], at_once(clients[:n], *what(10 * r + n))):
                    for key, seconds in now.items():
                        kept.setdefault(key, []).extend(seconds)
    return taken


def print_moves(found):
    print("| size | | clients | put GB/s | p50 µs | p99 µs | get GB/s | p50 µs | p99 µs |\n" + "| --- " * 9 + "|")
    for size in SIZES:
        count = max(4, min(200, (64 << 20) // size))
        for (name, n), each in by_turns(found, ROUNDS, lambda r: ("moved", size, count, r)).items():
            shown = f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
            print(f"| {shown} | {name} | {n} |" + cells([e["put"] for e in each], size) + cells([e["get"] for e in each], size),
                  flush=True)


def print_questions(found):
    print("\n| | clients | exists alone, k/s | in batches of 128, k keys/s | places, batches, k keys/s | puts of 64 bytes, batches, k/s |\n"
          + "| --- " * 6 + "|")
    for r in range(ROUNDS):  # what is asked for is there whatever had to leave
        for n in CLIENTS:
            for clients in found.values():
                at_once(clients[:n], "moved", SIZES[0], 128, 1000 + 10 * r + n)
    for (name, n), each in by_turns(found, ROUNDS, lambda r: ("asked", SIZES[0], 128, 1000 + r)).items():
        row = [f"{rate([e[key] for e in each], work) / 1e3:.1f}" if key in each[0] else ""
               for key, work in (("exists", 1), ("exists_many", 128), ("where_many", 128), ("put_many", 128))]
        print(f"| {name} | {n} | " + " | ".join(row) + " |", flush=True)


def main():
    found = {}
    try:
        for name, (kind, serve) in PEERS.items():
            try:
                found[name] = connect(kind, serve())
            except (FileNotFoundError, RuntimeError) as e:
                print(f"without {name}: {e}", file=sys.stderr)
        time.sleep(5)  # whatever fills memory ahead of need
        for clients in found.values():  # and memory that nobody used yet is slow everywhere
            for size in SIZES:
                at_once(clients[:1], "moved", size, (256 << 20) // size, 0)
        print_moves(found)
        print_questions({name: clients for name, clients in found.items() if name not in ("copies", "bare TCP")})
    finally:
        for clients in found.values():
            for c in clients:
                c.end()
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    sys.exit(on_two_hosts() if "--between-hosts" in sys.argv[1:] else main())
