#!/usr/bin/env python3
"""How processes start, and why they do not: what each role loads, what is checked before anything is loaded, who is
let in, and the exit status of every failure.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, PATIENCE, Cluster, Skipped, free_port, main, one_server, wait_until  # noqa: E402

TINY = "dummy:layers=1,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=600,type=q8_0,ctx=128"  # ready at once
BIG = "dummy:llama3-8b"  # 5 GB of weights, which take 20 s to make
PORTS = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")


def wait_ready(process, seconds=30):
    def ready():
        assert process.alive(), process.output()
        return "ready roles=" in process.output()

    wait_until(f"{process.name} is ready", ready, seconds, every=0.01)


def peak_bytes(process):
    for line in open(f"/proc/{process.process.pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def roles_that_compute_nothing_start_without_the_weights():
    with Cluster() as cluster:
        for role in ("conductor,gateway", "conductor", "conductor,cache"):
            began = time.monotonic()
            process = cluster.start(role.replace(",", "-"), "--model", BIG, "--role", role, "--http", "127.0.0.1:0",
                                    "--cache-dram", "64MiB", *PORTS)
            wait_ready(process)
            took, peak = time.monotonic() - began, peak_bytes(process)
            print(f"     {role}: ready after {took:.2f} s, {peak >> 20} MiB at most")
            assert took < 5 * PATIENCE, took
            assert peak < (200 << 20) * PATIENCE, peak


def refused(args, code, *words, seconds=5, prefix=(), env=None):
    """The process ends by itself, before it could have loaded anything, with this status and these words."""
    with tempfile.TemporaryDirectory() as home:
        run = subprocess.run([*prefix, BINARY, *args], capture_output=True, text=True, timeout=seconds * PATIENCE,
                             env={**os.environ, "XDG_CONFIG_HOME": home, **(env or {})})
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == code, (args, run.returncode, run.stderr[-2000:])
    assert all(word in last for word in words), (words, run.stderr[-2000:])


def what_is_wrong_is_said_before_the_model_is_loaded():
    usual = ["--model", BIG, "--http", "127.0.0.1:0", *PORTS]
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("http", "listen", "metrics-listen", "data-listen"):
            refused([*usual, f"--{option}", at], 5, at, f"--{option}", "in use", "choose another port")
        refused([*usual, "--http", "no-such-host.invalid:0"], 5, "no-such-host.invalid", "--http")
        refused([*usual, "--http", "192.0.2.1:0"], 5, "192.0.2.1", "no network interface")
        refused([*usual, "--api-key-file", f"{folder}/key"], 8, f"{folder}/key", "No such file")
        refused([*usual, "--tls-key-file", f"{folder}/key"], 8, "--tls-certificate-file", "go together")
        refused([*usual, "--tls-key-file", f"{folder}/key", "--tls-certificate-file", f"{folder}/cert"], 8, f"{folder}/cert",
                "--tls-certificate-file", "No such file")
        refused([*usual, "--ssd-path", "/proc/ssd"], 8, "/proc/ssd", "--ssd-path")
        refused([*usual, "--cache-dram", "1TiB"], 6, "cache-dram", "1048576 MiB", "MiB that")
        profile = pathlib.Path(folder, "half.toml")
        profile.write_text("[model]\nlayers = 2\n")
        refused([*usual, "--device", f"model:{profile}"], 2, "half.toml does not give model.kv_bytes_per_token", "decode.max_batch")
        refused([*usual, "--device", "cuda:4000"], 2, "device: ", "CUDA")  # no build, driver or GPU
        secret = pathlib.Path(folder, "secret")
        secret.write_text("0123456789abcdef" * 4)
        secret.chmod(0o644)
        refused([*usual, "--cluster-secret-file", str(secret)], 8, str(secret), "0644", "chmod 600")
        refused([*usual, "--cluster-secret-file", f"{folder}/none"], 8, f"{folder}/none", "No such file")
        refused(usual, 8, "cluster.secret", "--cluster-secret-file", env={"XDG_CONFIG_HOME": "/proc"})
        refused(["--model", f"{folder}/none.gguf", *usual[2:]], 4, f"{folder}/none.gguf", "No such file")


def a_process_without_room_says_so_and_does_not_abort():
    """Address space for nothing, for the arena alone, and for the arena and some of the threads."""
    said = 0
    for mib in (128, 512, *range(1150, 2050, 15)):
        args = ["--model", TINY, "--http", "127.0.0.1:0", *PORTS]
        with tempfile.TemporaryDirectory() as home:
            process = subprocess.Popen(["prlimit", f"--as={mib << 20}", BINARY, *args], stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, "XDG_CONFIG_HOME": home})
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "ready roles=" in line:
                    process.terminate()
            code = process.wait(20 * PATIENCE)
        assert code in (0, 6), (mib, code, lines[-5:])
        said += code == 6 and "out of space" in lines[-1]
        assert code == 0 or "out of space" in "".join(lines), (mib, lines)
    assert said >= 2, said


def a_stop_signal_while_loading_ends_the_process_at_once():
    with Cluster() as cluster:
        for signal_sent in (signal.SIGINT, signal.SIGTERM):
            process = cluster.start(signal_sent.name, "--model", BIG, "--role", "all", "--http", "127.0.0.1:0", *PORTS)
            wait_until("it loads", lambda: "loading" in process.output(), every=0.01)
            began = time.monotonic()
            process.process.send_signal(signal_sent)
            assert process.process.wait(10 * PATIENCE) == 128 + signal_sent
            assert time.monotonic() - began < 2 * PATIENCE
            assert "ready" not in process.output().replace("not ready", "")


def names_are_resolved():
    with Cluster() as cluster:
        port = free_port()
        cluster.start("all", "--model", TINY, "--cache-dram", "16MiB", "--http", f"localhost:{port}", "--listen",
                      "localhost:0", "--data-listen", "localhost:0", "--metrics-listen", "localhost:0")
        client = cluster.wait_healthy("127.0.0.1", port)
        assert client.complete(prompt=[5, 6, 7], max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


def the_secret_is_made_once_and_is_its_owners_alone():
    with Cluster() as cluster:
        port = free_port()
        one_server(cluster, "--model", TINY, "--cache-dram", "16MiB", "--listen", f"127.0.0.1:{port}")
        made = pathlib.Path(cluster.folder.name, "config", "mooncaf", "cluster.secret")
        assert made.stat().st_mode & 0o7777 == 0o600 and made.parent.stat().st_mode & 0o7777 == 0o700
        text = made.read_text()
        assert len(text.strip()) == 64
        cluster.start("joins", "--model", TINY, "--role", "decode", "--join", f"127.0.0.1:{port}", "--cache-dram", "16MiB",
                      "--metrics-listen", "127.0.0.1:0")
        wait_until("a second process of this user joins", lambda: len(cluster.client.cluster()["nodes"]) == 2)
        assert made.read_text() == text


@contextlib.contextmanager
def folder_for_strangers():
    """A folder that every user can enter, with the binary in it."""
    with tempfile.TemporaryDirectory(prefix="mooncaf-strangers-") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(BINARY, os.path.join(folder, "mooncaf"))
        yield folder


def other_users_of_the_machine_are_not_let_in():
    """A gateway, a worker and a cache node of user `nobody` at a default cluster of this user."""
    if os.geteuid() != 0:
        raise Skipped("needs root, to be another user")
    with Cluster() as cluster, folder_for_strangers() as folder:
        port = free_port()
        client = one_server(cluster, "--model", TINY, "--cache-dram", "16MiB", "--listen", f"127.0.0.1:{port}")
        for role in ("gateway", "prefill", "decode", "cache"):
            home = os.path.join(folder, role)
            os.mkdir(home)
            shutil.chown(home, "nobody")
            args = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", f"{folder}/mooncaf", "--model",
                    TINY, "--role", role, "--join", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--cache-dram",
                    "16MiB", "--metrics-listen", "127.0.0.1:0"]
            log = os.path.join(folder, f"{role}.log")
            with open(log, "w") as out:
                stranger = subprocess.Popen(args, stdout=out, stderr=out, env={**os.environ, "XDG_CONFIG_HOME": home})
            try:
                wait_until(f"the stranger's {role} is refused, and is told why",
                           lambda: "does not share our cluster secret" in open(log).read())
            finally:
                stranger.kill()
                stranger.wait(10)
        nodes = client.cluster()["nodes"]
        assert len(nodes) == 1, nodes
        assert "link refused" in cluster.processes["all"].output()


def a_start_believes_what_an_earlier_one_measured():
    def start(cluster, caches, *extra):
        name = f"start-{len(cluster.processes)}"
        args = ["--model", TINY, "--cache-dram", "16MiB", "--http", "127.0.0.1:0", *PORTS, *extra]
        process = cluster.start(name, *args, env={"XDG_CACHE_HOME": caches})
        wait_ready(process)
        return [word for word in ("measuring", "measured before") for line in process.output().splitlines()
                if f" {word} worker=" in line]

    with Cluster() as cluster:
        caches = os.path.join(cluster.folder.name, "caches")
        timings = pathlib.Path(caches, "mooncaf", "timings")
        assert start(cluster, caches) == ["measuring"] * 2
        assert start(cluster, caches) == ["measured before"] * 2
        assert start(cluster, caches, "--timings-age", "0s") == ["measuring"] * 2
        for file in timings.iterdir():
            file.write_bytes(file.read_bytes()[:-5])  # torn
        assert start(cluster, caches) == ["measuring"] * 2
        assert start(cluster, caches, "--context-length", "96") == ["measuring"] * 2, "of another longest pass"
        assert start(cluster, "/proc") == ["measuring"] * 2
        assert "measured times are not kept" in list(cluster.processes.values())[-1].output()


TESTS = [roles_that_compute_nothing_start_without_the_weights, what_is_wrong_is_said_before_the_model_is_loaded,
         a_process_without_room_says_so_and_does_not_abort, a_stop_signal_while_loading_ends_the_process_at_once,
         names_are_resolved, the_secret_is_made_once_and_is_its_owners_alone,
         a_start_believes_what_an_earlier_one_measured, other_users_of_the_machine_are_not_let_in]

if __name__ == "__main__":
    main(TESTS)
