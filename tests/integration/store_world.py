"""A store in processes for a test: directory, holders, clients of the Python package that was just built.

The package (MOONCAF_PYTHON_MODULE) is put together in a folder. No model is needed.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Process, free_port, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The reference's package, where examples/install_packages.sh --tests put it; empty where there is none.
_installed = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "mooncaf/reference-store")
REFERENCE = os.environ.get("MOONCAF_REFERENCE_STORE") or (str(_installed) if (_installed / "complete").exists() else "")
MODULE = os.environ.get("MOONCAF_PYTHON_MODULE") or next(iter(sorted((ROOT / "build/storage/python").glob("_store*.so"))), "")
SHARDS = 1  # of the directory, where a test does not say
HOST = "127.0.0.1"  # where it listens; at another address of this host nobody meets it but over TCP
NOT_FOUND, INVALID, UNREACHABLE, NOT_SUPPORTED, LEASED = -704, -600, -900, -1012, -706

_package = []  # where it lies


class Store:
    """A directory and some segments of a cluster with a secret of its own."""

    def __init__(self, cluster, segments=2, size="64MiB", lease="10s", recovery="0.2s", directory=(), ssd=None, mount=(), data=None,
                 shards=None):
        """`data` has for each segment where it listens for other hosts, and by what name they reach it."""
        self.cluster = cluster
        self.make_secret()
        self.port = free_port()
        self.at = f"{HOST}:{self.port}"
        self.lease = lease
        self.directory = self.start("directory", "store", "directory", "--listen", self.at, "--lease", lease,
                                       "--recovery", recovery, "--cluster-secret-file", self.secret, "--state",
                                       os.path.join(self.folder, "state"), "--shards", str(shards or SHARDS), *directory)
        ready(self.directory)
        disk = lambda i: ("--ssd-path", self.ssd_path(i), "--ssd-size", ssd) if ssd else ()  # noqa: E731
        link = lambda i: ("--data-listen", data[i][0], "--advertise", data[i][1]) if data else ()  # noqa: E731
        self.holders = [self.start(f"s{i}", "store", "mount", "--name", f"s{i}", "--size", size, "--directory", self.at,
                                      "--cluster-secret-file", self.secret, *disk(i), *link(i), *mount) for i in range(segments)]
        for holder in self.holders:
            ready(holder)

    def ssd_path(self, i):
        return os.path.join(self.folder, f"ssd{i}")

    def make_secret(self):
        self.folder = tempfile.mkdtemp(prefix="mooncaf-store-")
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("a secret of this test alone, 0123456789\n")

    def start(self, name, *args):
        process = self.cluster.processes[name] = Process(name, args, self.folder)
        return process

    def run(self, *args, stdin=b"", status=0):
        done = subprocess.run([BINARY, "store", *args, "--directory", self.at, "--cluster-secret-file", self.secret],
                              input=stdin, capture_output=True, timeout=60)
        assert done.returncode == status, (args, done.returncode, done.stderr)
        return done.stdout

    def json(self, *args):
        return json.loads(self.run(*args, "--json"))

    def python(self, code, *, wait=True):
        """Another process with `store`, a client that is set up, and `expect(a, b)`."""
        head = ("import os, signal, sys, ctypes\nfrom mooncake.store import MooncakeDistributedStore, ReplicateConfig\n"
                "def expect(a, b):\n    assert a == b, (a, b)\n"
                "store = MooncakeDistributedStore()\n"
                f"code = store.setup('child', 'P2PHANDSHAKE', 0, 1 << 20, 'tcp', '', '{self.at}')\n"
                "assert code == 0, (code, store.last_error())\n")
        env = {**os.environ, "PYTHONPATH": package_path(), "MOONCAF_CLUSTER_SECRET_FILE": self.secret}
        child = subprocess.Popen([sys.executable, "-c", head + code], env=env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not wait:
            return child
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out

    def client(self, mount=0):
        from mooncaf.store import MooncakeDistributedStore

        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = self.secret
        store = MooncakeDistributedStore()
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", mount, 16 << 20, "tcp", "", self.at)
        assert code == 0, (code, store.last_error())
        return store


def ready(process):
    said = lambda: process.log_path.read_bytes()[process.log_before:]  # noqa: E731
    wait_until(f"{process.name} is ready", lambda: b" ready " in said() or not process.alive(), 30)
    assert process.alive(), process.output()


def noise(n, seed):
    import random

    return random.Random(seed).randbytes(n)


def package():
    """The package as it is installed: its sources and the extension in one folder."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mooncaf-package-"))
    shutil.copytree(ROOT / "storage/python/mooncaf", folder / "mooncaf")
    shutil.copy(MODULE, folder / "mooncaf")
    for tier in pathlib.Path(MODULE).parent.glob("_ssd*.so"):
        shutil.copy(tier, folder / "mooncaf")
    _package[:] = [str(folder), str(ROOT / "storage/python/compat")]
    sys.path[:0] = _package


def package_path():
    """Where `package` put it and the names of Mooncake Store, for a PYTHONPATH."""
    assert _package, "package() makes it"
    return os.pathsep.join(_package)
