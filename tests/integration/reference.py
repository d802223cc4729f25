#!/usr/bin/env python3
"""A server's answers against an independent implementation's: Hugging Face `transformers`, in float32, on the weights of
the same file (tests/golden/model/answers.json and the script beside it that made it).

Our kernels compute with 8-bit activations, so where the reference hesitates between two tokens ours may choose the
other one, and everything after it is another text. So a token is compared with what the reference says after the same
tokens, and two things are bounded: how many differ, and how far the reference leaned where one does.
"""
import concurrent.futures
import json
import math
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, one_server, text_of  # noqa: E402

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden/model/answers.json").read_text())
# What was measured with AVX-512 and VNNI is beside each bound.
DIFFER_MAX = 0.05  # share of tokens that are not the reference's after the same tokens; 91 of 3,038
LEAD_MAX = 0.6  # of a logit over the runner-up's, where one is not; 0.33
LOGPROB_MEAN_MAX = 0.1  # mean distance of a token's log-probability from the reference's; 0.063
LOGPROB_MAX = 2.0  # the largest; 1.09
PERPLEXITY_MAX = 0.02  # relative; 0.004


def in_parallel(ask):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, GOLDEN["answers"]))


def greedy_tokens_are_the_reference_s():
    with Cluster() as cluster:
        client = one_server(cluster, "--admission", "none")

        def likeliest(golden):
            """What the model finds likeliest at each place of the reference's answer, and that answer's tokens."""
            body = client.complete(prompt=golden["prompt_ids"] + golden["ids"], echo=True, logprobs=1, max_tokens=1,
                                   temperature=0)
            logprobs = body["choices"][0]["logprobs"]
            here = slice(len(golden["prompt_ids"]), len(golden["prompt_ids"]) + len(golden["ids"]))
            return list(zip(logprobs["tokens"][here], logprobs["token_logprobs"][here], logprobs["top_logprobs"][here]))

        def answer(golden):
            return text_of(client.complete(prompt=golden["prompt_ids"], temperature=0, max_tokens=64))

        places = in_parallel(likeliest)
        answers = in_parallel(answer)
        cluster.wait_idle()
    leads = []
    for golden, place in zip(GOLDEN["answers"], places):
        assert len(place) == len(golden["ids"])
        leads += [lead for (_, logprob, top), lead in zip(place, golden["leads"]) if max(top.values()) > logprob]
    total = sum(len(golden["ids"]) for golden in GOLDEN["answers"])
    whole = sum(text == golden["text"] for text, golden in zip(answers, GOLDEN["answers"]))
    print(f"     {len(leads)} of {total} tokens differ, where the reference leans by {max(leads, default=0):.3f} at most; "
          f"{whole} of {len(answers)} answers are the same from end to end", flush=True)
    assert len(answers) >= 50 and total >= 3000
    assert len(leads) <= DIFFER_MAX * total and max(leads, default=0) <= LEAD_MAX, leads
    # An answer that differs does so from a place where a token does, or goes on where the reference ends.
    for golden, place, text in zip(GOLDEN["answers"], places, answers):
        all_likeliest = all(max(top.values()) <= logprob for _, logprob, top in place)
        assert text.startswith(golden["text"]) or not all_likeliest, (golden["prompt"], text, golden["text"])


def log_probabilities_of_a_long_text_are_the_reference_s():
    text, expected = GOLDEN["text"]["text"], GOLDEN["text"]["logprobs"]
    assert len(expected) >= 2000
    with Cluster() as cluster:
        client = one_server(cluster)
        body = client.complete(prompt=text, echo=True, logprobs=0, max_tokens=1, temperature=0)
        got = body["choices"][0]["logprobs"]["token_logprobs"][1:len(expected) + 1]
        cluster.wait_idle()
    assert body["usage"]["prompt_tokens"] == len(expected) + 1, body["usage"]
    distances = [abs(a - b) for a, b in zip(got, expected)]
    mean = lambda values: sum(values) / len(values)
    ours, theirs = math.exp(-mean(got)), math.exp(-mean(expected))
    print(f"     {len(got)} log-probabilities: off by {mean(distances):.4f} in the mean, {max(distances):.3f} at most; "
          f"perplexity {ours:.3f}, the reference's {theirs:.3f}")
    assert mean(distances) <= LOGPROB_MEAN_MAX and max(distances) <= LOGPROB_MAX
    assert abs(ours / theirs - 1) <= PERPLEXITY_MAX


TESTS = [greedy_tokens_are_the_reference_s, log_probabilities_of_a_long_text_are_the_reference_s]

if __name__ == "__main__":
    main(TESTS)
