"""Hosts, processes and faults of one scenario: each host is a network namespace, with a monotonic clock that began at
another time than the others'; most have one process, which is a node.

Faults of the network are routes that lead nowhere, a narrow queue, a cable that is pulled, or `relay.BadLink`; those of
clocks and disks come from `fault_shim.cpp`.
"""
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import hosts  # noqa: E402
import relay  # noqa: E402
from cluster import Client, Cluster, modelled, wait_until  # noqa: E402

SHAPE = "dummy:layers=2,dim=64,heads=4,kv_heads=2,ffn=128,vocab=512"
BLOCK_TOKENS = 16
SECRET = "5" * 64
HTTP_PORT = 8000
SHIM = os.environ.get("MOONCAF_FAULT_SHIM", "build/tests/chaos/libmooncaf_fault_shim.so")
CANNOT_OPEN = 8  # exit status: a file or folder that is named cannot be used
LOST_RANK = (70, 5)  # … the rank was lost; it could not be found again in time
NEED_SHIM = ("clock", "broken", "dawdle")

def device_options(device, folder):
    """Command line of the device and model that a scenario names."""
    if device == "model":
        return modelled(folder, block_tokens=BLOCK_TOKENS)
    return ["--model", SHAPE, "--block-tokens", str(BLOCK_TOKENS), "--threads", "1",
            *(("--device", "linked", "--device-kv", "4MiB", "--context-length", "512") if device == "linked" else ())]


def common_options(device, folder):
    return [*device_options(device, folder), "--drain-timeout", "3s", "--flush-limit", "2s", "--prefill-instances", "1", "--ttft-slo", "120s",
            "--tbt-slo", "60s"]


def own_clock(dice):
    """Starts a command where the monotonic clock shows some other time."""
    command = ["unshare", "--time", "--monotonic", str(dice.randrange(10 ** 6))]
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []


class World:
    """A context manager: the namespaces and the processes in them; ends both."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.cluster = Cluster()
        self.dice = random.Random(scenario["seed"])
        self.nodes = {n["name"]: n for n in scenario["nodes"]}
        self.turn = None       # the process that a rolling restart has ended and not yet started again
        self.down = {}         # processes that a fault has ended and not yet started again: by SIGKILL or SIGTERM
        self.gone = set()      # nodes that left for good
        self.problems = []
        self.links = {}        # bad ones, by the id of their fault
        self.orders = {}       # what each node's shim is told
        self.rolling = None
        # Nodes whose connections to clients may break: what happened to the others is no excuse.
        ends = ("kill", "stop", "rot", "isolate", "flap", "leave", "join")
        self.disturbed = {f["node"] for f in scenario["faults"] if f["kind"] in ends}
        if any(f["kind"] == "roll" for f in scenario["faults"]):
            self.disturbed = set(self.nodes)

    def __enter__(self):
        self.network = hosts.network(len(self.nodes) + 1)  # the clients have a host of their own
        names, addresses, self.switch = self.network.__enter__()
        places = {name: i + 1 for i, name in enumerate(self.nodes)}
        self.number = {name: places[node.get("host", name)] for name, node in self.nodes.items()}
        self.port = {name: 7400 + i for name, i in places.items()}
        self.namespace = {name: names[i] for name, i in self.number.items()}
        self.address = {name: addresses[i] for name, i in self.number.items()}
        self.clock = {i: own_clock(self.dice) for i in places.values()}
        self.secret = hosts.secret_in(self.cluster, "secret", SECRET)
        self.common = common_options(self.scenario["device"], self.cluster.folder.name)
        for node in self.nodes.values():
            if "ssd" in node:
                self.mount(node)
            if "joins" not in node:
                self.launch(node)
        return self

    def __exit__(self, *_):
        for process in self.cluster.processes.values():
            if process.alive():
                process.process.kill()
                process.process.wait(10)
        for link in self.links.values():
            link.end()
        for name, node in self.nodes.items():
            if "ssd" in node:
                subprocess.run(["umount", "-l", self.ssd_folder(name)], capture_output=True)
        self.network.__exit__(None, None, None)
        self.cluster.folder.cleanup()

    def ssd_folder(self, name):
        return os.path.join(self.cluster.folder.name, f"{name}-ssd")

    def journal(self, name):
        return os.path.join(self.cluster.folder.name, f"{name}-journal")

    def mount(self, node):
        """A disk of its own; a small one has little more than the tier wants to keep free."""
        os.makedirs(self.ssd_folder(node["name"]), mode=0o700)
        self.resize(node["name"], "400m" if node["ssd"] == "roomy" else "210m", "mode=0700")

    def resize(self, name, size, *options):
        """@returns whether the disk took that size: not one that is less than what is on it."""
        options = ["remount", *options] if os.path.ismount(self.ssd_folder(name)) else options
        return subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "none",
                               self.ssd_folder(name)], capture_output=True).returncode == 0

    def launch(self, node):
        name, address, front = node["name"], self.address[node["name"]], next(iter(self.nodes))
        args = [*self.common, "--role", node["roles"], "--name", name, "--listen", f"{address}:{self.port[name]}", "--data-listen",
                f"{address}:0", "--metrics-listen", "127.0.0.1:0", "--cluster-secret-file", self.secret, "--policy",
                self.scenario["policy"]]
        if self.scenario["coupled"]:
            args += ["--mode", "coupled"]
        conductors = [n for n, other in self.nodes.items() if "conductor" in other["roles"]]
        if not self.is_rank(name) and (name != front or len(conductors) > 1):
            args += ["--join", ",".join(f"{self.address[n]}:{self.port[n]}" for n in conductors)]
        kind, size = node.get("group", (None, 1))
        if kind in ("pipeline", "tensor"):
            args += [f"--{kind}", str(size)]
        if self.is_rank(name):
            shares = self.nodes[node["leader"]]["group"][0] == "shares"
            args += ["--tensor", "2", "--tensor-rank", "2"] if shares else ["--pipeline", "2", "--stage", "1"]
        ranks = [n for n, other in self.nodes.items() if other.get("leader") == name]
        if ranks:
            args += ["--ranks", ",".join(f"{self.address[r]}:{self.port[r]}" for r in ranks),
                     *(["--tensor", "2"] if kind == "shares" else [])]
        if "gateway" in node["roles"]:
            args += ["--http", f"{address}:{HTTP_PORT}"]
        if "dram_mib" in node:
            args += ["--cache-dram", f"{node['dram_mib']}MiB"]
        if "ssd" in node:
            args += ["--ssd-path", self.ssd_folder(name), "--ssd-size", "64MiB" if node["ssd"] == "small" else "16MiB",
                     "--no-direct-io"]
        if not self.is_rank(name):
            args += ["--journal", self.journal(name)]
        env = {}
        if any(f["kind"] in NEED_SHIM and f["node"] == name for f in self.scenario["faults"]):
            self.orders[name] = os.path.join(self.cluster.folder.name, f"{name}-faults")
            self.tell_shim(name)
            env = {"LD_PRELOAD": os.path.abspath(SHIM), "MOONCAF_FAULTS": self.orders[name],
                   "MOONCAF_FAULTS_FOLDER": self.ssd_folder(name)}
        self.cluster.start(name, *args, netns=self.namespace[name], env=env, prefix=self.clock[self.number[name]])

    def tell_shim(self, name, clock_s=0, disk=0, delay_us=0):
        if not os.path.exists(SHIM):
            raise FileNotFoundError(f"{SHIM}: build mooncaf_fault_shim, or set MOONCAF_FAULT_SHIM")
        # In place: the process has the file mapped.
        with open(os.open(self.orders[name], os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(struct.pack("<qqq", clock_s * 10 ** 9, disk, delay_us))

    def process(self, name):
        return self.cluster.processes[name]

    def members(self):
        """Nodes that have been started and have not left."""
        return [name for name in self.nodes if name in self.cluster.processes and name not in self.gone]

    def is_rank(self, name):
        return self.nodes[name]["roles"] == "rank"

    def leads_ranks(self, name):
        return any(n.get("leader") == name for n in self.nodes.values())

    def revive_leaders(self):
        """As the agent of a host does: a leader ends by itself when its rank is gone."""
        for name in self.members():
            if self.leads_ranks(name) and self.process(name).process.poll() in LOST_RANK and name not in self.down \
                    and name != self.turn:
                self.process(name).start()

    def gateways(self):
        return [name for name in self.members() if "gateway" in self.nodes[name]["roles"]]

    def client(self, gateway, timeout=90):
        return Client(self.address[gateway], HTTP_PORT, timeout)

    # ---- faults: each has a beginning and, but for some, an end ----

    def begin(self, fault):
        name = fault["node"]
        if fault["kind"] == "join":
            self.launch(self.nodes[name])
        elif name in self.members():
            getattr(self, "begin_" + fault["kind"])(fault, name, self.process(name).process)

    def end(self, fault):
        name, kind = fault["node"], fault["kind"]
        if name not in self.members():
            return
        process = self.process(name)
        if kind in ("kill", "rot", "stop") and name in self.down:
            self.await_end(name)
            process.start()
            del self.down[name]
        elif kind == "pause" and process.alive():
            process.process.send_signal(signal.SIGCONT)
        elif kind in ("cut", "one_way"):
            self.blackhole(name, fault["other"], False)
            if kind == "cut":
                self.blackhole(fault["other"], name, False)
        elif kind in ("isolate", "flap"):
            self.cable(name, "up")
        elif kind == "slow":
            self.in_host(name, "tc", "qdisc", "del", "dev", "eth", "root", check=False)
        elif kind in ("lossy", "laggy") and id(fault) in self.links:
            self.links.pop(id(fault)).end()
        elif kind in NEED_SHIM:
            self.tell_shim(name)
        elif kind == "full":
            self.resize(name, "400m")

    def await_end(self, name):
        try:
            code = self.process(name).process.wait(15)
        except subprocess.TimeoutExpired:
            self.problems.append(("hang", f"{name} did not end within 15 s of SIGTERM"))
            self.process(name).kill9()
            return
        if self.down.get(name) == signal.SIGKILL:
            return
        # The others: before it could catch the signal, and while it loaded.
        if code not in (0, -signal.SIGTERM, 128 + signal.SIGTERM) and not (
                code in LOST_RANK and self.leads_ranks(name)):
            self.problems.append(("crash", f"{name} ended with {code} when told to stop"))

    def begin_kill(self, _, name, process):
        if name not in self.down:
            self.down[name] = signal.SIGKILL  # before its end, for which a rolling restart may wait
            process.send_signal(signal.SIGKILL)
            process.wait(10)

    def begin_rot(self, fault, name, process):
        if name not in self.down:
            self.begin_kill(fault, name, process)
            rot(self.ssd_folder(name), fault["flips"], random.Random(fault["dice"]))

    def begin_rot_live(self, fault, name, _):
        rot(self.ssd_folder(name), fault["flips"], random.Random(fault["dice"]))

    def begin_gone(self, _, name, __):
        """All files of the tier are deleted under its feet."""
        for path in pathlib.Path(self.ssd_folder(name)).iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def begin_full(self, _, name, __):
        """No room but for a few pages more than is used."""
        any(self.resize(name, f"{mib}m") for mib in (1, 2, 4, 8, 16, 32, 64))

    def begin_broken(self, fault, name, _):
        self.tell_shim(name, disk=fault["what"])

    def begin_dawdle(self, fault, name, _):
        self.tell_shim(name, delay_us=fault["delay_us"])

    def begin_clock(self, fault, name, _):
        self.tell_shim(name, clock_s=fault["leap"])

    def begin_stop(self, _, name, process):
        if name not in self.down:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            self.down[name] = signal.SIGTERM

    def begin_leave(self, fault, name, process):
        if name not in self.down:
            self.gone.add(name)  # first: a rolling restart must not bring it back
            self.begin_stop(fault, name, process)

    def begin_pause(self, _, name, process):
        if name not in self.down:
            process.send_signal(signal.SIGSTOP)

    def begin_cut(self, fault, name, _):
        self.blackhole(name, fault["other"], True)
        self.blackhole(fault["other"], name, True)

    def begin_one_way(self, fault, name, _):
        self.blackhole(name, fault["other"], True)

    def begin_isolate(self, _, name, __):
        self.cable(name, "down")

    begin_flap = begin_isolate

    def begin_slow(self, _, name, __):
        self.in_host(name, "tc", "qdisc", "replace", "dev", "eth", "root", "tbf", "rate", "4mbit", "burst", "16k",
                     "latency", "400ms")

    def begin_lossy(self, fault, name, _):
        if not any(link.port == f"port{self.number[name]}" for link in self.links.values()):
            self.links[id(fault)] = relay.BadLink(
                self.switch, self.number[name], self.scenario["seed"],
                **{k: v for k, v in fault.items() if k in ("loss", "twice", "delay", "jitter", "ways")})

    begin_laggy = begin_lossy

    def begin_roll(self, *_):
        """A rolling restart: one node after the other, each when the one before is ready."""
        self.rolling = threading.Thread(target=self.roll, daemon=True)
        self.rolling.start()

    def roll(self):
        for name in self.members():
            process = self.process(name)
            if name in self.gone or not process.alive():
                continue
            began = process.output().count("ready roles=")
            self.turn = name  # who starts it, whatever else it ends by
            process.process.terminate()
            self.await_end(name)
            if name not in self.gone and name not in self.down:
                process.start()
            self.turn = None
            if not process.alive():
                continue
            try:
                wait_until("it is ready", lambda: process.output().count("ready roles=") > began or not process.alive(), 30)
            except AssertionError:
                self.problems.append(("hang", f"{name} was not ready 30 s after a restart"))

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
            if last > fault["at"]:
                out.append((last, lambda f=fault: self.end(f)))
        return sorted(out, key=lambda step: step[0])

    def heal(self):
        """Whatever is left of the faults ends; whoever is down starts again."""
        if self.rolling:
            self.rolling.join(120)
        for link in self.links.values():
            link.end()
        self.links.clear()
        for name in self.orders:
            self.tell_shim(name)
        for name in self.members():
            for other in self.address:
                if other != name:
                    self.blackhole(name, other, False)
            self.cable(name, "up")
            self.in_host(name, "tc", "qdisc", "del", "dev", "eth", "root", check=False)
            process = self.process(name)
            if name in self.down:
                self.await_end(name)
                process.start()
            elif process.process.poll() == CANNOT_OPEN and any(
                    f["kind"] in ("broken", "full") and f["node"] == name for f in self.scenario["faults"]):
                process.start()  # it was started while its disk failed, said so, and ended
            else:
                process.process.send_signal(signal.SIGCONT)
        for name in self.gone:
            self.await_end(name)
        self.down.clear()
        self.revive_leaders()

    def blackhole(self, name, other, on):
        self.in_host(name, "ip", "route", "add" if on else "del", "blackhole", f"{self.address[other]}/32", check=False)

    def cable(self, name, state):
        subprocess.run(["ip", "-n", self.switch, "link", "set", f"port{self.number[name]}", state], check=True,
                       capture_output=True)

    def in_host(self, name, *command, check=True):
        subprocess.run(["ip", "netns", "exec", self.namespace[name], *command], check=check, capture_output=True)

    # ---- what is there ----

    def wait_complete(self, seconds):
        """Until every gateway sees every node, and all nodes can talk to each other."""
        seen = {}  # by gateway: what it lacks

        def all_there():
            self.revive_leaders()
            for name in self.members():
                process = self.process(name)
                assert process.alive(), f"{name} ended by itself with {process.process.returncode}"
            want = {name for name in self.members() if not self.is_rank(name)}
            for gateway in self.gateways():
                try:
                    status, body = self.client(gateway, 5).json("GET", "/cluster")
                except (OSError, ValueError) as problem:
                    seen[gateway] = repr(problem)
                    return False
                there = {n["name"] for n in body["nodes"]} if status == 200 else set()
                seen[gateway] = (f"status {status}, without {sorted(want - there)}, too much {sorted(there - want)}, "
                                 f"broken {body.get('broken_links')}")
                if there != want or body["broken_links"]:
                    return False
            return True

        try:
            wait_until("every node is a member that all others can talk to, seen from every gateway", all_there, seconds,
                       every=0.1)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; last seen: {seen}") from None

    def usage(self, name):
        """Resident bytes, threads and descriptors of a process."""
        process = self.process(name)
        pid = process.process.pid
        return {"bytes of memory": process.rss_bytes(), "threads": len(os.listdir(f"/proc/{pid}/task")),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def rot(folder, flips, dice):
    """Flips bits of a database's files."""
    files = [p for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file() and p.stat().st_size]
    for _ in range(flips if files else 0):
        path = dice.choice(files)
        try:
            with open(path, "r+b") as f:
                f.seek(dice.randrange(max(path.stat().st_size, 1)))
                byte = f.read(1)
                f.seek(-len(byte), os.SEEK_CUR)
                f.write(bytes(b ^ (1 << dice.randrange(8)) for b in byte))
        except FileNotFoundError:
            pass  # whoever has it open may delete it meanwhile
