#!/usr/bin/env python3
"""Two servers of vLLM behind a balancer, behind NVIDIA Dynamo's router, and behind mooncaf (mode engines), with the same requests.

    MOONCAF_ENGINES=VENV/bin/python DYNAMO=VENV2/bin/python tests/bench/engine_routing.py [balancer|dynamo|mooncaf ...]

Sessions of the conversation trace, whole, 32 tokens in place of each block of 512 and a sixteenth of each answer, SPEED times as fast.
Every system has fresh servers, in a network namespace of its own, where there is nothing but loopback. `engines/install.sh` makes
the first interpreter; the second needs `ai-dynamo` beside it. Prints a row for each: hits, TTFT, time, requests inside both SLOs.
"""
import collections
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
sys.path.insert(0, str(ROOT / "tests/integration/engines"))
SESSIONS, SPEED = int(os.environ.get("SESSIONS", "60")), float(os.environ.get("SPEED", "12"))
BLOCK, TTFT, TBT = 32, float(os.environ.get("TTFT", "5")), float(os.environ.get("TBT", "2"))
# Of all servers: steps of 512 tokens, so that answers do not wait for whole prompts.
SERVER = ["--enforce-eager", "--max-num-batched-tokens", "512"]
DYNAMO = os.environ.get("DYNAMO", "")
# Dynamo 1.6.1 imports a name, for embeddings, that this vLLM has not yet.
DYNAMO_WORKER = "import runpy, vllm.v1.engine.utils as u\nu.get_engine_zmq_addresses = None\nrunpy.run_module('dynamo.vllm', run_name='__main__', alter_sys=True)"


def requests():
    """(second, token ids, answer's tokens), in order."""
    sessions = collections.defaultdict(list)
    for line in open(ROOT.parent / "shared/traces/conversation_trace.jsonl"):
        row = json.loads(line)
        sessions[row["hash_ids"][1] if len(row["hash_ids"]) > 1 else row["hash_ids"][0]].append(row)
    whole = [s for s in sessions.values() if 2 <= len(s) <= 12 and all(len(r["hash_ids"]) < 200 for r in s)]
    picked = random.Random(7).sample(whole, SESSIONS)
    rows = sorted((r for s in picked for r in s), key=lambda r: r["timestamp"])

    def tokens(block):
        return [1000 + random.Random(block * 64 + i).randrange(20000) for i in range(BLOCK)]
    begin = rows[0]["timestamp"]
    return [((r["timestamp"] - begin) / 1000 / SPEED, [t for b in r["hash_ids"] for t in tokens(b)], max(r["output_length"] // 16, 2)) for r in rows]


def ask(port, prompt, tokens, out):
    body = {"model": "small", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    began, times = time.monotonic(), []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer, usage = connection.getresponse(), {}
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        if event.get("choices"):
            times.append(time.monotonic())
    connection.close()
    gaps = sorted(b - a for a, b in zip(times, times[1:]))
    tail = gaps[-max(len(gaps) // 10, 1):]
    out.append({"status": answer.status, "ttft": times[0] - began if times else None, "tbt": statistics.fmean(tail) if tail else 0,
                "tokens": usage.get("completion_tokens"), "prompt": len(prompt)})


def play(ports):
    """Each request at its time, the n-th at the n-th of the ports, by turns."""
    out, threads, begin = [], [], time.monotonic()
    for n, (at, prompt, tokens) in enumerate(requests()):
        time.sleep(max(begin + at - time.monotonic(), 0))
        threads.append(threading.Thread(target=ask, args=(ports[n % len(ports)], prompt, tokens, out)))
        threads[-1].start()
    for t in threads:
        t.join()
    return out, time.monotonic() - begin


def show(system, rows, took, hits, queries):
    good = [r for r in rows if r["status"] == 200 and r["ttft"] is not None]
    ttft = sorted(r["ttft"] for r in good)
    met = sum(r["ttft"] <= TTFT and r["tbt"] <= TBT for r in good)
    if "ROWS" in os.environ:
        pathlib.Path(os.environ["ROWS"], f"{system}.json").write_text(json.dumps(rows))
    print(json.dumps({"system": system, "requests": len(rows), "answered": len(good), "prompt_tokens": sum(r["prompt"] for r in rows),
                      "hit_share": round(hits / max(queries, 1), 3), "mean_ttft_s": round(statistics.fmean(ttft), 2),
                      "p50_ttft_s": round(ttft[len(ttft) // 2], 2), "p90_ttft_s": round(ttft[len(ttft) * 9 // 10], 2),
                      "p90_tbt_s": round(sorted(r["tbt"] for r in good)[len(good) * 9 // 10], 3),
                      "inside_both": met, "seconds": round(took, 1), "load": round(os.getloadavg()[0], 1)}), flush=True)


def counters(port, names):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return [sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{")) for name in names]


NAMES = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")


def run(system):
    from cluster import BINARY, Cluster, free_port, wait_until  # noqa: F401
    import servers
    with Cluster() as cluster:
        folder = cluster.folder.name
        model = servers.model_folder(os.environ.get("MOONCAF_ENGINES_MODEL") or folder)
        if system == "dynamo":
            return run_dynamo(cluster, model, folder)
        engines = []
        for n in range(2):
            events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"ipc://{folder}/news-{n}", "replay_endpoint": f"ipc://{folder}/replay-{n}"}
            cluster.processes[f"vllm-{n}"] = servers.Vllm(f"vllm-{n}", model, folder, args=[*SERVER, "--kv-events-config", json.dumps(events)])
            engines.append(cluster.processes[f"vllm-{n}"])
        for e in engines:
            e.ready()
        ports = [e.port for e in engines]
        for port in ports:
            ask(port, list(range(100, 140)), 4, [])
        if system == "mooncaf":
            control, http_port = free_port(), free_port()
            mode = ("--mode", "engines", "--model", str(model), "--context-length", "8192", "--ttft-slo", f"{TTFT}s", "--tbt-slo", f"{TBT}s")
            cluster.start("front", "--role", "conductor,gateway", *mode, "--served-model-name", "small", "--listen", f"127.0.0.1:{control}",
                          "--http", f"127.0.0.1:{http_port}", "--metrics-listen", "127.0.0.1:0", *os.environ.get("FRONT", "").split())
            for n, port in enumerate(ports):
                cluster.start(f"worker-{n}", "--role", "engine", *mode, "--engine-at", f"127.0.0.1:{port}", "--engine-events", f"ipc://{folder}/news-{n}",
                              "--engine-replay", f"ipc://{folder}/replay-{n}", "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0",
                              "--metrics-listen", "127.0.0.1:0", "--name", f"worker-{n}")
            client = cluster.wait_healthy("127.0.0.1", http_port, 120)
            wait_until("all take part", lambda: len(client.cluster()["instances"]) == 4, 120)
            ports = [http_port]
        before = [counters(e.port, NAMES) for e in engines]
        rows, took = play(ports)
        after = [counters(e.port, NAMES) for e in engines]
        hits, queries = (sum(a[i] - b[i] for a, b in zip(after, before)) for i in range(2))
        show(system, rows, took, hits, queries)


def run_dynamo(cluster, model, folder):
    import servers
    from cluster import free_port, wait_until
    from cluster import Client
    port, metrics = free_port(), [free_port(), free_port()]
    env = {**os.environ, **servers.SETTINGS, "DYN_FILE_KV": f"{folder}/discovery", "DYN_DISCOVERY_BACKEND": "file", "DYN_REQUEST_PLANE": "tcp", "DYN_EVENT_PLANE": "zmq"}
    common = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]
    log = open(f"{folder}/dynamo.log", "ab")
    started = [subprocess.Popen([DYNAMO, "-m", "dynamo.frontend", "--http-port", str(port), "--router-mode", "kv", *common], env=env, stdout=log, stderr=log)]
    for n in range(2):
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"ipc://{folder}/news-{n}"}
        started.append(subprocess.Popen([DYNAMO, "-c", DYNAMO_WORKER, "--model", str(model), "--served-model-name", "small", "--dtype", "bfloat16",
                                         "--max-model-len", "8192", "--block-size", str(BLOCK), *SERVER, *common, "--kv-events-config", json.dumps(events)],
                                        env={**env, "DYN_SYSTEM_PORT": str(metrics[n])}, stdout=log, stderr=log))
    try:
        client = Client("127.0.0.1", port)

        def ready():
            try:
                for m in metrics:
                    counters(m, NAMES)
                return client.json("GET", "/v1/models")[1]["data"]
            except OSError:
                return False
        wait_until("Dynamo serves", ready, 300)
        for _ in range(4):
            ask(port, list(range(100, 140)), 4, [])
        before = [counters(m, NAMES) for m in metrics]
        rows, took = play([port])
        after = [counters(m, NAMES) for m in metrics]
        hits, queries = (sum(a[i] - b[i] for a, b in zip(after, before)) for i in range(2))
        show("dynamo", rows, took, hits, queries)
    finally:
        for p in started:
            p.terminate()
        for p in started:
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()
        if "KEEP_LOG" in os.environ:
            print(open(f"{folder}/dynamo.log").read()[-4000:], file=sys.stderr)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["balancer", "dynamo", "mooncaf"]
    if wanted[0] == "--inside":
        run(wanted[1])
    else:
        if wanted == ["--requests"]:
            rows = requests()
            print(len(rows), "requests in", round(rows[-1][0]), "s,", sum(len(r[1]) for r in rows), "tokens of prompts,", sum(r[2] for r in rows), "of answers")
            sys.exit()
        for system in wanted:
            subprocess.run(["unshare", "-n", "sh", "-c", f'ip link set lo up; exec {sys.executable} {__file__} --inside {system}'], check=True)
