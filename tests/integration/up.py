#!/usr/bin/env python3
"""`mooncaf up` and its companions: a cluster from one file, of hosts that are all this machine, and of two that are network
namespaces with a private sshd in one of them (needs root, iproute2 and openssh-server)."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, Skipped, free_port, main, wait_until  # noqa: E402
from hosts import network, possible  # noqa: E402

TINY = "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512"


class Launched:
    """A cluster file in a folder of its own, and the commands on it."""

    def __init__(self, hosts=None, front="127.0.0.1"):
        self.folder = tempfile.TemporaryDirectory(prefix="mooncaf-up-")
        self.home = pathlib.Path(self.folder.name)
        self.http, self.control = free_port(front), free_port(front)
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.home / "state")}
        self.file = self.home / "cluster.toml"
        self.file.write_text(f"""[launch]
binary = "{BINARY}"
port = {self.control}
ready_within = "60s"
[model]
path = "{TINY}"
[cache]
dram = "32MiB"
[metrics]
listen = "127.0.0.1:0"
[gateway]
http = "{front}:{self.http}"
""" + (hosts or """[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
[west]
address = "127.0.0.1"
prefill = 2
[east]
address = "127.0.0.1"
decode = 2
"""))
        self.client = Client(front, self.http)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            for log in self.home.rglob("*.log"):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        self.run("stop")
        self.folder.cleanup()

    def run(self, command, *args):
        return subprocess.run([BINARY, command, str(self.file), *args], env=self.env, capture_output=True, text=True, timeout=300)

    def must(self, command, *args):
        done = self.run(command, *args)
        assert done.returncode == 0, f"{command} {args}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def nodes(self):
        return {n["node"]: n for n in json.loads(self.run("status", "--json").stdout)["nodes"]}

    def pids(self):
        return {name: n["pid"] for name, n in self.nodes().items()}

    def chat(self):
        return self.client.chat([{"role": "user", "content": "Say something."}], max_tokens=8, temperature=0)

    def instances(self):
        return len(self.client.cluster()["instances"])

    def wait_back(self, node, was):
        """Until the process runs again under another id."""
        def back():
            now = self.nodes()[node]
            return now["state"] == "ready" and now["pid"] != was

        wait_until(f"{node} is back", back)

    def left_over(self):
        """Processes that were started with this cluster's state, and files of it."""
        mark = f"XDG_STATE_HOME={self.home}/state".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes())
        return found + [p for p in (self.home / "state").rglob("*") if not p.is_dir()]


def serves_and_brings_back_what_dies():
    with Launched() as cluster:
        began = time.monotonic()
        cluster.must("up")
        first = cluster.chat()
        print(f"     from up to the first answer of 6 processes: {time.monotonic() - began:.2f} s")
        before = cluster.pids()
        assert sorted(before) == ["east-decode-0", "east-decode-1", "front-conductor", "front-gateway", "west-prefill-0", "west-prefill-1"]
        assert "ready" in cluster.must("status").stdout
        cluster.must("up")
        assert cluster.pids() == before, "the second up started something"

        os.kill(before["west-prefill-0"], signal.SIGKILL)
        cluster.wait_back("west-prefill-0", before["west-prefill-0"])
        assert cluster.nodes()["west-prefill-0"]["last_end"] == "signal 9" and cluster.nodes()["west-prefill-0"]["starts"] == 2
        wait_until("the conductor sees it", lambda: cluster.instances() == 4)
        assert cluster.chat()["choices"] == first["choices"]
        assert "ready roles=prefill,cache" in cluster.must("logs", "west-prefill-0").stdout

        # An agent that is killed takes its processes with it; the next up starts both.
        agent = int(next(cluster.home.glob("state/mooncaf/*/east/agent.pid")).read_text().split()[0])
        os.kill(agent, signal.SIGKILL)
        wait_until("its processes have ended",
                   lambda: not any(os.path.exists(f"/proc/{before[n]}") for n in ("east-decode-0", "east-decode-1")))
        assert cluster.run("status").returncode == 1
        # As systemd does after a reboot (config/package/mooncaf-agent@.service).
        name = next(cluster.home.glob("state/mooncaf/*/east")).relative_to(cluster.home / "state/mooncaf")
        revived = subprocess.Popen([BINARY, "agent", "run", str(name)], env=cluster.env)
        wait_until("the host is back", lambda: cluster.nodes()["east-decode-1"]["state"] == "ready")
        again = subprocess.run([BINARY, "agent", "run", str(name)], env=cluster.env, capture_output=True, text=True, timeout=30)
        assert again.returncode == 1 and f"runs already, as process {revived.pid}" in again.stderr, again
        cluster.must("up")
        assert cluster.chat()["choices"] == first["choices"]

        cluster.must("stop")
        assert revived.wait(30) == 0
        assert cluster.left_over() == []


@contextlib.contextmanager
def talking(log):
    """The process that writes this log says something all the time."""
    over = threading.Event()

    def talk():
        with log.open("a", buffering=1) as out:
            while not over.wait(0.001):
                out.write("2026-01-01T00:00:00.000 I front-gateway peer up\n")

    with concurrent.futures.ThreadPoolExecutor(1) as voice:
        voice.submit(talk)
        try:
            yield
        finally:
            over.set()


def while_asked(cluster, work):
    """Two users ask for the same while `work` is done. @returns what they were answered, and what failed."""
    over, answers, lost = threading.Event(), [], []

    def ask():
        while not over.is_set():
            try:
                answers.append(cluster.chat()["choices"])
            except (OSError, AssertionError) as why:
                lost.append(why)

    with concurrent.futures.ThreadPoolExecutor(2) as users:
        asking = [users.submit(ask) for _ in range(2)]
        try:
            work()
        finally:
            over.set()
        for one in asking:
            one.result()
    return answers, lost


def groups_over_hosts_start_serve_and_come_back():
    """Stages of one model in processes of two hosts: found by name, shown, scraped, started again with their leader."""
    with Launched("""[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
[west]
address = "127.0.0.1"
prefill = 1
prefill_ranks = "east"
[east]
address = "127.0.0.1"
decode = 1
decode_ranks = "east"
""") as cluster:
        cluster.must("up")
        before = cluster.pids()
        assert sorted(before) == ["east-decode-0", "east-decode-0-rank-1", "front-conductor", "front-gateway", "west-prefill-0",
                                  "west-prefill-0-rank-1"]
        wait_until("the conductor knows both groups", lambda: len(cluster.client.cluster()["ranks"]) == 4)
        ranks = [(r["node"], r["process"], r["layers"], bool(r["at"])) for r in cluster.client.cluster()["ranks"]]
        assert sorted(ranks) == [("east-decode-0", "east-decode-0", "2 to 2", False), ("east-decode-0", "east-decode-0-rank-1", "1 to 1", True),
                                 ("west-prefill-0", "west-prefill-0", "2 to 2", False),
                                 ("west-prefill-0", "west-prefill-0-rank-1", "1 to 1", True)], ranks
        log = next(cluster.home.rglob("front-conductor.log")).read_text()
        port = int(re.search(r" metrics at=127.0.0.1:(\d+)", log)[1])
        conductor = Client("127.0.0.1", int(port))

        def scraped_processes():
            targets = {t["labels"]["process"]: t["targets"][0] for t in json.loads(conductor.request("GET", "/targets")[2])}
            return targets if set(targets) == set(before) else None

        scraped = wait_until("every process is listed for Prometheus", scraped_processes)
        host, port = scraped["west-prefill-0-rank-1"].split(":")
        assert Client(host, int(port)).request("GET", "/metrics")[0] == 200
        first = cluster.chat()["choices"]
        os.kill(before["west-prefill-0-rank-1"], signal.SIGKILL)
        cluster.wait_back("west-prefill-0-rank-1", before["west-prefill-0-rank-1"])
        assert cluster.chat()["choices"] == first
        assert cluster.pids()["west-prefill-0"] != before["west-prefill-0"], "a leader without its rank went on"
        before, told = cluster.pids(), sum(log.read_text().count("rank lost") for log in cluster.home.rglob("*.log"))
        answers, lost = while_asked(cluster, lambda: cluster.must("restart", "--rolling"))
        assert answers and all(a == first for a in answers) and not lost, (len(answers), lost[:3])
        assert not set(cluster.pids().values()) & set(before.values())
        logs = {log.name: log.read_text() for log in cluster.home.rglob("*.log")}
        assert sum(text.count("rank lost") for text in logs.values()) == told, "a leader ended before its requests did"
        began = time.monotonic()
        cluster.must("stop")
        assert time.monotonic() - began < 30, "a process that was asked for /targets did not end by itself"
        assert cluster.left_over() == []


def scales_drains_and_restarts_under_requests():
    with Launched() as cluster:
        cluster.must("up")
        answer = cluster.chat()["choices"]
        before = cluster.pids()
        cluster.must("scale", "prefill=+1")
        assert "prefill = 3\n" in cluster.file.read_text()
        assert {n: p for n, p in cluster.pids().items() if n != "west-prefill-2"} == before
        wait_until("the conductor sees it", lambda: cluster.instances() == 5)

        began = time.monotonic()
        answers, lost = while_asked(cluster, lambda: cluster.must("restart", "--rolling"))
        took = time.monotonic() - began
        print(f"     {len(answers)} requests while 7 processes were restarted in {took:.1f} s, {len(lost)} of them lost")
        assert answers and all(a == answer for a in answers)
        assert not lost, f"{len(lost)} requests failed beside {len(answers)}: {lost[:3]}"
        assert not set(cluster.pids().values()) & set(before.values())
        assert cluster.chat()["choices"] == answer

        cluster.must("drain", "west-prefill-1")
        assert cluster.nodes()["west-prefill-1"]["state"] == "not running"
        assert cluster.chat()["choices"] == answer
        cluster.must("scale", "prefill=-2")
        assert [n for n in cluster.nodes() if n.startswith("west")] == ["west-prefill-0"]
        assert cluster.chat()["choices"] == answer


def status_says_which_conductor_leads():
    hosts = "".join(f"""[host{n}]
address = "127.0.0.{n + 1}"
runner = "local"
conductor = 1
gateway = {int(n == 0)}
prefill = {int(n == 1)}
decode = {int(n == 2)}
""" for n in range(3))
    with Launched(hosts) as cluster:
        cluster.must("up")
        cluster.chat()
        leaders = lambda: [name for name, n in cluster.nodes().items() if n["leads"]]  # noqa: E731
        wait_until("one leads", lambda: len(leaders()) == 1, 30)
        [was] = leaders()
        table = cluster.must("status").stdout
        assert table.count("(leads)") == 1 and table.count("(stands by)") == 2, table
        os.kill(cluster.pids()[was], signal.SIGKILL)
        wait_until("another leads", lambda: len(leaders()) == 1 and leaders() != [was], 30)
        assert cluster.chat()["choices"]


def a_successor_that_cannot_start_leaves_the_gateway():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        right = cluster.file.read_text()
        cluster.file.write_text(right.replace("gateway = 1", "gateway = 1\nmax_requests = 1\napi_keys_file = \"keys\""))
        (cluster.home / "keys").write_text("not a list of keys\n")
        [log] = cluster.home.rglob("front-gateway.log")
        with talking(log):
            done = cluster.run("restart", "--rolling")
        assert done.returncode == 1, done
        assert re.search(r"front-gateway's successor ended with exit status \d+: .*keys.*; the process that ran goes on", done.stderr), done.stderr
        assert cluster.pids()["front-gateway"] == before["front-gateway"]
        assert cluster.chat()["choices"] == answer
        cluster.file.write_text(right)


def a_restart_keeps_the_logs():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        cluster.must("restart")
        assert not set(cluster.pids().values()) & set(before.values())
        assert cluster.chat()["choices"] == answer
        for node in before:
            assert cluster.must("logs", node).stdout.count(" ready roles=") == 2, node
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 2\nlora_modules = \"a=/nowhere\""))
        done = cluster.run("restart")
        assert done.returncode == 1 and "nowhere" in done.stderr and "the logs are kept" in done.stderr, done
        assert "nowhere" in cluster.run("logs").stdout


def a_gateway_with_a_certificate_is_waited_for():
    with Launched() as cluster:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", cluster.home / "key.pem", "-out", cluster.home / "cert.pem"],
                       check=True, capture_output=True)
        text = cluster.file.read_text().replace("[gateway]", "[gateway]\ntls_certificate_file = \"cert.pem\"\ntls_key_file = \"key.pem\"")
        # Without a decode process nothing can be served, and `up` says so of this gateway, too.
        cluster.file.write_text(text.replace("decode = 2", "decode = 0").replace('ready_within = "60s"', 'ready_within = "2s"'))
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert f"the gateway at https://127.0.0.1:{cluster.http} serves no request after 2s" in done.stderr, done.stderr
        cluster.file.write_text(text)
        assert f"serves at https://127.0.0.1:{cluster.http}" in cluster.must("up").stdout
        trusts = ssl.create_default_context(cafile=str(cluster.home / "cert.pem"))
        trusts.check_hostname = False
        front = http.client.HTTPSConnection("127.0.0.1", cluster.http, context=trusts, timeout=30)
        front.request("GET", "/health")
        assert front.getresponse().status == 200
        front.close()


def an_object_store_comes_back_with_what_it_held():
    """Memory for a third of the objects, so most are read from SSD; one of the two nodes is killed."""
    with Launched() as cluster:
        directory = free_port()
        cluster.file.write_text(f"""[launch]
port = {cluster.control}
[metrics]
listen = "127.0.0.1:0"
[front]
address = "127.0.0.1"
conductor = 1
store_listen = "127.0.0.1:{directory}"
[pool]
address = "127.0.0.1"
cache = 2
store_dram = "16MiB"
store_ssd_path = "{cluster.home}/ssd"
store_ssd_size = "256MiB"
store_write_policy = "write_through"
""")
        cluster.must("up")
        secret = str(next((cluster.home / "state/mooncaf").glob("*.secret")))

        def store(*words, given=None):
            return subprocess.run([BINARY, "store", *words, "--directory", f"127.0.0.1:{directory}", "--cluster-secret-file", secret],
                                  input=given, capture_output=True, timeout=60)

        def stored():
            return json.loads(store("stat", "--json").stdout)

        def segments():
            return store("segments", "--json").stdout.count(b'"medium"')

        wait_until("both are mounted", lambda: segments() == 4)
        values = {f"value-{n}": os.urandom(1 << 20) for n in range(60)}
        for written, (name, value) in enumerate(values.items(), 1):
            assert store("put", name, given=value).returncode == 0
            wait_until("it is on SSD", lambda: stored()["ssd_objects"] == written)  # what comes faster stays in memory
        assert all(store("get", name).stdout == value for name, value in values.items())
        os.kill(cluster.pids()["pool-cache-1"], signal.SIGKILL)
        wait_until("its loss is noticed", lambda: segments() < 4)
        wait_until("it is back", lambda: segments() == 4)
        assert all(store("get", name).stdout == value for name, value in values.items())


def a_busy_port_or_host_out_of_reach_leaves_nothing():
    with Launched() as cluster, socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.http))
        taken.listen()
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(rf"front \(this machine\): 127.0.0.1:{cluster.http} is taken", done.stderr), done.stderr
        assert cluster.left_over() == []
    unreachable = """[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1
[away]
address = "127.0.0.1"
runner = "ssh"
ssh = "no-such-host.invalid"
decode = 1
"""
    with Launched(unreachable) as cluster:
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(r"away \(ssh no-such-host.invalid\): .*ssh", done.stderr), done.stderr
        assert cluster.left_over() == []
        cluster.file.write_text(cluster.file.read_text().replace('ready_within = "60s"', 'ready_within = "3s"'))
        done = cluster.run("up", "--keep-going")
        assert done.returncode == 1 and f"gateway at http://127.0.0.1:{cluster.http} serves no request" in done.stderr, done
        assert "serves at" not in done.stdout, done
        states = {name: n["state"] for name, n in cluster.nodes().items()}
        assert states == {"front-conductor": "ready", "front-gateway": "ready", "front-prefill-0": "ready", "away-decode-0": "unknown"}, states


def a_process_that_cannot_start_is_named_and_the_rest_ended():
    with Launched() as cluster:
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 2\nlora_modules = \"a=/nowhere\""))
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(r"east \(this machine\): .*east-decode-\d ended with exit status \d+: .*nowhere", done.stderr), done.stderr
        assert cluster.left_over() == []


def an_interrupted_up_leaves_nothing():
    with Launched() as cluster:
        up = subprocess.Popen([BINARY, "up", str(cluster.file)], env=cluster.env, stderr=subprocess.PIPE, text=True)
        for line in up.stderr:
            if "processes are ready" in line:  # the conductor's
                up.send_signal(signal.SIGINT)
                break
        rest = up.stderr.read()
        assert up.wait(60) == 1 and "interrupted" in rest, rest
        up.stderr.close()
        assert cluster.left_over() == []


def a_secret_of_the_operator_is_used_and_kept():
    with Launched() as cluster:
        secret = cluster.home / "shared"
        secret.touch(0o600)
        secret.write_text("0123456789abcdef" * 2)
        cluster.file.write_text(cluster.file.read_text().replace("[launch]", "[launch]\nsecret_file = \"shared\""))
        cluster.must("up")
        copies = list((cluster.home / "state").rglob("secret"))
        assert len(copies) == 3 and all(c.read_text() == secret.read_text() for c in copies)
        cluster.must("stop")
        assert cluster.left_over() == [] and secret.exists()


def another_secret_loses_no_request_and_shuts_out_the_old_one():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        [kept] = (cluster.home / "state").rglob("*.secret")
        old = kept.read_text()
        began = time.monotonic()
        answers, lost = while_asked(cluster, lambda: cluster.must("rotate-secret"))
        print(f"     another secret in {time.monotonic() - began:.1f} s, {len(answers)} requests meanwhile, {len(lost)} of them lost")
        assert answers and all(a == answer for a in answers) and not lost, lost[:3]
        assert cluster.pids() == before, "a process was started anew"
        for file in [kept, *cluster.home.rglob("secret")]:
            assert file.read_text() == kept.read_text() != old and file.stat().st_mode & 0o777 == 0o600, file
        os.kill(before["east-decode-0"], signal.SIGKILL)  # its successor knows the new one alone
        cluster.wait_back("east-decode-0", before["east-decode-0"])
        wait_until("the conductor sees it", lambda: cluster.instances() == 4)
        assert cluster.chat()["choices"] == answer

        stale = cluster.home / "stale"
        stale.write_text(old)
        stale.chmod(0o600)
        log = cluster.home / "stale.log"
        with log.open("wb") as out:
            stranger = subprocess.Popen([BINARY, "--role", "decode", "--model", TINY, "--cache-dram", "32MiB", "--join", f"127.0.0.1:{cluster.control}",
                                         "--listen", "127.0.0.1:0", "--cluster-secret-file", str(stale)], stderr=out)
        try:
            wait_until("it is told why it is not let in", lambda: "does not share our cluster secret" in log.read_text())
            assert cluster.instances() == 4
        finally:
            stranger.kill()
            stranger.wait(10)

        kept.write_text("one secret of many\nanother secret of many\na third secret of many\n")
        done = cluster.run("rotate-secret")
        assert done.returncode == 1 and "3 secrets" in done.stderr, done
        assert cluster.chat()["choices"] == answer


def a_host_without_the_model_gets_it_from_others():
    model = os.environ["MOONCAF_MODEL"]
    hosts = """[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1
[west]
address = "127.0.0.1"
model = "WEST/model.gguf"
decode = 1
[east]
address = "127.0.0.1"
model = "EAST/deep/model.gguf"
decode = 1
"""
    with Launched(hosts) as cluster:
        for name in ("front", "west"):
            (cluster.home / name).mkdir()
        os.symlink(model, cluster.home / "front/model.gguf")
        text = cluster.file.read_text().replace(f'path = "{TINY}"', f'path = "{cluster.home}/front/model.gguf"\ncontext_length = 512')
        cluster.file.write_text(text.replace("WEST", f"{cluster.home}/west").replace("EAST", f"{cluster.home}/east"))
        want = pathlib.Path(model).read_bytes()
        # An earlier attempt left half of it, and something wrong in there.
        (cluster.home / "west/model.gguf.part").write_bytes(want[:len(want) // 2 - 1] + bytes([want[len(want) // 2] ^ 255]))
        began = time.monotonic()
        said = cluster.must("up").stderr
        print(f"     three hosts, two without the model of {len(want) / 1e6:.0f} MB: {time.monotonic() - began:.1f} s")
        for there in ("west/model.gguf", "east/deep/model.gguf"):
            assert (cluster.home / there).read_bytes() == want, there
        assert not list(cluster.home.rglob("*.part"))
        assert re.search(r"east.*: its model, 100 % of 0\.\d+ GB, \d+ MB/s\n", said) and "west (this machine): has the model" in said, said
        assert cluster.chat()["choices"][0]["message"]["content"]

        cluster.must("stop")
        wait_until("the offers have ended, too", lambda: cluster.left_over() == [])
        (cluster.home / "east/deep/model.gguf").write_bytes(want[:64] + want[:63:-1])  # another, of the same size
        (cluster.home / "west/model.gguf").unlink()
        said = cluster.run("up").stderr  # what east has is no model
        assert (cluster.home / "west/model.gguf").read_bytes() == want
        assert "east-decode-0 ended" in said, said
        assert re.search(r"west.*: its model, not from 127\.0\.0\.1:\d+: has another content than 127\.0\.0\.1:\d+\n", said), said
        (cluster.home / "west/model.gguf").unlink()
        os.unlink(cluster.home / "front/model.gguf")
        os.rename(cluster.home / "east/deep/model.gguf", cluster.home / "east/deep/other.gguf")
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert f"west (this machine): has no model {cluster.home}/west/model.gguf, and no other host has one of that name" in done.stderr, done.stderr


def a_model_on_its_way_does_not_hold_an_interrupted_up():
    if os.geteuid() != 0 or not possible() or not os.path.exists("/usr/sbin/sshd"):
        raise Skipped("network namespaces need root, and a host a sshd")
    with network(2) as (names, addresses, _):
        hosts = f"""[front]
address = "{addresses[0]}"
runner = "local"
conductor = 1
gateway = 1
prefill = 1
[far]
address = "{addresses[1]}"
model = "FAR"
decode = 1
"""
        with Launched(hosts, addresses[0]) as cluster, private_sshd(cluster, names[1], addresses[1]):
            subprocess.run(["tc", "-n", names[0], "qdisc", "add", "dev", "eth", "root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "50ms"], check=True)
            model = pathlib.Path(os.environ["MOONCAF_MODEL"])
            text = cluster.file.read_text().replace(f'path = "{TINY}"', f'path = "{model}"')
            cluster.file.write_text(text.replace("FAR", f"{cluster.home}/far/{model.name}"))
            up = subprocess.Popen([BINARY, "up", str(cluster.file)], env=cluster.env, stderr=subprocess.PIPE, text=True)
            for line in up.stderr:
                if "its model, " in line:
                    break
            up.send_signal(signal.SIGINT)
            began = time.monotonic()
            said = up.communicate(timeout=60)[1]
            assert up.returncode == 1 and "interrupted" in said, said
            assert time.monotonic() - began < 10, "the whole model was waited for"
            wait_until("nothing of it runs on", lambda: [p for p in cluster.left_over() if isinstance(p, bytes) and BINARY.encode() in p] == [], 60)


def weights_are_brought_by_hand():
    with Launched() as cluster:
        want = os.urandom(30_000_001)
        (cluster.home / "M.gguf").write_bytes(want)
        offer = subprocess.Popen([BINARY, "weights", "offer", str(cluster.home / "M.gguf"), "--idle", "5s"], env=cluster.env, stdout=subprocess.PIPE, text=True)
        try:
            at = re.fullmatch(r"offers .* at (127\.0\.0\.1:\d+)\n", offer.stdout.readline())[1]
            fetch = lambda: subprocess.run([BINARY, "weights", "fetch", "here.gguf", "--from", f"{at},127.0.0.1:1"],  # noqa: E731
                                           env=cluster.env, cwd=cluster.home, capture_output=True, text=True, timeout=60)
            done = fetch()
            assert done.returncode == 0 and "not used: 127.0.0.1:1: " in done.stderr, done
            assert (cluster.home / "here.gguf").read_bytes() == want
            again = fetch()
            assert again.returncode == 1 and "is there already" in again.stderr, again
            assert offer.wait(60) == 0, "an offer ends when nobody wants it any more"
        finally:
            offer.kill()
            offer.wait(10)
            offer.stdout.close()


def a_rotation_that_is_cut_off_goes_on():
    with Launched() as cluster:
        cluster.must("up")
        answer = cluster.chat()["choices"]
        [kept] = (cluster.home / "state").rglob("*.secret")
        [folder] = [f.parent for f in cluster.home.rglob("secret") if f.parent.name == "east"]
        agent = folder / "agent.pid"
        was = agent.read_text()
        agent.write_text("1 1\n")  # nobody answers there
        done = cluster.run("rotate-secret")
        assert done.returncode == 1 and "east" in done.stderr and "call this again" in done.stderr, done
        assert cluster.chat()["choices"] == answer
        agent.write_text(was)
        cluster.must("rotate-secret")
        assert len({f.read_text() for f in [kept, *cluster.home.rglob("secret")]}) == 1
        assert cluster.chat()["choices"] == answer


def a_wrong_file_is_refused_with_its_line():
    with Launched() as cluster:
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 65"))
        done = cluster.run("up")
        assert done.returncode == 2 and re.search(r"cluster.toml:\d+: east.decode 65 is out of range; allowed: 0 to 64", done.stderr), done
        cluster.file.write_text(cluster.file.read_text().replace("decode = 65", "decode = 2"))
        cluster.file.unlink()
        for command in (["up"], ["scale", "decode=+1"]):
            done = cluster.run(*command)
            assert done.returncode == 2 and "cannot read" in done.stderr and str(cluster.file) in done.stderr, done


def the_secret_is_in_no_argument_environment_or_log():
    with Launched() as cluster:
        cluster.must("up")
        secrets = list(cluster.home.rglob("secret"))
        assert secrets and all(p.stat().st_mode & 0o777 == 0o600 for p in secrets)
        text = secrets[0].read_bytes().strip()
        for process in [*cluster.pids().values(),
                        *(int(p.read_text().split()[0]) for p in cluster.home.rglob("agent.pid"))]:
            for place in ("cmdline", "environ"):
                assert text not in pathlib.Path(f"/proc/{process}/{place}").read_bytes()
        for file in cluster.home.rglob("*"):
            assert not file.is_file() or file.name.endswith("secret") or text not in file.read_bytes(), file


@contextlib.contextmanager
def private_sshd(cluster, namespace, address):
    """An sshd of the test's own in a namespace, and an ssh client that knows it: the system's, with a configuration of the
    test's own. Yields the sshd."""
    def at(name):
        return str(cluster.home / name)

    for key in ("host-key", "user-key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key)], check=True)
    host_key = pathlib.Path(at("host-key.pub")).read_text()
    pathlib.Path(at("known")).write_text(f"{address} {host_key}")
    pathlib.Path(at("ssh.conf")).write_text(f"IdentityFile {at('user-key')}\nIdentitiesOnly yes\nUserKnownHostsFile {at('known')}\n")
    pathlib.Path(at("sshd.conf")).write_text(f"""ListenAddress {address}
HostKey {at('host-key')}
AuthorizedKeysFile {at('user-key.pub')}
StrictModes no
UsePAM no
PidFile none
SetEnv XDG_STATE_HOME={cluster.env['XDG_STATE_HOME']} TMPDIR={os.environ.get('TMPDIR', '/tmp')}
""")
    (cluster.home / "bin").mkdir()
    client = cluster.home / "bin" / "ssh"
    client.write_text(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {at('ssh.conf')} \"$@\"\n")
    client.chmod(0o755)
    cluster.env["PATH"] = f"{client.parent}:{os.environ['PATH']}"
    separation = pathlib.Path("/run/sshd")  # where sshd's unprivileged part lives; a booted system has it
    made = not separation.exists()
    separation.mkdir(exist_ok=True)
    with open(at("sshd.log"), "wb") as log:
        sshd = subprocess.Popen(["ip", "netns", "exec", namespace, "/usr/sbin/sshd", "-D", "-e", "-f", at("sshd.conf")], stderr=log)
    try:
        wait_until("sshd listens", lambda: b"listening" in pathlib.Path(at("sshd.log")).read_bytes())
        yield sshd
    finally:
        sshd.terminate()
        sshd.wait(10)
        if made:
            separation.rmdir()


def two_hosts_over_ssh():
    if not os.path.exists("/usr/sbin/sshd") or not shutil.which("ssh"):
        raise Skipped("no sshd: examples/install_packages.sh --tests has it")
    if os.geteuid() != 0 or not possible():
        raise Skipped("network namespaces need root")
    with network(2) as (names, addresses, _):
        hosts = f"""[front]
address = "{addresses[0]}"
runner = "local"
conductor = 1
gateway = 1
prefill = 1
[far]
address = "{addresses[1]}"
prefill = 1
decode = 2
"""
        with Launched(hosts, addresses[0]) as cluster, private_sshd(cluster, names[1], addresses[1]) as sshd:
            began = time.monotonic()
            cluster.must("up")
            answer = cluster.chat()["choices"]
            print(f"     over ssh, from up to the first answer of 6 processes: {time.monotonic() - began:.2f} s")
            before = cluster.pids()
            far = pathlib.Path(f"/proc/{before['far-decode-0']}/ns/net").readlink()
            assert far != pathlib.Path("/proc/thread-self/ns/net").readlink(), "it runs on the first host"
            os.kill(before["far-decode-0"], signal.SIGKILL)
            cluster.wait_back("far-decode-0", before["far-decode-0"])
            assert cluster.chat()["choices"] == answer
            assert "ready roles=decode" in cluster.must("logs", "far-decode-1").stdout
            cluster.must("scale", "decode=+1")
            assert cluster.nodes()["far-decode-2"]["state"] == "ready"
            cluster.must("stop")
            assert cluster.left_over() == []
            sshd.terminate()
            sshd.wait(10)
            done = cluster.run("up")
            assert done.returncode == 1, done
            assert re.search(rf"far \(ssh {addresses[1]}\): cannot be reached by `ssh {addresses[1]}`: .*refused", done.stderr), done.stderr
            assert cluster.left_over() == []


if __name__ == "__main__":
    main([two_hosts_over_ssh, serves_and_brings_back_what_dies, groups_over_hosts_start_serve_and_come_back, scales_drains_and_restarts_under_requests, status_says_which_conductor_leads,
          a_successor_that_cannot_start_leaves_the_gateway, an_object_store_comes_back_with_what_it_held, a_restart_keeps_the_logs, a_gateway_with_a_certificate_is_waited_for,
          a_busy_port_or_host_out_of_reach_leaves_nothing, a_process_that_cannot_start_is_named_and_the_rest_ended,
          an_interrupted_up_leaves_nothing, a_secret_of_the_operator_is_used_and_kept,
          another_secret_loses_no_request_and_shuts_out_the_old_one, a_rotation_that_is_cut_off_goes_on,
          a_host_without_the_model_gets_it_from_others, a_model_on_its_way_does_not_hold_an_interrupted_up, weights_are_brought_by_hand,
          a_wrong_file_is_refused_with_its_line, the_secret_is_in_no_argument_environment_or_log])
