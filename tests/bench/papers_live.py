#!/usr/bin/env python3
"""The papers' comparison, live: modelled nodes replay a stretch of the conversation trace through HTTP, under every
placement policy and admission mode, beside `mooncaf simulate` with the same profile and trace.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/papers_live.py --requests 600 --scale 8

Prints a Markdown table. Times are the profile's: what the clock showed, times the scale. The scale is bounded by the
machine: all processes and the client share it, and their own work (some ms a request) is scaled, too.
"""
import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from modelled import live, papers_trace, simulated  # noqa: E402

POLICIES = ["random", "load_balancing", "cache_aware", "kvcache_centric"]
ADMISSIONS = ["none", "baseline", "early", "predictive", "per_request", "priced"]


def row(name, found, made, total):
    """Live beside simulated."""
    counts = made["requests"]
    pairs = [(found["ttft_mean"], made["ttft_s"]["mean"]), (found["ttft_p90"], made["ttft_s"]["p90"]),
             (1e3 * found["gap_mean"], 1e3 * made["gap_s"]["mean"])]
    cells = [f"{a:.2f} | {b:.2f} | {100 * (a / b - 1):+.1f} %" for a, b in pairs]
    hit = 1 - made["computed_tokens"] / made["prompt_tokens"]
    cells.append(f"{found['hit']:.3f} | {hit:.3f}")
    cells.append(f"{found['rejected_ttft']} + {found['rejected_tbt']} | {counts['rejected_prefill']} + "
                 f"{counts['rejected_decode']} + {counts['rejected_at_decode']}")
    cells.append(f"{100 * found['goodput']:.1f} % | {100 * counts['slo_met'] / total:.1f} %")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--requests", type=int, default=600)
    p.add_argument("--skip", type=int, default=0, help="requests of the trace before the stretch")
    p.add_argument("--scale", type=float, default=8)
    p.add_argument("--speed", type=float, default=1, help="of the trace: 2 plays an hour in half an hour, as simulate does")
    p.add_argument("--prefill", type=int, default=8)
    p.add_argument("--decode", type=int, default=8)
    p.add_argument("--profile", default="a800x8-llama70b")
    p.add_argument("--one-process", action="store_true", help="all instances in one process, with one cache")
    p.add_argument("--policies", nargs="*", default=POLICIES)
    p.add_argument("--admissions", nargs="*", default=ADMISSIONS)
    p.add_argument("--tbt-slo", type=float, default=0.1)
    a = p.parse_args()
    rows = papers_trace(a.requests, a.skip)
    for r in rows:
        r["timestamp"] = round(r["timestamp"] / a.speed)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        print(f"{len(rows)} requests over {rows[-1]['timestamp'] / 1000:.0f} s, {a.prefill} + {a.decode} instances of "
              f"{a.profile}, {'one process' if a.one_process else 'a process each'}, time x {a.scale:g}\n")
        print("| what | mean TTFT, s | simulated | | p90 | simulated | | gap, ms | simulated | | hits | simulated | rejected: "
              "TTFT + TBT | simulated (+ at decode) | goodput | simulated |\n|" + "---|" * 16)
        runs = [(f"policy {x}", ["--policy", x, "--admission", "none"]) for x in a.policies]
        runs += [(f"admission {x}", ["--admission", x]) for x in a.admissions]
        slo = (30, a.tbt_slo)
        for name, options in runs:
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            found = live(rows, a.prefill, a.decode, not a.one_process, a.profile, a.scale, *options, slo=slo)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            made = simulated(path, a.prefill, a.decode, a.profile, *options, slo=slo)
            row(name, found, made, len(rows))
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{name}: {time.monotonic() - began:.0f} s, {used:.0f} s of processor time", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
