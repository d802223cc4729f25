"""Hosts, processes and faults of one scenario: each node is a process in a network namespace of its own.

Faults of the network are routes that lead nowhere (this kernel may lack netem): a cut pair cannot reach each other, a
one-way cut lets answers get lost, an isolated host loses its cable, a slow one has a narrow queue.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import hosts  # noqa: E402
from cluster import Client, Cluster, wait_until  # noqa: E402

SHAPE = "dummy:layers=2,dim=64,heads=4,kv_heads=2,ffn=128,vocab=512"
BLOCK_TOKENS = 16
SECRET = "5" * 64
HTTP_PORT = 8000


def common_options():
    return ["--model", SHAPE, "--block-tokens", str(BLOCK_TOKENS), "--threads", "1", "--flush-limit", "2s",
            "--prefill-instances", "1", "--ttft-slo", "120s", "--tbt-slo", "60s"]


class World:
    """A context manager: the namespaces and the processes in them; ends both."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.cluster = Cluster()
        self.dice = random.Random(scenario["seed"])
        self.down = set()      # processes that a fault has ended and not yet started again
        # Nodes whose connections to clients may break: what happened to the others is no excuse.
        self.disturbed = {f["node"] for f in scenario["faults"] if f["kind"] in ("kill", "stop", "rot", "isolate", "flap")}

    def __enter__(self):
        self.network = hosts.network(len(self.scenario["nodes"]) + 1)  # the clients have a host of their own
        names, addresses, self.switch = self.network.__enter__()
        self.namespace = {n["name"]: names[i + 1] for i, n in enumerate(self.scenario["nodes"])}
        self.address = {n["name"]: addresses[i + 1] for i, n in enumerate(self.scenario["nodes"])}
        self.number = {n["name"]: i + 1 for i, n in enumerate(self.scenario["nodes"])}
        self.secret = hosts.secret_in(self.cluster, "secret", SECRET)
        for node in self.scenario["nodes"]:
            self.start(node)
        return self

    def __exit__(self, *_):
        for process in self.cluster.processes.values():
            if process.alive():
                process.process.kill()
                process.process.wait(10)
        for node in self.scenario["nodes"]:
            if node.get("ssd") == "small":
                subprocess.run(["umount", "-l", self.ssd_folder(node)], capture_output=True)
        self.network.__exit__(None, None, None)
        self.cluster.folder.cleanup()

    def ssd_folder(self, node):
        return os.path.join(self.cluster.folder.name, f"{node['name']}-ssd")

    def start(self, node):
        name, address = node["name"], self.address[node["name"]]
        front = self.scenario["nodes"][0]["name"]
        args = [*common_options(), "--role", node["roles"], "--name", name, "--listen", f"{address}:7400",
                "--data-listen", f"{address}:0", "--metrics-listen", "127.0.0.1:0", "--cluster-secret-file", self.secret,
                "--policy", self.scenario["policy"]]
        if name != front:
            args += ["--join", f"{self.address[front]}:7400"]
        if "gateway" in node["roles"]:
            args += ["--http", f"{address}:{HTTP_PORT}"]
        if "dram_mib" in node:
            args += ["--cache-dram", f"{node['dram_mib']}MiB"]
        if "ssd" in node:
            folder = self.ssd_folder(node)
            os.makedirs(folder, mode=0o700)
            size = "16MiB"
            if node["ssd"] == "small":  # a disk that fills up before the tier thinks that it is full
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder], check=True)
                size = "64MiB"
            args += ["--ssd-path", folder, "--ssd-size", size, "--no-direct-io"]
        self.cluster.start(name, *args, netns=self.namespace[name])

    def process(self, name):
        return self.cluster.processes[name]

    def gateways(self):
        return [n["name"] for n in self.scenario["nodes"] if "gateway" in n["roles"]]

    def client(self, gateway, timeout=90):
        return Client(self.address[gateway], HTTP_PORT, timeout)

    # ---- faults: each has a beginning and, but for some, an end ----

    def begin(self, fault):
        name, kind = fault["node"], fault["kind"]
        process = self.process(name)
        if kind in ("kill", "rot") and name not in self.down:
            process.process.send_signal(signal.SIGKILL)
            process.process.wait(10)
            self.down.add(name)
            if kind == "rot":
                rot(self.ssd_folder({"name": name}), fault["flips"], random.Random(fault["dice"]))
        elif kind == "stop" and name not in self.down:
            process.process.send_signal(signal.SIGTERM)
            process.process.send_signal(signal.SIGCONT)
            self.down.add(name)
        elif kind == "pause" and name not in self.down:
            process.process.send_signal(signal.SIGSTOP)
        elif kind == "cut":
            self.blackhole(name, fault["other"], True)
            self.blackhole(fault["other"], name, True)
        elif kind == "one_way":
            self.blackhole(name, fault["other"], True)
        elif kind == "isolate":
            self.cable(name, "down")
        elif kind == "flap":
            self.cable(name, "down")
        elif kind == "slow":
            self.in_host(name, "tc", "qdisc", "replace", "dev", "eth", "root", "tbf", "rate", "4mbit", "burst", "16k",
                         "latency", "400ms")

    def end(self, fault):
        name, kind = fault["node"], fault["kind"]
        process = self.process(name)
        if kind in ("kill", "rot", "stop") and name in self.down:
            process.process.wait(20)
            process.start()
            self.down.discard(name)
        elif kind == "pause" and process.alive():
            process.process.send_signal(signal.SIGCONT)
        elif kind == "cut":
            self.blackhole(name, fault["other"], False)
            self.blackhole(fault["other"], name, False)
        elif kind == "one_way":
            self.blackhole(name, fault["other"], False)
        elif kind in ("isolate", "flap"):
            self.cable(name, "up")
        elif kind == "slow":
            self.in_host(name, "tc", "qdisc", "del", "dev", "eth", "root", check=False)

    def steps(self):
        """(when, function) of everything that is done to the cluster, in order."""
        out = []
        for fault in self.scenario["faults"]:
            last = fault["at"] + fault.get("for", fault.get("back_after", 0))
            if fault["kind"] == "flap":  # up and down every 0.4 s
                when, up = fault["at"], False
                while when < last:
                    out.append((when, lambda f=fault, u=up: self.end(f) if u else self.begin(f)))
                    when, up = when + 0.4, not up
            else:
                out.append((fault["at"], lambda f=fault: self.begin(f)))
            out.append((last, lambda f=fault: self.end(f)))
        return sorted(out, key=lambda step: step[0])

    def heal(self):
        """Whatever is left of the faults ends; whoever is down starts again."""
        for node in self.scenario["nodes"]:
            name = node["name"]
            for other in self.address:
                if other != name:
                    self.blackhole(name, other, False)
            self.cable(name, "up")
            self.in_host(name, "tc", "qdisc", "del", "dev", "eth", "root", check=False)
            process = self.process(name)
            if process.alive():
                process.process.send_signal(signal.SIGCONT)
            else:
                process.start()
        self.down.clear()

    def blackhole(self, name, other, on):
        self.in_host(name, "ip", "route", "add" if on else "del", "blackhole", f"{self.address[other]}/32", check=False)

    def cable(self, name, state):
        subprocess.run(["ip", "-n", self.switch, "link", "set", f"port{self.number[name]}", state], check=True,
                       capture_output=True)

    def in_host(self, name, *command, check=True):
        subprocess.run(["ip", "netns", "exec", self.namespace[name], *command], check=check, capture_output=True)

    # ---- what is there ----

    def wait_complete(self, seconds):
        """Until every gateway sees every node."""
        want = {n["name"] for n in self.scenario["nodes"]}

        def all_there():
            for node in self.scenario["nodes"]:
                process = self.process(node["name"])
                assert process.alive(), f"{node['name']} ended by itself with {process.process.returncode}"
            for gateway in self.gateways():
                try:
                    status, body = self.client(gateway, 5).json("GET", "/cluster")
                except (OSError, ValueError):
                    return False
                if status != 200 or {n["name"] for n in body["nodes"]} != want:
                    return False
            return True

        wait_until("every node is a member, seen from every gateway", all_there, seconds, every=0.1)

    def usage(self, name):
        """(resident bytes, threads, descriptors) of a process."""
        process = self.process(name)
        pid = process.process.pid
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
        pid = int(children[0]) if children else pid  # behind `ip netns exec`, which execs: usually none
        return process.rss_bytes(), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def rot(folder, flips, dice):
    """Flips bits of the files of a database that nobody has open."""
    files = [p for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file() and p.stat().st_size]
    for _ in range(flips if files else 0):
        path = dice.choice(files)
        with open(path, "r+b") as f:
            at = dice.randrange(path.stat().st_size)
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes((byte[0] ^ (1 << dice.randrange(8)),)))


