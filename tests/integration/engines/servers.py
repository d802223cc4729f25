"""Servers of vLLM and SGLang for a test or a bench, on the processor, each with the connector that it is given, and questions to it.

MOONCAF_ENGINES names the interpreter that has them (install.sh makes it).
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from cluster import MODEL, Client, Process, free_port, wait_until  # noqa: E402
from store_world import package_path  # noqa: E402

ENGINES = os.environ.get("MOONCAF_ENGINES", "")
HERE = pathlib.Path(__file__).parent
BLOCK = 32  # tokens: of vLLM's blocks of KV, the fewest that its attention on the processor has
# It compiles nothing that a run does not use, and takes one thread unless told otherwise: servers share two cores here.
SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
            "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_HOST_IP": "127.0.0.1"}


def has(module):
    """Whether the engines' interpreter can import it."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
    return bool(ENGINES) and subprocess.run([ENGINES, "-c", code]).returncode == 0


def versions(*packages):
    code = "import importlib.metadata as m, sys; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([ENGINES, "-c", code, *packages], capture_output=True, text=True, check=True).stdout.strip()


def model_folder(folder):
    """The small model (MOONCAF_MODEL) as a BF16 folder such as transformers writes, with its tokenizer."""
    target = pathlib.Path(folder) / "model"
    if not target.exists():
        done = subprocess.run([ENGINES, str(HERE / "bf16_folder.py"), MODEL, str(target)], env={**os.environ, **SETTINGS},
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    return target


class Server(Process):
    """Ended with its workers, which it starts in a session of its own."""

    def start(self):
        self.log = open(self.log_path, "ab")
        self.log_before = self.log.tell()
        self.process = subprocess.Popen([ENGINES, *self.args], stdout=self.log, stderr=self.log, env=self.env, start_new_session=True)

    def ready(self):
        wait_until(f"{self.name} serves", lambda: self.client.healthy() or not self.alive(), 420)
        assert self.alive(), self.output()[-6000:]
        return self

    def signal_all(self, number):
        """To the server and the processes that it started, which are a session of their own."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill9(self):
        self.signal_all(signal.SIGKILL)
        self.process.wait(30)

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                pass
        self.kill9()
        self.log.close()

    def counter(self, name):
        """The sum of a counter of /metrics over its labels."""
        text = self.client.request("GET", "/metrics")[2].decode()
        return sum(float(m) for m in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.M))


class Vllm(Server):
    """`transfer` is its --kv-transfer-config, or None."""

    def __init__(self, name, model, folder, transfer=None, env=None, args=(), dtype="bfloat16"):
        self.port = free_port()
        transfer = ["--kv-transfer-config", json.dumps(transfer)] if transfer else []
        # Our package is on the path of a server with a connector alone.
        path = {"PYTHONPATH": os.pathsep.join([package_path(), str(HERE)])} if transfer else {}
        settings = {**path, **SETTINGS, **(env or {})}
        super().__init__(name, ["-m", "vllm.entrypoints.cli.main", "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port),
                                "--dtype", dtype, "--served-model-name", "small", "--max-model-len", "8192", "--block-size", str(BLOCK), "--enable-prompt-tokens-details",
                                "--disable-uvicorn-access-log", *transfer, *args], folder, env=settings)
        self.client = Client("127.0.0.1", self.port, 600)

    def answer(self, prompt, tokens=16, **more):
        """Token ids, greedy, and how many of the prompt's came out of a cache, its own or another's."""
        body = self.client.complete(model="small", prompt=prompt, max_tokens=tokens, temperature=0, ignore_eos=True, return_token_ids=True, **more)
        details = body["usage"].get("prompt_tokens_details") or {}
        return body["choices"][0]["token_ids"], details.get("cached_tokens") or 0

    def forget(self):
        """What it has in its own prefix cache."""
        wait_until("nothing holds a block", lambda: self.client.json("POST", "/reset_prefix_cache")[1]["success"])

    def external_hits(self):
        return int(self.counter("vllm:external_prefix_cache_hits_total"))

    def own_hits(self):
        return int(self.counter("vllm:prefix_cache_hits_total"))


class Sglang(Server):
    """`storage` is HiCache's: the backend's name and its configuration, or None for a server without HiCache."""

    def __init__(self, name, model, folder, storage=None, env=None, args=(), dtype="float32"):
        self.port = free_port()
        hierarchical, path = [], {}
        if storage:
            backend, extra = storage
            hierarchical = ["--enable-hierarchical-cache", "--hicache-ratio", "1.2", "--hicache-io-backend", "direct", "--hicache-write-policy", "write_through",
                            "--hicache-storage-prefetch-policy", "wait_complete", "--hicache-storage-backend", backend,
                            "--hicache-storage-backend-extra-config", json.dumps({"prefetch_threshold": BLOCK, **extra})]
            plugin = pathlib.Path(folder, "sglang_on_processor-1.dist-info")  # by which SGLang finds a plugin
            plugin.mkdir(exist_ok=True)
            (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang-on-processor\nVersion: 1\n")
            (plugin / "entry_points.txt").write_text("[sglang.srt.plugins]\nprocessor = sglang_on_processor:install\n")
            path = {"PYTHONPATH": os.pathsep.join([str(folder), package_path(), str(HERE)])}
        super().__init__(name, ["-m", "sglang.launch_server", "--model-path", str(model), "--device", "cpu", "--host", "127.0.0.1", "--port", str(self.port),
                                "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend", "none", "--dtype", dtype,
                                "--max-total-tokens", "24576", "--page-size", str(BLOCK), "--disable-overlap-schedule", "--enable-metrics", "--enable-cache-report",
                                "--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled", *hierarchical, *args],
                         folder, env={**path, **SETTINGS, **(env or {})})
        self.client = Client("127.0.0.1", self.port, 600)

    def answer(self, prompt, tokens=16):
        """Token ids, greedy, and how many of the prompt's came out of a cache; `stored`: of those, out of HiCache's storage."""
        status, body = self.client.json("POST", "/generate", {
            "text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}})
        assert status == 200, (status, body)
        self.stored = (body["meta_info"].get("cached_tokens_details") or {}).get("storage", 0)
        return body["output_ids"], body["meta_info"]["cached_tokens"]

    def forget(self):
        """What it has in its pools, the host's as well."""
        wait_until("its caches are empty", lambda: self.client.request("POST", "/flush_cache")[0] == 200, 60)

    def external_hits(self):
        return int(self.counter("sglang:prefetched_tokens_total"))

    def own_hits(self):
        return int(self.counter("sglang:cached_tokens_total"))
