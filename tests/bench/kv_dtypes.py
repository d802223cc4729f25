#!/usr/bin/env python3
"""What number formats of cached keys and values cost in accuracy, beside f32 (MOONCAF_BINARY, MOONCAF_MODEL):

- log-probabilities of three texts of 1,400 tokens (prose, a program, a licence) and one of 7,600;
- 64 greedy tokens behind 30 prompts: how many are f32's, and how many answers are so from end to end;
- a pass key, hidden at six depths of 1,800 tokens, said at the end.

    MOONCAF_BINARY=BUILD/actors/mooncaf MOONCAF_MODEL=FILE.gguf kv_dtypes.py [FORMAT ...]      (default: f16 int8)

A line for each format, as CSV. The texts are ones that every Debian has, and pages of the project.
"""
import heapq
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

from cluster import Cluster, one_server  # noqa: E402

LICENCES = pathlib.Path("/usr/share/common-licenses")
TEXTS = {"prose": (ROOT / "README.md", 1400), "program": (pathlib.Path(heapq.__file__), 1400),
         "licence": (LICENCES / "MPL-2.0", 1400), "long": (LICENCES / "GPL-3", 7600)}
PROMPTS, ANSWER_TOKENS = 30, 64
DEPTHS, HAY_TOKENS = (0.02, 0.2, 0.4, 0.6, 0.8, 0.98), 1800


def tokens_of(client, text, count=None):
    status, body = client.json("POST", "/tokenize", {"prompt": text})
    assert status == 200, body
    return body["tokens"][:count]


def log_probabilities(client, tokens):
    body = client.complete(prompt=tokens, echo=True, logprobs=0, max_tokens=1, temperature=0)
    return body["choices"][0]["logprobs"]["token_logprobs"][1:len(tokens)]


def prompts(client):
    """Pieces of 40 to 400 tokens of the texts, the same for every format."""
    draw, out = random.Random(29), []
    everything = [tokens_of(client, path.read_text()) for path, _ in TEXTS.values()]
    for _ in range(PROMPTS):
        tokens = draw.choice(everything)
        length = draw.randrange(40, 400)
        at = draw.randrange(len(tokens) - length)
        out.append(tokens[at:at + length])
    return out


def says_the_key(client, depth):
    draw = random.Random(depth)
    key = str(draw.randrange(10000, 99999))
    hay = tokens_of(client, "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. " * 200,
                    HAY_TOKENS)
    needle = tokens_of(client, f" The pass key is {key}. Remember it. {key} is the pass key. ")
    at = int(depth * len(hay))
    body = client.complete(prompt=hay[:at] + needle + hay[at:] + tokens_of(client, " What is the pass key? The pass key is"),
                           max_tokens=8, temperature=0)
    return key in body["choices"][0]["text"]


def measured(dtype):
    with Cluster() as cluster:
        client = one_server(cluster, "--kv-dtype", dtype)
        client.timeout = 600
        scores = {name: log_probabilities(client, tokens_of(client, path.read_text(), count))
                  for name, (path, count) in TEXTS.items()}
        answers = [client.complete(prompt=p, max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True, logprobs=0)
                   ["choices"][0]["logprobs"]["tokens"] for p in prompts(client)]
        keys = sum(says_the_key(client, depth) for depth in DEPTHS)
    return scores, answers, keys


def mean(values):
    return sum(values) / len(values)


def main():
    formats = sys.argv[1:] or ["f16", "int8"]
    exact, said, keys = measured("f32")
    print("format," + ",".join(f"nll {name}" for name in TEXTS) + ",|difference| of a log-probability: mean,most,"
          f"greedy tokens of {PROMPTS * ANSWER_TOKENS},whole answers of {PROMPTS},pass keys of {len(DEPTHS)}")
    print("f32," + ",".join(f"{-mean(exact[name]):.4f}" for name in TEXTS) + f",0,0,{PROMPTS * ANSWER_TOKENS},{PROMPTS},{keys}",
          flush=True)
    for dtype in formats:
        scores, answers, keys = measured(dtype)
        apart = [abs(a - b) for name in TEXTS for a, b in zip(scores[name], exact[name])]
        same = whole = 0
        for ours, theirs in zip(answers, said):
            agree = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(theirs))
            same, whole = same + agree, whole + (agree == len(theirs))
        print(f"{dtype}," + ",".join(f"{-mean(scores[name]):.4f}" for name in TEXTS) +
              f",{mean(apart):.4f},{max(apart):.2f},{same},{whole},{keys}", flush=True)


if __name__ == "__main__":
    main()
