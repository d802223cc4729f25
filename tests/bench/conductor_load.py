#!/usr/bin/env python3
"""What a conductor costs per request: modelled workers under several times the conversation trace's rate, through HTTP.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/conductor_load.py --speed 10 --seconds 60

Conductor and gateway are processes of their own; `--processes` others have `--prefill` + `--decode` workers each. Processor
time is what the kernel counted, so that a busy machine does not change it much; with it come the reports and block events of
all workers, and what an idle cluster costs is given beside it.
"""
import argparse
import http.client
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, free_port, wait_until  # noqa: E402
from modelled import body_of, papers_trace  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start(cluster, a):
    port, control = free_port(), free_port()
    common = ["--device", f"model:{a.profile}", "--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0",
              "--model="]
    join = [*common, "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
    cluster.start("conductor", "--role", "conductor", "--listen", f"127.0.0.1:{control}", *common)
    for i in range(a.processes):
        cluster.start(f"worker{i}", "--role", "prefill,decode", "--prefill-instances", str(a.prefill), "--decode-instances",
                      str(a.decode), *join)
    cluster.start("gateway", "--role", "gateway", "--http", f"127.0.0.1:{port}", *join)
    client = cluster.wait_healthy("127.0.0.1", port)
    wait_until("all workers are there",
               lambda: len(client.cluster()["instances"]) == a.processes * (a.prefill + a.decode), 120)
    wait_until("the gateway can use every node", lambda: all(
        " peer up " in p.output() for n, p in cluster.processes.items() if n.startswith("worker")), 60)
    return client, port


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    status = connection.getresponse()
    status.read()
    connection.close()
    return status.status


def play(port, rows, speed, until, statuses):
    """Every request at its time, in a thread of its own: it waits, it does not compute."""
    bodies = [body_of(r).replace(b'"stream":true', b'"stream":false') for r in rows]
    begin, threads = time.monotonic() + 0.2, []
    for row, body in zip(rows, bodies):
        due = begin + row["timestamp"] / 1000 / speed
        if due > until:
            break
        time.sleep(max(0, due - time.monotonic()))
        threads.append(threading.Thread(target=lambda b=body: statuses.append(post(port, b)), daemon=True))
        threads[-1].start()
    return len(threads)


def quantile(text, q):
    """Bound in ms of the bucket of `mooncaf_placement_seconds` that the quantile falls into, and how many were counted."""
    counts = [(float(line.split('le="')[1].split('"')[0]), float(line.rsplit(" ", 1)[1]))
              for line in text.splitlines() if line.startswith("mooncaf_placement_seconds_bucket")]
    counts.sort()
    return 1e3 * next(bound for bound, n in counts if n >= q * counts[-1][1]), int(counts[-1][1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--speed", type=float, default=10, help="times the trace's rate")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--prefill", type=int, default=4, help="workers per process")
    p.add_argument("--decode", type=int, default=4)
    p.add_argument("--profile", default="a800x8-llama70b")
    a = p.parse_args()
    rows = papers_trace(int(a.seconds * a.speed * 4))
    with Cluster() as cluster:
        client, port = start(cluster, a)
        conductor = cluster.processes["conductor"].process
        time.sleep(5)
        idle = processor_seconds(conductor)
        time.sleep(5)
        idle = (processor_seconds(conductor) - idle) / 5
        statuses = []
        began, before = time.monotonic(), processor_seconds(conductor)
        sent = play(port, rows, a.speed, began + a.seconds, statuses)
        lasted, used = time.monotonic() - began, processor_seconds(conductor) - before
        counters = client.cluster()["counters"]
        seen = client.request("GET", "/metrics")[2].decode()
        print(json.dumps({
            "workers": a.processes * (a.prefill + a.decode), "requests_per_s": round(sent / lasted, 1), "requests": sent,
            "conductor_ms_per_request": round(1e3 * used / sent, 3), "conductor_idle_share": round(idle, 4),
            "placement_ms": {f"p{100 * q:g}": quantile(seen, q)[0] for q in (.5, .9, .99)}, "asked": quantile(seen, 1)[1],
            "placed": counters["placed"], "answered": statuses.count(200),
            "refused": counters["rejected_ttft"] + counters["rejected_tbt"] + counters["rejected_memory"]}))


if __name__ == "__main__":
    main()
