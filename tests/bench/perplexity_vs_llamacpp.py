#!/usr/bin/env python3
"""Log-probabilities of a text of 2,000 tokens: mooncaf's, llama.cpp's on the same file, and those of `transformers` in
float32 on the same weights (tests/golden/model/answers.json).

    pip install xllamacpp        (PyPI's wheel of llama.cpp)
    MOONCAF_BINARY=BUILD/actors/mooncaf MOONCAF_MODEL=FILE.gguf perplexity_vs_llamacpp.py

mooncaf is asked over HTTP, with `echo` and `logprobs`. llama.cpp's server tells the log-probability of no token of a
prompt, but of the token that it chose, before any bias: so it is asked once per token, with everything before it as
prompt (which its own cache holds), and a bias that leaves no other choice.
"""
import json
import math
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden/model/answers.json").read_text())["text"]
BIAS = 1e4  # beyond any difference of logits


def peer(model):
    """Token ids as JSON on stdin, the log-probabilities of all but the first on stdout; one process, as its threads do
    not always end."""
    import xllamacpp

    ids = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = len(ids) + 64
    params.n_batch = params.n_ubatch = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more spin where others compute
    params.n_gpu_layers = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)
    scores = []
    for i in range(1, len(ids)):
        answer = server.handle_completions({
            "prompt": ids[:i], "n_predict": 1, "max_tokens": 1, "temperature": 0, "cache_prompt": True, "stream": False,
            "logprobs": 1, "logit_bias": [[ids[i], BIAS]],
        })
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        chosen = answer["choices"][0]["logprobs"]["content"][0]
        assert chosen["id"] == ids[i], f"token {i}: it chose {chosen['id']}, not {ids[i]}"
        scores.append(chosen["logprob"])
    print("SCORES " + json.dumps(scores), flush=True)
    os._exit(0)


def theirs(model, ids):
    done = subprocess.run([sys.executable, __file__, "--peer", model], input=json.dumps(ids), capture_output=True,
                          text=True, timeout=1800)
    for line in done.stdout.splitlines():
        if line.startswith("SCORES "):
            return json.loads(line.removeprefix("SCORES "))
    sys.exit(f"the peer told nothing (exit {done.returncode}):\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def ours():
    """@returns token ids of the text, and the log-probabilities of all but the first."""
    from cluster import Cluster, one_server

    with Cluster() as cluster:
        client = one_server(cluster)
        status, tokens = client.json("POST", "/tokenize", {"prompt": GOLDEN["text"]})
        assert status == 200, tokens
        body = client.complete(prompt=tokens["tokens"], echo=True, logprobs=0, max_tokens=1, temperature=0)
    return tokens["tokens"], body["choices"][0]["logprobs"]["token_logprobs"][1:len(tokens["tokens"])]


def mean(values):
    return sum(values) / len(values)


def main():
    ids, got = ours()
    peers = {"llama.cpp": theirs(os.environ["MOONCAF_MODEL"], ids), "transformers": GOLDEN["logprobs"]}
    print(f"{len(got)} tokens {'perplexity':>20} {'mooncaf, relative':>18} {'|difference| of a log-probability: mean':>40} {'most':>6}")
    print(f"{'mooncaf':12} {math.exp(-mean(got)):19.3f}")
    for name, scores in peers.items():
        assert len(scores) == len(got), (name, len(scores), len(got))
        apart = [abs(a - b) for a, b in zip(got, scores)]
        here, there = math.exp(-mean(got)), math.exp(-mean(scores))
        print(f"{name:12} {there:19.3f} {here / there:18.4f} {mean(apart):40.4f} {max(apart):6.2f}")
    apart = [abs(a - b) for a, b in zip(peers["llama.cpp"], peers["transformers"])]
    print(f"llama.cpp beside transformers: {mean(apart):.4f} in the mean, {max(apart):.2f} at most")


if __name__ == "__main__":
    peer(sys.argv[2]) if sys.argv[1:2] == ["--peer"] else main()
