"""Starts mooncaf processes for a test, talks to them as a client would, and ends them.

Standard library only. Every wait is bounded and awaits an event; nothing sleeps for a guessed time.
"""
import atexit
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

def own_temporary_directory():
    """One for this script and for all that it starts: it is gone at the end, however its processes ended.

    A script that goes on under another interpreter (os.exec) is the same process, and keeps the one that it has.
    @returns the directory around it, for what shall outlive the script
    """
    owner, mark = os.getpid(), "MOONCAF_TEMPORARY_OF"
    if os.environ.get(mark) == str(owner):
        folder = os.environ["TMPDIR"]
    else:
        folder = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="mooncaf-test-")
        os.chmod(folder, 0o711)  # strangers in tests reach what is made for them there
    tempfile.tempdir, os.environ[mark] = folder, str(owner)
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return os.path.dirname(folder)


TEMPORARY = own_temporary_directory()

BINARY = os.environ.get("MOONCAF_BINARY", "build/actors/mooncaf")
MODEL = os.environ.get("MOONCAF_MODEL", "")
# A sanitizer makes everything several times slower: how many times longer to wait for it.
PATIENCE = 4 if os.environ.get("MOONCAF_SANITIZED") else 1


held_ports = {}  # port -> the name that keeps it ours; the kernel gives it back when this process ends


def free_port(host="127.0.0.1"):
    """A port that nobody listens on and that nobody else is given while this process lives.

    It lies below the ports that the kernel hands out by itself: of those, the one that was free a moment ago
    may be the local end of somebody's connection when the process that is told to listen there starts. An
    abstract socket's name holds it against other scripts that run at the same time.
    """
    first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(min(10000, first_ephemeral // 2), first_ephemeral)
        if hold_port(port, host):
            return port


def hold_port(port, host="127.0.0.1"):
    """Whether it was free, and is the caller's now."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0mooncaf-test-port-{port}")
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, port))
    except OSError:
        name.close()
        return False
    held_ports[port] = name
    return True


def free_ports(count, host="127.0.0.1"):
    """Ports that follow on each other."""
    while True:
        ports = [free_port(host)]
        while len(ports) < count and hold_port(ports[-1] + 1, host):
            ports.append(ports[-1] + 1)
        if len(ports) == count:
            return ports
        give_back_ports(ports)


def give_back_ports(ports):
    """Whoever makes one cluster after the other does that when one has ended."""
    for port in ports:
        held_ports.pop(port).close()


def wait_until(what, condition, seconds=30, every=0.05):
    """Polls `condition` until it is true; fails loudly with `what` after `seconds`."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s still not: {what}")
        select.select([], [], [], every)


class Process:
    """One mooncaf process with its log in a file."""

    def __init__(self, name, args, folder, netns=None, env=None, prefix=()):
        self.name, self.args, self.netns, self.prefix = name, args, netns, prefix
        self.log_path = pathlib.Path(folder) / f"{name}.log"
        self.env = {**os.environ, **(env or {})}
        self.start()

    def start(self):
        command = [*self.prefix, BINARY, *self.args]
        if self.netns:
            command = ["ip", "netns", "exec", self.netns, *command]
        self.log = open(self.log_path, "ab")
        self.log_before = self.log.tell()  # of earlier starts
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=self.env)

    def alive(self):
        return self.process.poll() is None

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self):
        if self.alive():
            self.process.terminate()
            try:
                code = self.process.wait(15)
                assert code == 0 or "ready roles=" not in self.output(), f"{self.name} ended with {code} when told to stop"
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
                raise AssertionError(f"{self.name} did not stop within 15 s of SIGTERM")
        self.log.close()

    def output(self):
        return self.log_path.read_text(errors="replace")

    def node(self):
        """The name by which it is known in the cluster, unless it was given one."""
        return f"node-{self.process.pid}"

    def rss_bytes(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


class Client:
    """A small OpenAI client."""

    def __init__(self, host, port, timeout=120):
        self.host, self.port, self.timeout = host, port, timeout * PATIENCE
        self.key = None  # of the API

    def request(self, method, path, body=None, headers=None):
        """Returns (status, headers, bytes)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            payload = json.dumps(body) if isinstance(body, (dict, list)) else body
            known = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            connection.request(method, path, payload, {"Content-Type": "application/json", **known, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        status, _, data = self.request(method, path, body, headers)
        return status, json.loads(data)

    def healthy(self):
        try:
            return self.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def complete(self, **fields):
        """A completion that is not streamed; returns the parsed body, which must be a success."""
        status, body = self.json("POST", "/v1/completions", fields)
        assert status == 200, (status, body)
        return body

    def chat(self, messages, **fields):
        status, body = self.json("POST", "/v1/chat/completions", {"messages": messages, **fields})
        assert status == 200, (status, body)
        return body

    def stream(self, path, body):
        """Yields the parsed events of a streamed answer, then None for [DONE]."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            for line in response:
                line = line.strip()
                if not line.startswith(b"data: "):
                    continue
                if line == b"data: [DONE]":
                    yield None
                    return
                yield json.loads(line[6:])
        finally:
            connection.close()

    def cluster(self):
        status, body = self.json("GET", "/cluster")
        assert status == 200
        return body

    def integrity(self):
        status, body = self.json("GET", "/integrity")
        assert status == 200
        return body


class Cluster:
    """Processes that form one cluster; a context manager that shows the logs of a failed test."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mooncaf-test-")
        self.processes = {}
        self.client = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        problems = []
        for process in reversed(list(self.processes.values())):
            with contextlib.suppress(ProcessLookupError):
                try:
                    process.stop()
                except AssertionError as e:
                    problems.append(str(e))
        if kind or problems:
            for process in self.processes.values():
                print(f"---- log of {process.name}:\n{process.output()[-6000:]}", file=sys.stderr)
        self.folder.cleanup()
        assert not problems or kind, problems

    def start(self, name, *args, netns=None, env=None, prefix=()):
        common = ["--model", MODEL] if not any(a.split("=")[0] == "--model" for a in args) else []
        # The secret that all of them share is made by the first, in a home of the test's own.
        home = {"XDG_CONFIG_HOME": os.path.join(self.folder.name, "config")}
        process = Process(name, [*common, *args], self.folder.name, netns, {**home, **(env or {})}, prefix)
        self.processes[name] = process
        return process

    def wait_healthy(self, host, port, seconds=60, key=None):
        self.client = Client(host, port)
        self.client.key = key

        def ready():
            for process in self.processes.values():
                assert process.alive() or process.process.returncode == -9, f"{process.name} ended early"
            return self.client.healthy()

        wait_until("the gateway serves", ready, seconds)
        return self.client

    def wait_idle(self, seconds=30):
        """Waits until nothing is held for any request any more: what `/integrity` counts."""
        last = {}

        def idle():
            last.update(self.client.integrity())
            return last if last["idle"] else None
        try:
            return wait_until("no block, pin or request is left over", idle, seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}: {json.dumps(last)[:2000]}") from None


def one_server(cluster, *extra, name="all"):
    """Starts a process with every role at ports of its own; returns a client of it once it serves."""
    port = free_port()
    cluster.start(name, "--role", "all", "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0",
                  "--metrics-listen", "127.0.0.1:0", *extra)
    return cluster.wait_healthy("127.0.0.1", port)


def modelled(folder, block_tokens=64, max_batch=16, memory_tokens=60000):
    """Options for a device that takes no processor time and waits instead: a prompt of 200 tokens takes some 100 ms, a token
    some 12 more. Its answers depend on every token before them, and on the KV that it is given."""
    path = pathlib.Path(folder, f"modelled-{block_tokens}-{max_batch}-{memory_tokens}.toml")
    if path.exists():  # perhaps another process is reading it
        return ["--device", f"model:{path}"]
    path.write_text(f"""name = "modelled"
[model]
layers = 2
kv_bytes_per_token = 8
block_tokens = {block_tokens}
[prefill]
constant_ms = 4
token_us = 500
pair_ns = 100
cached_token_us = 5
chunk_tokens = 64
[decode]
constant_ms = 12
sequence_us = 200
context_token_ns = 100
max_batch = {max_batch}
device_kv_tokens = {memory_tokens}
[node]
nic_gbit_per_s = 10
network_latency_us = 50
ssd_gb_per_s = 1
dram_tokens = {memory_tokens}
ssd_tokens = 0
""")
    return ["--device", f"model:{path}"]


def text_of(body):
    choice = body["choices"][0]
    return choice.get("text", choice.get("message", {}).get("content"))


class Skipped(Exception):
    """This machine does not allow a test; the text says what it lacks."""


def outcome_of(test):
    """Runs it and says in a line how it went; "passed", "failed" or "skipped"."""
    began = time.monotonic()
    try:
        test()
        print(f"ok   {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        return "passed"
    except Skipped as why:
        print(f"SKIPPED: {test.__name__}: {why}", flush=True)
        return "skipped"
    except Exception as e:  # a test may fail in any way; the next one still runs
        traceback.print_exc()
        print(f"FAIL {test.__name__}: {e}", flush=True)
        return "failed"


def main(tests, at_once=1):
    """Runs the functions, so many at once, prints one line each, ends with a summary that the test runner reads."""
    wanted = sys.argv[1:]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        outcomes = list(pool.map(outcome_of, [t for t in tests if not wanted or t.__name__ in wanted]))
    passed, failed, skipped = (outcomes.count(o) for o in ("passed", "failed", "skipped"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of processor time")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0)
