#!/usr/bin/env python3
"""The Python package as a user gets it: wheels that pip makes without a network, in a virtual environment that has nothing else."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main  # noqa: E402
from store_world import ROOT, Store  # noqa: E402

WRITES = """
import sys, mooncaf.store
from mooncake.store import MooncakeDistributedStore
from mooncake.engine import TransferEngine
assert mooncaf.__file__.startswith(sys.prefix), mooncaf.__file__
store = MooncakeDistributedStore()
assert store.setup("writer", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0, store.last_error()
assert store.put("key", bytes(range(256)) * 1000) == 0
assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
"""
READS = """
import asyncio, sys
from mooncaf.store import MooncakeDistributedStore
from mooncaf.async_store import MooncakeDistributedStoreAsync
store = MooncakeDistributedStore()
assert store.setup("reader", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0, store.last_error()
assert store.get("key") == bytes(range(256)) * 1000
async def also():
    store = MooncakeDistributedStoreAsync()
    assert await store.async_setup("reader", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
    assert await store.async_get_size("key") == 256000
asyncio.run(also())
"""
_made = tempfile.TemporaryDirectory(prefix="mooncaf-wheel-")


def ran(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, **more)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def installed():
    """Python of a virtual environment with both wheels and nothing else, and the extension in it."""
    folder = pathlib.Path(_made.name)
    python = folder / "venv/bin/python"
    if not python.exists():
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--isolated")
        # Nobody may bring the packages that are not there, and what this process has on its path is not theirs.
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("PIP_")}
        ran(*pip, "wheel", "--no-index", "--no-deps", "-w", folder, ROOT / "storage/python", ROOT / "storage/python/compat", env=alone)
        ran(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        ran(*pip, "--python", python, "install", "--no-index", *folder.glob("*.whl"), env=alone)
    return python, next(folder.glob("venv/lib/python*/site-packages/mooncaf/_store*.so"))


def test_two_processes_share_an_object_through_the_wheels():
    python, _ = installed()
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        for code in (WRITES, READS):
            ran(python, "-c", code, world.at, env={"MOONCAF_CLUSTER_SECRET_FILE": world.secret}, cwd=_made.name)


def test_pip_knows_what_it_installed():
    python, _ = installed()
    listed = ran(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "list", "--format", "freeze").split()
    assert sorted(listed) == ["mooncaf-as-mooncake==0.1.0", "mooncaf==0.1.0"], listed
    ran(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "check")


def test_the_programs_are_there():
    python, _ = installed()
    assert "--port" in ran(python.parent / "mooncake_http_metadata_server", "--help")
    for name in ("mooncake_master", "mooncake_client"):
        done = subprocess.run([python.parent / name, "--no_such_flag"], capture_output=True, text=True, timeout=60, env={**os.environ, "MOONCAF_BINARY": "none"})
        assert done.returncode == 1 and "no_such_flag" in done.stderr, (name, done)
    assert (python.parent / "mc_store_rest_server").exists()


def test_the_extension_needs_the_c_library_alone():
    _, module = installed()

    def readelf(what):
        return ran("readelf", what, module)

    libraries = set(re.findall(r"NEEDED.*\[(.*)\]", readelf("-dW")))
    assert libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, libraries
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", readelf("-VW"))}
    assert max(versions) <= (2, 35), max(versions)
    assert "OPENSSL" not in readelf("-VW") and "HMAC" not in readelf("--dyn-syms"), "another part of the process may have its own"


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
