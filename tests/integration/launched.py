#!/usr/bin/env python3
"""What tests of `mooncaf up` have in common: a cluster that was launched from a file, its users, a host behind ssh."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, Skipped, free_port, wait_until  # noqa: E402
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


def needs_sshd():
    if not os.path.exists("/usr/sbin/sshd") or not shutil.which("ssh"):
        raise Skipped("no sshd: examples/install_packages.sh --tests has it")
    if os.geteuid() != 0 or not possible():
        raise Skipped("network namespaces need root")


def front_and_far(addresses, far):
    """Two hosts, of which `far` says what the second one runs, reached over ssh."""
    return f"""[front]
address = "{addresses[0]}"
runner = "local"
conductor = 1
gateway = 1
prefill = 1
[far]
address = "{addresses[1]}"
{far}"""


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
