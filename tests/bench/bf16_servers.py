#!/usr/bin/env python3
"""A BF16 folder served by mooncaf and by vLLM on the processor, two threads each, in turns; both asked over HTTP:

- prefill: prompts of 512 and 4,096 drawn tokens, one after the other, in tokens a second up to the answer's only token;
- decode: 1, 8 and 32 streams of 128 tokens behind 16 drawn ones, in tokens a second from the last stream's first token on.

    MOONCAF_BINARY=BUILD/actors/mooncaf MOONCAF_MODEL=FILE.gguf MOONCAF_ENGINES=VENV/bin/python bf16_servers.py [ROUNDS]

The file's weights are written as BF16 (tests/integration/engines). A line for each server and round, then ratios of medians.
"""
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import Cluster, one_server  # noqa: E402
from engines.servers import Vllm, model_folder, versions  # noqa: E402

PROMPTS, BATCHES = {512: 5, 4096: 2}, (1, 8, 32)
CONTEXT, ANSWER = 16, 128


def prefill(client, draw, tokens, times):
    took = []
    for _ in range(times):
        prompt = [draw.randrange(1000, 40000) for _ in range(tokens)]
        began = time.perf_counter()
        client.complete(model="small", prompt=prompt, max_tokens=1, temperature=0, ignore_eos=True)
        took.append(time.perf_counter() - began)
    return tokens / statistics.median(took)


def decode(client, draw, batch):
    stamps = []

    def one(prompt):
        mine = [time.perf_counter() for event in client.stream("/v1/completions", {
            "model": "small", "prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True})
            if event and event.get("choices")]
        stamps.append(mine)

    streams = [threading.Thread(target=one, args=([draw.randrange(1000, 40000) for _ in range(CONTEXT)],)) for _ in range(batch)]
    for s in streams:
        s.start()
    for s in streams:
        s.join()
    assert len(stamps) == batch
    begin, end = max(s[0] for s in stamps), max(s[-1] for s in stamps)
    return sum(sum(t > begin for t in s) * ANSWER / len(s) for s in stamps) / (end - begin)


def figures(client, seed):
    client.timeout, draw = 600, random.Random(seed)
    prefill(client, draw, 512, 2)  # what a first request compiles or fetches
    decode(client, draw, max(BATCHES))
    out = {f"prefill {n}": prefill(client, draw, n, times) for n, times in PROMPTS.items()}
    return out | {f"decode {n}": statistics.median(decode(client, draw, n) for _ in range(3)) for n in BATCHES}


def ours(folder, seed):
    with Cluster() as cluster:
        return figures(one_server(cluster, "--model", str(folder), "--served-model-name", "small", "--prefill-instances", "1"), seed)


def theirs(folder, model, seed):
    server = Vllm("vllm", model, folder, env={"OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": "0-1"}, args=("--max-num-seqs", "32"))
    try:
        return figures(server.ready().client, seed)
    finally:
        server.stop()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder)
        print(versions("vllm-cpu"), flush=True)
        runs = {"mooncaf": [], "vLLM": []}
        for seed in range(rounds):
            runs["mooncaf"].append(ours(model, seed))
            print("mooncaf", {k: round(v) for k, v in runs["mooncaf"][-1].items()}, flush=True)
            runs["vLLM"].append(theirs(folder, model, seed))
            print("vLLM", {k: round(v) for k, v in runs["vLLM"][-1].items()}, flush=True)
    print("figure,mooncaf,vLLM,ratio")
    for name in runs["vLLM"][0]:
        a, b = (statistics.median(run[name] for run in runs[who]) for who in runs)
        print(f"{name},{a:.0f},{b:.0f},{a / b:.2f}")


if __name__ == "__main__":
    main()
