#!/usr/bin/env python3
"""Turns of a conversation on a device with memory of its own: what of the context has to come over its link again.

    MOONCAF_BINARY=build/actors/mooncaf MOONCAF_MODEL=M.gguf tests/bench/turns_on_device.py --link 256MiB

One server with every role on the linked device. Each conversation begins with about 2,700 tokens and has short turns after; one
token is asked for, so that a turn takes its TTFT. The last line counts context found on the device and loaded over the link.
"""
import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import Cluster, one_server, wait_until  # noqa: E402

SENTENCE = "The log of the station lists wind, rain and the height of the water for every hour of the day. "


def turn(client, messages):
    """Milliseconds to the answer's one token; it and the next question are added to the messages."""
    began = time.monotonic()
    status, body = client.json("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 1, "temperature": 0})
    took = time.monotonic() - began
    assert status == 200, body
    messages += [{"role": "assistant", "content": body["choices"][0]["message"]["content"]},
                 {"role": "user", "content": "And the next hour? " + SENTENCE * 2}]
    return 1e3 * took, body["usage"]["prompt_tokens"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--link", default="256MiB", help="bytes a second between the device's memory and the host's")
    p.add_argument("--device-kv", default="256MiB")
    p.add_argument("--device-write-policy", default="write_through")
    p.add_argument("--conversations", type=int, default=3)
    p.add_argument("--turns", type=int, default=4)
    a = p.parse_args()
    with Cluster() as cluster:
        client = one_server(cluster, "--model", os.environ["MOONCAF_MODEL"], "--device", "linked", "--link-bandwidth", a.link,
                            "--device-kv", a.device_kv, "--context-length", "4096", "--device-write-policy", a.device_write_policy)
        talks = [[{"role": "user", "content": f"Station {i}. " + SENTENCE * 120}] for i in range(a.conversations)]
        print("turn  prompt tokens  median TTFT, ms")
        tokens = 0
        for number in range(a.turns):
            took, prompts = zip(*(turn(client, talk) for talk in talks))
            tokens += sum(prompts)
            print(f"{number + 1:4}  {prompts[0]:13}  {statistics.median(took):.0f}", flush=True)
        seen = lambda: client.cluster()["devices"][0]
        wait_until("the node reported its passes", lambda: seen()["hit_tokens"] + seen()["loaded_tokens"] >= tokens / 2)
        print({k: v for k, v in seen().items() if k != "node"})


if __name__ == "__main__":
    main()
