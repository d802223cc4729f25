#!/usr/bin/env python3
"""2,000 clients ask one server at the same time, most of their streams flow at once, each has the text that its prompt
gets alone, and the server gets no thread for any of them.

With a sanitizer, which is many times slower, there are 400.
"""
import asyncio
import json
import os
import resource
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, modelled, one_server  # noqa: E402

STREAMS = 400 if os.environ.get("MOONCAF_SANITIZED") else 2000
PROMPTS = 50  # different ones: each stream has its text compared with what its prompt gets alone
TOKENS = 8


def threads_of(process):
    for line in open(f"/proc/{process.process.pid}/status"):
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise AssertionError("no Threads line")


def prompt_of(number):
    return [300 + number % PROMPTS, 17]  # short: prefill is to be far ahead of decode, so that streams flow side by side


class Counts:
    """How many requests are open at once, and how many of them flow (have a token and not yet all), as clients see it."""

    def __init__(self):
        self.asked = self.begun = self.ended = self.most_asked = self.most_begun = 0

    def note(self):
        self.most_asked = max(self.most_asked, self.asked - self.ended)
        self.most_begun = max(self.most_begun, self.begun - self.ended)


async def one_stream(port, number, counts):
    """Returns (text, finish reason) of a streamed completion."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": prompt_of(number), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                       "stream": True})
    writer.write((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
                  f"\r\n{body}").encode())
    await writer.drain()
    counts.asked += 1
    counts.note()
    text, reason, first = "", None, True
    while True:
        line = await reader.readline()
        assert line, f"stream {number} broke off after {text!r}"
        if not line.startswith(b"data: "):
            assert not line.startswith(b"HTTP/1.1 ") or b" 200 " in line, line + await reader.read()
            continue
        if first:
            counts.begun += 1
            counts.note()
            first = False
        if line == b"data: [DONE]\n":
            break
        event = json.loads(line[6:])
        assert "error" not in event, event
        text += event["choices"][0]["text"]
        reason = event["choices"][0]["finish_reason"] or reason
    counts.ended += 1
    writer.close()
    return text, reason


async def all_streams(port, process, counts):
    most_threads = 0

    async def watch():
        nonlocal most_threads
        while counts.ended < STREAMS:
            most_threads = max(most_threads, threads_of(process))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    answers = await asyncio.wait_for(asyncio.gather(*(one_stream(port, i, counts) for i in range(STREAMS))), 240)
    watching.cancel()
    return answers, most_threads


def thousands_of_streams_complete_without_a_thread_for_any():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= STREAMS + 200, f"the limit of open files is {hard}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, STREAMS + 200), hard))
    with Cluster() as cluster:
        # The device is modelled: what is shown is the server's. Small blocks: 2,000 requests must fit at once.
        server = one_server(cluster, *modelled(cluster.folder.name, 16, 16, 10_000_000), "--admission", "none",
                            "--prefill-max-queue", "4096", "--decode-max-queue", "4096", "--max-requests", "4096")
        print(f"     {STREAMS} streams", flush=True)
        alone = [server.complete(prompt=prompt_of(i), max_tokens=TOKENS, temperature=0, ignore_eos=True)["choices"][0]
                 for i in range(PROMPTS)]
        process = cluster.processes["all"]
        before = threads_of(process)
        counts = Counts()
        answers, most_threads = asyncio.run(all_streams(server.port, process, counts))
        print(f"     {counts.most_asked} requests open at once, {counts.most_begun} of them streaming; "
              f"threads {before} before, {most_threads} at most", flush=True)
        for i, (text, reason) in enumerate(answers):
            assert reason == "length" and text == alone[i % PROMPTS]["text"], (prompt_of(i), text, reason, alone[i % PROMPTS])
        assert counts.most_asked >= STREAMS * 0.9, counts.most_asked
        assert counts.most_begun >= STREAMS * 0.5, counts.most_begun
        assert most_threads <= before, (before, most_threads)
        cluster.wait_idle()


TESTS = [thousands_of_streams_complete_without_a_thread_for_any]

if __name__ == "__main__":
    main(TESTS)
