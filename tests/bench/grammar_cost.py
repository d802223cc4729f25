#!/usr/bin/env python3
"""What holding an answer to a grammar costs: time per token of eight answers at once, beside the same without a grammar.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=FILE tests/bench/grammar_cost.py

One process, streamed, at the client; rounds with each grammar and without alternate. "first" is the first round that
a server sees a grammar, when its masks have to be made; "later" the median of the others.
"""
import concurrent.futures
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster  # noqa: E402
from serving import one_process  # noqa: E402

BATCH, TOKENS, ROUNDS = 8, 160, 7
TOWNS = {"type": "array", "minItems": 60, "items": {
    "type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}, "port": {"type": "boolean"},
                                     "rivers": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "size", "port", "rivers"], "additionalProperties": False}}
FORMS = {
    "a schema of records": {"guided_json": TOWNS},
    "strings of at most 40 characters": {"guided_json": {"type": "array", "minItems": 60, "items": {"type": "string", "maxLength": 40}}},
    "a regular expression": {"guided_regex": "([A-Z][a-z]{1,12}( [a-z]{1,12}){3,9}[.?!] ){60,}"},
}


def ms_per_token(client, form, number):
    """First to last token of one answer, by the tokens between."""
    times, tokens = [], 0
    for event in client.stream("/v1/completions", {"prompt": f"Towns and rivers of the world, part {number}:\n", "max_tokens": TOKENS,
                                                   "temperature": 0.8, "seed": number, "stream_options": {"include_usage": True},
                                                   **(form or {"ignore_eos": True})}):
        if event and event["choices"]:
            times.append(time.perf_counter())
        if event and event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    return (times[-1] - times[0]) * 1e3 / max(tokens - 1, 1), tokens


def round_of(client, form):
    with concurrent.futures.ThreadPoolExecutor(BATCH) as pool:
        done = list(pool.map(lambda i: ms_per_token(client, form, i), range(BATCH)))
    # Answers that ended early left the batch smaller.
    whole = [ms for ms, tokens in done if tokens >= TOKENS * 0.9]
    return statistics.mean(whole) if whole else float("nan")


def main():
    with Cluster() as cluster:
        client = one_process(cluster)
        for _ in range(2):
            round_of(client, None)
        free, held = [], {name: [] for name in FORMS}
        for _ in range(ROUNDS):
            free.append(round_of(client, None))
            for name, form in FORMS.items():
                held[name].append(round_of(client, form))
        base = statistics.median(free)
        print(f"{'batch of 8, ms per token':>36} {'first':>7} {'later':>7} {'of free':>8}")
        print(f"{'free':>36} {'':>7} {base:>7.2f} {1:>8.3f}")
        for name, rounds in held.items():
            ratio = statistics.median(h / f for h, f in zip(rounds[1:], free[1:]))
            print(f"{name:>36} {rounds[0]:>7.2f} {statistics.median(rounds[1:]):>7.2f} {ratio:>8.3f}")


if __name__ == "__main__":
    main()
