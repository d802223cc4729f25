#!/usr/bin/env python3
"""Prefill and decode speed of mooncaf beside llama.cpp: same file, same threads, same machine, in turns.

    pip install xllamacpp        (PyPI's wheel of llama.cpp)
    model_vs_llamacpp.py --bench BUILD/tests/bench/mooncaf_model_bench --model FILE.gguf [--threads 2] [--rounds 3]

Each round runs our bench, then the peer in a process of its own, so that neither disturbs the other and slow drift of
a shared machine hits both. Prints each figure's median and the median of the per-round ratios.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading

PROMPTS = (512, 4096)
BATCHES = (1, 8)
CONTEXT_TOKENS, DECODE_TOKENS = 16, 128


def peer(model, threads):
    """Figures of llama.cpp's server core, asked in process; its own timings, so no HTTP is counted."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 8 * 1024
    params.n_batch = 2048
    params.n_ubatch = 512
    params.n_parallel = max(BATCHES)
    params.kv_unified = True
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)
    rng = random.Random(1)

    def ask(n_prompt, n_predict):
        prompt = [rng.randrange(1000, 40000) for _ in range(n_prompt)]
        answer = server.handle_completions({
            "prompt": prompt, "n_predict": n_predict, "max_tokens": n_predict, "ignore_eos": True,
            "temperature": 0, "cache_prompt": False, "stream": False, "timings_per_token": True,
        })
        if isinstance(answer, (str, bytes)):
            answer = json.loads(answer)
        if "timings" not in answer:
            sys.exit(f"the peer answered {str(answer)[:400]}")
        return answer["timings"]

    ask(64, 4)
    figures = {}
    for n in PROMPTS:
        figures[f"prefill_{n}"] = statistics.median(ask(n, 1)["prompt_per_second"] for _ in range(3 if n < 2000 else 1))
    for batch in BATCHES:
        timings = []
        workers = [threading.Thread(target=lambda: timings.append(ask(CONTEXT_TOKENS, DECODE_TOKENS)))
                   for _ in range(batch)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        slowest_s = max(t["predicted_ms"] for t in timings) / 1000
        figures[f"decode_{batch}"] = sum(t["predicted_n"] for t in timings) / slowest_s
    print("FIGURES " + json.dumps(figures), flush=True)
    os._exit(0)  # its worker threads do not always end


def figures_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    for line in done.stdout.splitlines():
        if line.startswith("FIGURES "):
            return json.loads(line.removeprefix("FIGURES "))
    sys.exit(f"{' '.join(command)} printed no figures (exit {done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", help="our model_bench binary")
    p.add_argument("--model", default=os.environ.get("MOONCAF_MODEL"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer", action="store_true", help="internal: be the peer")
    a = p.parse_args()
    if a.peer:
        peer(a.model, a.threads)
    ours_command = [a.bench, "--model", a.model, "--threads", str(a.threads), "--figures"]
    avx2_command = [*ours_command, "--isa", "avx2"]  # PyPI's wheel of the peer has no code beyond it
    peer_command = [sys.executable, __file__, "--peer", "--model", a.model, "--threads", str(a.threads)]
    ours, avx2, theirs = [], [], []
    for i in range(a.rounds):
        print(f"round {i + 1} of {a.rounds}", file=sys.stderr, flush=True)
        ours.append(figures_of(ours_command))
        avx2.append(figures_of(avx2_command))
        theirs.append(figures_of(peer_command))
    print(f"{'tokens/s, ' + str(a.threads) + ' threads':20} {'mooncaf':>9} {'by AVX2':>9} {'llama.cpp':>10} {'ratio':>6} {'by AVX2':>8}")
    for key in theirs[0]:
        middle = [statistics.median(f[key] for f in figures) for figures in (ours, avx2, theirs)]
        ratios = [statistics.median(o[key] / t[key] for o, t in zip(figures, theirs)) for figures in (ours, avx2)]
        print(f"{key:20} {middle[0]:9.0f} {middle[1]:9.0f} {middle[2]:10.0f} {ratios[0]:6.2f} {ratios[1]:8.2f}")


main()
