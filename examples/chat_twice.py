#!/usr/bin/env python3
"""Asks a mooncaf server a question and then a second one in the same conversation, and shows what the cluster did.

    examples/chat_twice.py http://127.0.0.1:8000

Standard library only: it speaks plain HTTP and server-sent events, as any OpenAI client does.
"""
import json
import sys
import time
import urllib.request

SYSTEM = ("You are a guide to a large natural history museum. You answer in one or two short sentences, in plain "
          "words, and you never invent exhibits. The museum has halls for minerals, fossils, insects, birds, oceans, "
          "mammals, early humans, the night sky, and a greenhouse with tropical plants. It opens at nine in the "
          "morning and closes at six in the evening, and on Thursdays at nine. Guided tours start every full hour in "
          "the entrance hall under the whale skeleton. Children below twelve years visit free of charge.")
QUESTIONS = ["When do the guided tours start?", "And where do I have to wait for them?"]


def ask(base, messages):
    """Streams one answer to the terminal; returns (text, times of the tokens, usage, request id)."""
    body = {"messages": messages, "stream": True, "temperature": 0, "max_tokens": 48,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(base + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    text, times, usage = "", [], {}
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=120) as response:
        trace = response.headers.get("x-request-id", "")
        for line in response:
            line = line.strip()
            if not line.startswith(b"data: ") or line == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                piece = choice["delta"].get("content") or ""
                if piece:
                    times.append(time.monotonic() - began)
                    text += piece
                    print(piece, end="", flush=True)
    print()
    return text, times, usage, trace


def bytes_by_path(cluster):
    return {p["path"]: p["bytes"] for p in cluster.get("paths", [])}


def main():
    base = sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    messages = [{"role": "system", "content": SYSTEM}]
    rows = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        print(f"\n> {question}\n", end="")
        text, times, usage, _ = ask(base, messages)
        messages.append({"role": "assistant", "content": text})
        with urllib.request.urlopen(base + "/cluster", timeout=10) as response:
            cluster = json.load(response)
        placed = cluster["recent"][0] if cluster.get("recent") else {}
        gaps = [b - a for a, b in zip(times, times[1:])]
        rows.append((len(rows) + 1, placed.get("prefill", "?"), placed.get("decode", "?"), usage.get("prompt_tokens", 0),
                     (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
                     usage.get("completion_tokens", 0), 1000 * times[0] if times else 0,
                     1000 * sum(gaps) / len(gaps) if gaps else 0))
    print(f"\n{'turn':>4}  {'prefill':<12} {'decode':<12} {'prompt':>6} {'cached':>6} {'output':>6} "
          f"{'TTFT ms':>8} {'TBT ms':>7}")
    for row in rows:
        print(f"{row[0]:>4}  {row[1]:<12} {row[2]:<12} {row[3]:>6} {row[4]:>6} {row[5]:>6} {row[6]:>8.1f} {row[7]:>7.2f}")
    moved = bytes_by_path(cluster)
    print("\nKV bytes moved by path:", ", ".join(f"{k} {v:,}" for k, v in moved.items()) or
          "none (prefill and decode share one process: blocks are handed over in place)")


if __name__ == "__main__":
    main()
