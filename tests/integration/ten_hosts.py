#!/usr/bin/env python3
"""Ten hosts, each a network namespace with a mount namespace, a state folder and a sshd of its own: `mooncaf up` starts a cluster on
them, and a day of faults passes under load, while Prometheus judges our alarms. Needs root, iproute2, openssh-server and prometheus.

    ten_hosts.py                                a few faults
    ten_hosts.py --minutes 10 --seed 7          each kind of fault, and then by chance, for so long
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, main, wait_until  # noqa: E402
from hosts import network  # noqa: E402
from launched import TINY, Launched, needs_sshd  # noqa: E402
from prometheus_scrape import Prometheus  # noqa: E402
from store_world import package  # noqa: E402

HOSTS = 10
ELASTIC = range(5, 9)  # hosts whose process prefills or decodes, as the load asks
INSTANCES = HOSTS + len(ELASTIC)  # of two that an elastic process has one rests
PROCESSES = HOSTS + 6  # one that computes on each host, three conductors, two gateways, a cache
MOUNTED = 8  # segments: of each process that prefills, and of the cache


class Question:
    def __init__(self, **body):
        self.body, self.tokens = body, None  # that an untroubled cluster answers


CHATS = [Question(messages=[{"role": "user", "content": f"Say something about {what}."}], max_tokens=12)
         for what in ("the sea", "mountains", "rain", "a lamp", "bread")]
LONG_ANSWERS = [Question(prompt=[(n * 13 + i) % 256 for i in range(20)], max_tokens=1500, ignore_eos=True) for n in range(5)]
LONG_PROMPTS = [Question(prompt=[(n * 7 + i * (3 + n)) % 256 for i in range(5000)], max_tokens=2, ignore_eos=True) for n in range(5)]

TRANSFER_FAILED = -800  # of the store
DOWN, GONE, NOBODY = "MooncafProcessDown", "MooncafProcessesGone", "MooncafNobodyPlaces"
# By fault: what has to fire, and what may, as it depends on when Prometheus looks. Of other faults nothing may.
RAISES = {"a_host_dies_and_boots_again": ({GONE}, {DOWN}), "a_gateway_and_its_host_die": ({GONE}, {DOWN, NOBODY}),
          "a_worker_more_and_less": ({GONE}, {DOWN}), "a_process_dies": (set(), {GONE, DOWN, NOBODY}), "the_leader_dies": (set(), {GONE, DOWN, NOBODY}),
          "all_processes_are_renewed": (set(), {GONE, DOWN, NOBODY}), "another_release": (set(), {GONE, DOWN, NOBODY})}


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
    """A client of the object store, as an engine has one: puts objects in two hosts' memory, gets and removes them. Of a host's death it notices
    nothing, unless it is writing there: that put fails, and its key is of no use while the client lives."""

    def __init__(self, day):
        from mooncaf.store import MooncakeDistributedStore, ReplicateConfig

        self.seats, self.secret = ",".join(f"{a}:7460" for a in day.addresses[:3]), str(next((day.home / "state/mooncaf").glob("*.secret")))
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = self.secret
        self.store, self.twice = MooncakeDistributedStore(), ReplicateConfig()
        self.twice.replica_num = 2
        code = self.store.setup(day.addresses[0], "P2PHANDSHAKE", 0, 4 << 20, "tcp", "", self.seats)
        assert code == 0, (code, self.store.last_error())
        self.kept, self.gone, self.wrong, self.cut, self.calls, self.longest = {}, [], [], [], 0, 0.0

    def call(self, name, *args):
        began = time.monotonic()
        out = getattr(self.store, name)(*args)
        self.calls, self.longest = self.calls + 1, max(self.longest, time.monotonic() - began)
        return out

    def mounted(self):
        return self.segments().count(b'"medium"')

    def segments(self):
        command = [BINARY, "store", "segments", "--json", "--directory", self.seats, "--cluster-secret-file", self.secret]
        return subprocess.run(command, capture_output=True).stdout

    def step(self, chance):
        key, value = f"o{self.calls}", chance.randbytes(chance.randrange(100, 90_000))
        code = self.call("put", key, value, self.twice)
        if code == TRANSFER_FAILED:
            self.cut.append(key)
            return
        if code != 0:
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


class Alarms(Prometheus):
    """Prometheus on the operator's machine, where it asks all conductors for what there is."""

    def __init__(self, day):
        super().__init__(day.folder.name, *(f"{a}:9400" for a in day.addresses[:3]), rules=self.impatient)

    @staticmethod
    def impatient(rules):
        """A fault lasts seconds here: an alarm waits for one, not for minutes. What is gone is missed for six seconds; other alarms look back at
        twenty, as requests wait while the conductors are restarted, one after the other."""
        quicker = [(r"(interval|for): \w+", r"\1: 1s"), (r"\[15m:\w+\]", "[6s:1s]"), (r"\[\d+m:\w+\]", "[20s:1s]"), (r"\[\d+m\]", "[20s]")]
        for wanted, instead in quicker:
            assert re.search(wanted, rules), wanted
            rules = re.sub(wanted, instead, rules)
        return rules

    def sees(self, processes):
        """Whether it scrapes so many, and has nothing to complain about."""
        [up] = self.query("sum(up)") or [{"value": (0, 0)}]
        return float(up["value"][1]) == processes and not self.query("ALERTS")

    def fires(self, name):
        return self.query(f'ALERTS{{alertname="{name}",alertstate="firing"}}')

    def fired(self, seconds):
        """Alarms that fired meanwhile, each with the process that it names."""
        found = self.query(f'ALERTS{{alertstate="firing"}}[{int(seconds * 1000)}ms]')
        return sorted((one["metric"]["alertname"], one["metric"].get("process", "")) for one in found)


class NoAlarms:
    """Where there is no Prometheus."""

    def sees(self, _):
        return True

    def fires(self, _):
        return True

    def fired(self, _):
        return None

    def __enter__(self):
        print("     no alarms are judged: prometheus not found; install Debian's package prometheus", flush=True)
        return self

    def __exit__(self, *_):
        pass


@contextlib.contextmanager
def running(threads, over):
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()


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
[cluster]
[model]
path = "{TINY}"
threads = 1
[cache]
dram = "16MiB"
[store]
dram = "16MiB"
[decode]
max_batch = 4
[scheduler]
ttft_slo = "50ms"  # so short that a few long prompts that wait make prefill the fuller role
elastic_roles = true
elastic_hold = "500ms"
[metrics]
listen = "0.0.0.0:9400"
""" + "".join(self.host_text(i) for i in range(HOSTS)))
        now = tomllib.loads(subprocess.run([BINARY, "--print-config"], check=True, capture_output=True, text=True).stdout)
        self.newest = now["cluster"]["wire_version"], now["store"]["protocol"]
        self.write_release(1)
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
        return text + f"{'coupled' if i in ELASTIC else 'prefill' if i % 2 else 'decode'} = 1\n" + ("cache = 1\n" if i == 9 else "")

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

    def ask(self, question, first, **more):
        """As a client behind a balancer: where a gateway is gone it asks the other one. @returns the answer's tokens"""
        for gateway in (self.gateways[first], self.gateways[1 - first]):
            try:
                kind = gateway.chat if "messages" in question.body else gateway.complete
                return kind(**question.body, **more, temperature=0, return_token_ids=True)["choices"][0]["token_ids"]
            except OSError:
                self.moved += 1
        raise AssertionError("no gateway answers")

    def user(self, number, questions, over, salted=False):
        """Asks all the time; each answer is the one that an untroubled cluster gave."""
        chance = random.Random(number)
        while not over.is_set():
            question = chance.choice(questions)
            salt = {"cache_salt": str(chance.random())} if salted else {}
            try:
                if (tokens := self.ask(question, number % 2, **salt)) != question.tokens:
                    self.wrong.append((str(question.body)[:80], tokens))
                self.answers += 1
            except AssertionError as why:
                # Where more is asked than its SLO allows a client is told to come back; this one does.
                if "'code': 'overloaded'" not in str(why):
                    self.wrong.append((str(question.body)[:80], str(why)))
            over.wait(0.02)

    @contextlib.contextmanager
    def pressed(self, users, questions):
        """So many users more; nothing that was computed before helps them."""
        over = threading.Event()
        threads = [threading.Thread(target=self.user, args=(10 + i, questions, over, True)) for i in range(users)]
        with running(threads, over):
            yield

    @contextlib.contextmanager
    def users(self):
        """Two that ask all the time, and one of the store."""
        over, self.objects = threading.Event(), StoreUser(self)

        def store_user():
            chance = random.Random(2)
            while not over.is_set():
                with self.no_renewal:
                    self.objects.step(chance)
                over.wait(0.02)

        threads = [threading.Thread(target=self.user, args=(i, CHATS, over)) for i in range(2)] + [threading.Thread(target=store_user)]
        with running(threads, over):
            yield

    def told(self):
        """What the leader knows; nothing while there is none."""
        with contextlib.suppress(OSError, AssertionError):
            return self.client.cluster()
        return {}

    def instances(self):
        return len(self.told().get("instances", []))

    def all_ready(self, what):
        wait_until(what, lambda: all(n["state"] == "ready" for n in self.nodes().values()), 90)
        wait_until(f"{what}: workers are members", lambda: self.instances() == INSTANCES, 90)
        wait_until(f"{what}: memory is mounted", lambda: self.objects.mounted() == MOUNTED, 90)

    # ---- faults: each returns when the cluster is whole again

    def a_host_dies_and_boots_again(self, chance):
        host = chance.choice(self.hosts[2:])  # neither a gateway's nor, with luck, the leader's
        return self.dies_and_boots(host)

    def a_gateway_and_its_host_die(self, _):
        return self.dies_and_boots(self.hosts[0])

    def dies_and_boots(self, host):
        host.die()
        wait_until("its loss is seen", lambda: self.instances() < INSTANCES, 60)
        wait_until(f"{GONE} fires", lambda: self.alarms.fires(GONE), 30)
        host.boot(self)
        host.start_agent(self)
        self.all_ready(f"{host.name} is back")
        return host.name

    def leader(self):
        return self.told().get("leader", {}).get("node", "")

    def the_leader_dies(self, _):
        leader = wait_until("one leads", self.leader, 30)
        os.kill(self.pids()[leader], signal.SIGKILL)
        wait_until("another leads", lambda: self.leader() not in ("", leader), 30)
        self.all_ready("the leader that died stands by")
        return leader

    def all_processes_are_renewed(self, _):
        self.must("restart", "--rolling")
        self.all_ready("after a rolling restart")
        return ""

    # ---- an upgrade: a process that is told so behaves as one of the release before

    def write_release(self, older):
        """Older: by how many versions of the messages, and of the store's protocol, the processes know less than they could."""
        text = re.sub(r"(wire_version|protocol) = .*\n", "", self.file.read_text())
        if older:
            wire, protocol = (v - older for v in self.newest)
            text = text.replace("[cluster]\n", f"[cluster]\nwire_version = {wire}\n").replace("[store]\n", f"[store]\nprotocol = {protocol}\n")
        self.file.write_text(text)
        self.older = older

    def versions(self):
        """Of the messages and of the store's protocol, that the processes speak."""
        holders = json.loads(self.objects.segments() or "[]")
        return {n["speaks"] for n in self.told().get("nodes", [])}, {h["protocol"] for h in holders}

    def all_speak_so(self):
        return self.versions() == tuple({v - self.older} for v in self.newest)

    def another_release(self, _):
        assert self.all_speak_so(), (self.older, self.versions())
        self.write_release(1 - self.older)
        self.must("restart", "--rolling")
        self.all_ready("after another release")
        wait_until("all speak as it does", self.all_speak_so, 30)
        return "before" if self.older else "after"

    # ---- roles

    def elastic(self, role):
        """Elastic processes that play it."""
        return {i["node"] for i in self.told().get("instances", []) if "coupled" in i["node"] and i["role"] == role and i["state"] == "live"}

    def roles_switch(self, _):
        before, moved = self.client.cluster()["counters"]["role_changes"], []
        presses = [(8, LONG_PROMPTS, "prefill"), (14, LONG_ANSWERS, "decode")]
        for users, questions, role in sorted(presses, key=lambda press: len(self.elastic(press[2]))):  # nobody may be left to go the other way
            had = self.elastic(role)
            with self.pressed(users, questions):
                wait_until(f"one more for {role}", lambda: self.elastic(role) - had, 60)
            moved.append(f"{min(self.elastic(role) - had, default='one')} to {role}")
        assert self.client.cluster()["counters"]["role_changes"] >= before + 2
        return ", ".join(moved)

    def another_secret(self, _):
        self.must("rotate-secret")
        return ""

    def a_worker_more_and_less(self, chance):
        role = chance.choice(("prefill", "decode"))
        before = set(self.nodes())
        self.must("scale", f"{role}=+1")
        [more] = set(self.nodes()) - before
        wait_until("one more is a member", lambda: self.instances() == INSTANCES + 1, 30)
        wait_until("and is scraped", lambda: self.alarms.sees(PROCESSES + 1), 30)
        self.must("scale", f"{role}=-1")
        self.all_ready("after scaling")
        wait_until(f"{GONE} fires", lambda: self.alarms.fires(GONE), 30)
        return more

    def a_process_dies(self, chance):
        name, pid = chance.choice(sorted((n, p) for n, p in self.pids().items() if "gateway" not in n))
        os.kill(pid, signal.SIGKILL)
        self.wait_back(name, pid)
        self.all_ready(f"{name} is back")
        return name

    def faults(self):
        return [self.a_process_dies, self.the_leader_dies, self.another_secret, self.a_host_dies_and_boots_again, self.another_release,
                self.roles_switch, self.a_worker_more_and_less, self.a_gateway_and_its_host_die, self.all_processes_are_renewed]

    def suffer(self, fault, chance):
        """One fault: the cluster is whole after it, and Prometheus says so, too."""
        with self.no_renewal:
            self.objects.renew()
            self.objects.longest, self.objects.cut = 0.0, []
        began, before = time.monotonic(), (self.answers, self.objects.calls)
        where = fault(chance)
        took = time.monotonic() - began
        assert not self.wrong, self.wrong[:3]
        with self.no_renewal:
            self.objects.check()
        wait_until("all alarms are over", lambda: self.alarms.sees(PROCESSES), 60)
        fired = self.alarms.fired(time.monotonic() - began)
        print(f"     {fault.__name__} {where}: whole again after {took:.1f} s, {self.answers - before[0]} answers and {self.objects.calls - before[1]} "
              f"calls of the store meanwhile, the longest of {self.objects.longest:.1f} s, {len(self.objects.cut)} puts cut; {said(fired)} "
              f"over after {time.monotonic() - began:.1f} s", flush=True)
        must, may = RAISES.get(fault.__name__, (set(), set()))
        assert not self.objects.cut, self.objects.cut
        if fired is not None:
            self.judge(fault, where, fired, must, may)

    def judge(self, fault, where, fired, must, may):
        names = {name for name, _ in fired}
        assert must <= names <= must | may, (must, names)
        others = [process for name, process in fired if name == DOWN and not process.startswith(where)]
        assert not others or fault == self.another_release, others


def said(fired):
    if fired is None:
        return "alarms were not judged;"
    down = [process for name, process in fired if name == DOWN]
    named = [f"{DOWN} ({', '.join(down) if len(down) < 4 else f'{len(down)} processes'})"] if down else []
    return f"alarms: {', '.join(named + [name for name, _ in fired if name != DOWN]) or 'none'},"


def a_day(minutes=0, seed=1):
    needs_sshd()
    package()
    chance = random.Random(seed)
    with network(HOSTS) as (names, addresses, _), Day(names, addresses) as day:
        began = time.monotonic()
        day.must("up")
        day.ask(CHATS[0], 0)
        print(f"     from up to the first answer of {PROCESSES} processes on {HOSTS} hosts: {time.monotonic() - began:.1f} s", flush=True)
        for question in (*CHATS, *LONG_ANSWERS, *LONG_PROMPTS):
            question.tokens = day.ask(question, 0)
        with Alarms(day) if shutil.which("prometheus") else NoAlarms() as day.alarms, day.users():
            wait_until("all processes are scraped", lambda: day.alarms.sees(PROCESSES), 30)
            until = time.monotonic() + 60 * minutes
            faults = day.faults() if minutes else [day.a_gateway_and_its_host_die, day.the_leader_dies, day.roles_switch, day.another_secret]
            while faults:
                day.suffer(faults.pop(0), chance)
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
