#!/usr/bin/env python3
"""Traces (`--otlp`) in a collector and a store of traces that are others', and what tracing costs the gateway.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/trace_collectors.py

The server's JSON goes to Rotel, which hands it on as protobuf, all that Phoenix takes; Phoenix is asked for its spans.
Both come from PyPI into an environment in the build folder. The devices are modelled.
"""
import collections
import concurrent.futures
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import venv

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Client, free_port, wait_until  # noqa: E402
from python_client import build_folder  # noqa: E402
from tracing import STEPS_OF_ONE, Traced  # noqa: E402

PACKAGES = ["arize-phoenix==20.26.1", "rotel==0.0.1a15"]


def installed():
    folder = build_folder() / "python-collectors"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (folder / "complete").touch()
    return folder


@contextlib.contextmanager
def running(command, **env):
    with subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def load(cluster, requests, clients=8):
    """Requests a second, and the processor time of one in the gateway's process, in ms."""
    def spent():
        return sum(map(int, open(f"/proc/{cluster.processes['front'].process.pid}/stat").read().split()[13:15]))
    before, began = spent(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda n: cluster.answer(2, **{"x-request-id": f"r{n}"}), range(requests)))
    return requests / (time.monotonic() - began), (spent() - before) * 1000 / os.sysconf("SC_CLK_TCK") / requests


def spans_in(port):
    with contextlib.suppress(OSError, ValueError):
        return Client("127.0.0.1", port).json("GET", "/v1/projects/default/spans?limit=1000")[1].get("data", [])


def main():
    folder, (phoenix, grpc, collector, other) = installed(), [free_port() for _ in range(4)]
    agent = next(folder.glob("lib/*/site-packages/rotel/rotel-agent"))
    with tempfile.TemporaryDirectory() as kept, running(
            [folder / "bin/phoenix", "serve"], PHOENIX_HOST="127.0.0.1", PHOENIX_PORT=str(phoenix), PHOENIX_GRPC_PORT=str(grpc),
            PHOENIX_WORKING_DIR=kept, PHOENIX_TELEMETRY_ENABLED="false"), running(
            [agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{collector}", "--otlp-grpc-endpoint", f"127.0.0.1:{other}",
             "--exporter", "otlp", "--otlp-exporter-endpoint", f"http://127.0.0.1:{phoenix}", "--otlp-exporter-protocol", "http"]):
        wait_until("Phoenix serves", lambda: spans_in(phoenix) is not None, 120, every=0.5)
        with Traced(collector) as cluster:
            load(cluster, 40)
            wait_until("all are in Phoenix", lambda: len(spans_in(phoenix) or []) == 40 * len(STEPS_OF_ONE), 30, every=0.5)
        steps = collections.defaultdict(list)
        for span in spans_in(phoenix):
            steps[span["context"]["trace_id"]].append(span["name"])
        print("traces in Phoenix:", dict(collections.Counter(" ".join(sorted(names)) for names in steps.values())))
        for tracing in ("off", "on") * 3:
            with Traced(collector, *(["--otlp="] if tracing == "off" else [])) as cluster:
                load(cluster, 200)
                print("tracing {}: {:.0f} requests/s, {:.3f} ms of processor time each".format(tracing, *load(cluster, 2000)), flush=True)


if __name__ == "__main__":
    main()
