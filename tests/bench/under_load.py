#!/usr/bin/env python3
"""The server under the first minutes of a Mooncake-format trace, replayed by aiperf: disaggregated beside coupled, the
latter also with small chunks, which is how an engine that does both keeps its decode steps short.

    python3 -m venv venv && venv/bin/pip install aiperf gguf
    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE venv/bin/python tests/bench/under_load.py --trace TRACE.jsonl

Lengths are divided (a trace of a 70B model on eight GPUs asks more than a CPU has) and times stretched; the sharing of
prefixes stays as recorded. All see the same requests at the same moments, from a cold cache.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import MODEL, Cluster  # noqa: E402
from serving import one_process  # noqa: E402

TRACE_BLOCK = 512
CONTEXT = 8000
TTFT_SLO_MS, TBT_SLO_MS = 2000, 100
MODES = {"disaggregated": ["--mode", "disaggregated"],
         "coupled": ["--mode", "coupled"],
         "coupled, 128": ["--mode", "coupled", "--chunk-tokens", "128", "--max-batch-tokens", "128"]}


def scaled(trace, divide, stretch, count):
    """The first requests that fit the model's context, smaller and slower."""
    rows, skipped = [], 0
    for line in open(trace):
        r = json.loads(line)
        length = r["input_length"] // divide
        if length + r["output_length"] // divide > CONTEXT or length < 1:
            skipped += 1
            continue
        hashes = r["hash_ids"][:-(-length // (TRACE_BLOCK // divide))]
        rows.append({"timestamp": int(r["timestamp"] * stretch), "input_length": length,
                     "output_length": max(2, r["output_length"] // divide), "hash_ids": hashes})
        if len(rows) == count:
            break
    return rows, skipped


TOKENIZER = "mooncaf/model"


def save_tokenizer(home):
    """The model file's tokenizer in a model cache, where aiperf's processes look without a network; aiperf only sizes
    prompts with it."""
    from gguf import GGUFReader
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    fields = GGUFReader(MODEL).fields

    def texts(key):
        return [bytes(fields[key].parts[i]).decode() for i in fields[key].data]

    ids = {token: i for i, token in enumerate(texts("tokenizer.ggml.tokens"))}
    bpe = Tokenizer(models.BPE(vocab=ids, merges=[tuple(m.split(" ")) for m in texts("tokenizer.ggml.merges")]))
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>")
    cached = home / "hub" / ("models--" + TOKENIZER.replace("/", "--"))
    made.save_pretrained(cached / "snapshots" / "made")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("made")


def replay(options, trace, divide, home, folder, extra):
    with Cluster() as cluster:
        client = one_process(cluster, *options, "--prefill-instances", "1", "--cache-dram", "4GiB",
                             "--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--admission", "none", *extra)
        name = client.json("GET", "/v1/models")[1]["data"][0]["id"]
        command = [os.path.join(os.path.dirname(sys.executable), "aiperf"), "profile", "--model", name, "--url",
                   f"http://127.0.0.1:{client.port}", "--endpoint-type", "completions", "--streaming", "--tokenizer", TOKENIZER,
                   "--input-file", str(trace), "--custom-dataset-type", "mooncake_trace",
                   "--prompt-input-tokens-block-size", str(TRACE_BLOCK // divide), "--fixed-schedule", "--goodput",
                   f"time_to_first_token:{TTFT_SLO_MS} inter_token_latency:{TBT_SLO_MS}", "--extra-inputs",
                   "ignore_eos:true", "--artifact-dir", str(folder), "--ui", "none", "--no-server-metrics", "--use-server-token-count"]
        done = subprocess.run(command, capture_output=True, text=True,
                              env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"})
        if done.returncode:
            sys.exit(f"aiperf failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        counters = client.cluster()["counters"]
    figures = json.loads(next(folder.glob("**/profile_export_aiperf.json")).read_text())
    return figures, counters


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trace", required=True)
    p.add_argument("--divide", type=int, default=8, help="lengths are divided by this")
    p.add_argument("--stretch", type=float, default=6, help="times are multiplied by this")
    p.add_argument("--requests", type=int, default=100)
    p.add_argument("extra", nargs="*", help="more options of the server")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rows, skipped = scaled(a.trace, a.divide, a.stretch, a.requests)
        trace = folder / "trace.jsonl"
        trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
        seconds = (rows[-1]["timestamp"] - rows[0]["timestamp"]) / 1000
        print(f"{len(rows)} requests in {seconds:.0f} s ({skipped} longer than the model's context left out), "
              f"{sum(r['input_length'] for r in rows)} prompt and {sum(r['output_length'] for r in rows)} output tokens")
        save_tokenizer(folder / "models")
        print(f"{'':14} {'TTFT ms':>24} {'TBT ms':>24} {'goodput':>9} {'cached':>7} {'errors':>7}")
        print(f"{'':14} {'mean':>8}{'p50':>8}{'p90':>8} {'mean':>8}{'p50':>8}{'p99':>8} {'share':>9} {'share':>7}")
        for mode, options in MODES.items():
            figures, counters = replay(options, trace, a.divide, folder / "models", folder / mode.replace(", ", "-"), a.extra)
            ttft, tbt = figures["time_to_first_token"], figures["inter_token_latency"]
            good = figures.get("good_request_count", {}).get("avg", 0) / len(rows)
            errors = figures.get("error_request_count", {}).get("avg", 0)
            cached = counters["cached_tokens"] / max(1, counters["prompt_tokens"])
            print(f"{mode:14} {ttft['avg']:>8.0f}{ttft['p50']:>8.0f}{ttft['p90']:>8.0f} "
                  f"{tbt['avg']:>8.1f}{tbt['p50']:>8.1f}{tbt['p99']:>8.1f} {good:>9.2f} {cached:>7.2f} {errors:>7.0f}",
                  flush=True)


if __name__ == "__main__":
    main()
