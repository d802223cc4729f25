#!/usr/bin/env python3
"""Ten hosts, each a network namespace with a mount namespace, a state folder and a sshd of its own: `mooncaf up` starts a cluster on
them, and a day of faults passes under load. Needs root, iproute2 and openssh-server.

    ten_hosts.py                                a few faults
    ten_hosts.py --minutes 10 --seed 7          each kind of fault, and then by chance, for so long
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, main, wait_until  # noqa: E402
from hosts import network  # noqa: E402
from launched import TINY, Launched, needs_sshd  # noqa: E402
from store_world import package  # noqa: E402

HOSTS = 10
MOUNTED = 6  # segments: of each prefill worker, and of the cache
CHATS = [[{"role": "user", "content": f"Say something about {what}."}] for what in ("the sea", "mountains", "rain", "a lamp", "bread")]


class Host:
    """A machine but for its processor: its network, its disk, and what runs on it."""

    def __init__(self, number, namespace, address, folder):
        self.name, self.namespace, self.address, self.folder = f"h{number}", namespace, address, folder
        # Keeps the mounts, as a disk does, while nothing else runs.
        self.disk = subprocess.Popen(["ip", "netns", "exec", namespace, "unshare", "--mount", "--propagation", "private", "sh", "-c",
                                      f"mount -t tmpfs disk {folder}/state && mount -t tmpfs run /run && mkdir /run/sshd && echo ready && exec sleep infinity"], stdout=subprocess.PIPE, text=True)
        assert self.disk.stdout.readline() == "ready\n", namespace
        self.sshd = None

    def run(self, *command, **options):
        return subprocess.Popen(["nsenter", "--target", str(self.disk.pid), "--mount", "--net", *command], **options)

    def boot(self, cluster):
        """The sshd, and what an init system starts at boot: the agent, where there was one."""
        self.sshd = self.run("/usr/sbin/sshd", "-D", "-e", "-o", f"ListenAddress={self.address}", "-f", f"{self.folder}/sshd.conf", stderr=subprocess.DEVNULL)
        wait_until(f"{self.name} takes ssh", lambda: not subprocess.run([shutil.which("ssh", path=cluster.env["PATH"]), self.address, "true"], capture_output=True,
                                                                        env=cluster.env).returncode)

    def start_agent(self, cluster):
        self.run(BINARY, "agent", "run", f"cluster/{self.name}", env=cluster.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def processes(self):
        """All that run here but the disk."""
        here = os.readlink(f"/proc/{self.disk.pid}/ns/net")
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/net") == here and int(entry.name) != self.disk.pid and int(entry.name) != os.getpid():
                    yield int(entry.name)

    def die(self):
        """As when the power fails: everything at once."""
        def ended():
            left = list(self.processes())
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.sshd.poll()
            return not left

        wait_until(f"{self.name} is dead", ended)
        self.sshd.wait(10)

    def end(self):
        if self.sshd:
            self.die()
        self.disk.kill()
        self.disk.wait(10)
        self.disk.stdout.close()


class StoreUser:
    """A client of the object store, as an engine has one: puts objects in two hosts' memory, gets and removes them. Of a host's death it notices nothing."""

    def __init__(self, day):
        from mooncaf.store import MooncakeDistributedStore, ReplicateConfig

        self.seats, self.secret = ",".join(f"{a}:7460" for a in day.addresses[:3]), str(next((day.home / "state/mooncaf").glob("*.secret")))
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = self.secret
        self.store, self.twice = MooncakeDistributedStore(), ReplicateConfig()
        self.twice.replica_num = 2
        code = self.store.setup(day.addresses[0], "P2PHANDSHAKE", 0, 4 << 20, "tcp", "", self.seats)
        assert code == 0, (code, self.store.last_error())
        self.kept, self.gone, self.wrong, self.calls, self.longest = {}, [], [], 0, 0.0

    def call(self, name, *args):
        began = time.monotonic()
        out = getattr(self.store, name)(*args)
        self.calls, self.longest = self.calls + 1, max(self.longest, time.monotonic() - began)
        return out

    def mounted(self):
        command = [BINARY, "store", "segments", "--json", "--directory", self.seats, "--cluster-secret-file", self.secret]
        return subprocess.run(command, capture_output=True).stdout.count(b'"medium"')

    def step(self, chance):
        key, value = f"o{self.calls}", chance.randbytes(chance.randrange(100, 90_000))
        if (code := self.call("put", key, value, self.twice)) != 0:
            self.wrong.append(("put", key, code, self.store.last_error()))
        self.kept[key] = value
        asked = chance.choice(list(self.kept))
        if (got := self.call("get", asked)) != self.kept[asked]:
            self.wrong.append(("get", asked, len(got), self.store.last_error()))
        if len(self.kept) > 60:
            if (code := self.call("remove", asked, True)) not in (0, -704):  # its answer was lost with the directory
                self.wrong.append(("remove", asked, code))
            del self.kept[asked]
            self.gone.append(asked)

    def renew(self):
        """Before another fault: what one replica is left of is put again."""
        for key, value in self.kept.items():
            self.store.upsert(key, value, self.twice)

    def check(self):
        lost = [key for key, value in self.kept.items() if self.store.get(key) != value]
        back = [key for key in self.gone if self.store.is_exist(key)]
        assert not lost and not back and not self.wrong, (lost[:5], back[:5], self.wrong[:5])


class Day(Launched):
    """The hosts, the cluster on them, and its users. The operator's machine is the first host."""

    def __init__(self, names, addresses):
        super().__init__("", addresses[0])
        self.addresses = addresses
        self.file.write_text(f"""[launch]
name = "cluster"
binary = "{BINARY}"
port = 7400
ready_within = "60s"
[model]
path = "{TINY}"
[cache]
dram = "16MiB"
[store]
dram = "16MiB"
[metrics]
listen = "127.0.0.1:0"
""" + "".join(self.host_text(i) for i in range(HOSTS)))
        (self.home / "state").mkdir()
        self.allow_ssh()
        self.hosts = [Host(i, names[i], addresses[i], self.home) for i in range(1, HOSTS)]
        self.gateways = [Client(addresses[i], 8000, 30) for i in (0, 1)]
        self.client = self.gateways[0]
        self.answers, self.wrong, self.moved, self.no_renewal = 0, [], 0, threading.Lock()

    def host_text(self, i):
        text = f'[h{i}]\naddress = "{self.addresses[i]}"\n'
        if i == 0:
            text += 'runner = "local"\n'
        if i < 2:
            text += f'gateway = 1\nhttp = "{self.addresses[i]}:8000"\n'
        if i < 3:
            text += f'conductor = 1\nstore_listen = "{self.addresses[i]}:7460"\n'
        return text + ("prefill = 1\n" if i % 2 else "decode = 1\n") + ("cache = 1\n" if i == 9 else "")

    def allow_ssh(self):
        for key in ("host-key", "user-key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.home / key)], check=True)
        (self.home / "known").write_text(f"10.77.0.* {(self.home / 'host-key.pub').read_text()}")
        (self.home / "sshd.conf").write_text(f"""HostKey {self.home}/host-key
AuthorizedKeysFile {self.home}/user-key.pub
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
SetEnv XDG_STATE_HOME={self.env['XDG_STATE_HOME']} TMPDIR={os.environ.get('TMPDIR', '/tmp')}
""")
        (self.home / "bin").mkdir()
        client = self.home / "bin/ssh"
        client.write_text(f"#!/bin/sh\nexec {shutil.which('ssh')} -o IdentityFile={self.home}/user-key -o IdentitiesOnly=yes -o UserKnownHostsFile={self.home}/known \"$@\"\n")
        client.chmod(0o755)
        self.env["PATH"] = f"{client.parent}:{os.environ['PATH']}"

    def __enter__(self):
        for host in self.hosts:
            host.boot(self)
        return self

    def __exit__(self, kind, *rest):
        if kind:
            print(self.run("status").stdout, file=sys.stderr)
            for host in self.hosts:
                host.run("sh", "-c", f"tail -n 5 {self.home}/state/mooncaf/cluster/{host.name}/*.log", stdout=sys.stderr).wait(10)
        self.run("stop")
        for host in self.hosts:
            host.end()
        self.folder.cleanup()

    def ask(self, chat, first):
        """As a client behind a balancer: where a gateway is gone it asks the other one."""
        for gateway in (self.gateways[first], self.gateways[1 - first]):
            try:
                return gateway.chat(CHATS[chat], max_tokens=12, temperature=0)["choices"][0]["message"]["content"]
            except OSError:
                self.moved += 1
        raise AssertionError("no gateway answers")

    @contextlib.contextmanager
    def users(self, expected):
        """Two that ask all the time; each answer is the one that an untroubled cluster gave. And one of the store."""
        over, self.objects = threading.Event(), StoreUser(self)

        def store_user():
            chance = random.Random(2)
            while not over.is_set():
                with self.no_renewal:
                    self.objects.step(chance)
                over.wait(0.02)

        def user(number):
            chance = random.Random(number)
            while not over.is_set():
                chat = chance.randrange(len(CHATS))
                try:
                    answer = self.ask(chat, number)
                    if answer != expected[chat]:
                        self.wrong.append((chat, answer))
                    self.answers += 1
                except AssertionError as why:
                    self.wrong.append((chat, str(why)))
                over.wait(0.02)

        threads = [threading.Thread(target=user, args=(i,)) for i in range(2)] + [threading.Thread(target=store_user)]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            over.set()
            for one in threads:
                one.join()

    def all_ready(self, what):
        wait_until(what, lambda: all(n["state"] == "ready" for n in self.nodes().values()), 90)
        wait_until(f"{what}: workers are members", lambda: self.instances() == HOSTS, 90)
        wait_until(f"{what}: memory is mounted", lambda: self.objects.mounted() == MOUNTED, 90)

    # ---- faults: each returns when the cluster is whole again

    def a_host_dies_and_boots_again(self, chance):
        host = chance.choice(self.hosts[2:])  # neither a gateway's nor, with luck, the leader's
        host.die()
        wait_until("its loss is seen", lambda: self.instances() < HOSTS, 60)
        host.boot(self)
        host.start_agent(self)
        self.all_ready(f"{host.name} is back")
        return host.name

    def a_gateway_and_its_host_die(self, _):
        host = self.hosts[0]
        host.die()
        host.boot(self)
        host.start_agent(self)
        self.all_ready(f"{host.name} is back")
        return host.name

    def the_leader_dies(self, _):
        leaders = lambda: [name for name, n in self.nodes().items() if n["leads"]]  # noqa: E731
        wait_until("one leads", lambda: len(leaders()) == 1, 30)
        [leader] = leaders()
        os.kill(self.pids()[leader], signal.SIGKILL)
        wait_until("another leads", lambda: len(leaders()) == 1 and leaders() != [leader], 30)
        self.all_ready("the leader that died stands by")
        return leader

    def all_processes_are_renewed(self, _):
        self.must("restart", "--rolling")
        self.all_ready("after a rolling restart")
        return ""

    def another_secret(self, _):
        self.must("rotate-secret")
        return ""

    def a_worker_more_and_less(self, chance):
        role = chance.choice(("prefill", "decode"))
        self.must("scale", f"{role}=+1")
        wait_until("one more is a member", lambda: self.instances() == HOSTS + 1, 30)
        self.must("scale", f"{role}=-1")
        self.all_ready("after scaling")
        return role

    def a_process_dies(self, chance):
        name, pid = chance.choice(sorted((n, p) for n, p in self.pids().items() if "gateway" not in n))
        os.kill(pid, signal.SIGKILL)
        self.wait_back(name, pid)
        self.all_ready(f"{name} is back")
        return name

    def faults(self):
        return [self.a_process_dies, self.the_leader_dies, self.another_secret, self.a_host_dies_and_boots_again, self.a_worker_more_and_less,
                self.a_gateway_and_its_host_die, self.all_processes_are_renewed]


def a_day(minutes=0, seed=1):
    needs_sshd()
    package()
    chance = random.Random(seed)
    with network(HOSTS) as (names, addresses, _), Day(names, addresses) as day:
        began = time.monotonic()
        day.must("up")
        expected = [day.ask(chat, 0) for chat in range(len(CHATS))]
        print(f"     from up to the first answer of {len(day.nodes())} processes on {HOSTS} hosts: {time.monotonic() - began:.1f} s", flush=True)
        with day.users(expected):
            until = time.monotonic() + 60 * minutes
            faults = day.faults() if minutes else [day.the_leader_dies, day.another_secret, day.a_host_dies_and_boots_again, day.a_gateway_and_its_host_die]
            while faults:
                fault = faults.pop(0)
                with day.no_renewal:
                    day.objects.renew()
                    day.objects.longest = 0.0
                began, before = time.monotonic(), (day.answers, day.objects.calls)
                where = fault(chance)
                assert not day.wrong, day.wrong[:3]
                with day.no_renewal:
                    day.objects.check()
                print(f"     {fault.__name__} {where}: whole again after {time.monotonic() - began:.1f} s, {day.answers - before[0]} answers and "
                      f"{day.objects.calls - before[1]} calls of the store meanwhile, the longest of {day.objects.longest:.1f} s", flush=True)
                if not faults and time.monotonic() < until:
                    faults = [chance.choice(day.faults())]
        print(f"     {day.answers} answers, each as expected; {day.moved} were asked of another gateway")
        assert not day.wrong, day.wrong[:3]
        for gateway in day.gateways:
            wait_until("nothing is held any more", lambda: gateway.integrity()["idle"], 60)
        day.must("stop")
        for host in day.hosts:
            binary = os.path.realpath(BINARY)
            left = [p for p in host.processes() if os.path.exists(f"/proc/{p}/exe") and os.path.realpath(f"/proc/{p}/exe") == binary]
            assert not left, (host.name, left)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
        a_day(float(given.get("--minutes", 0)), int(given.get("--seed", 1)))
    else:
        main([a_day])
