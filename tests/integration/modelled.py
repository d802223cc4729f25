#!/usr/bin/env python3
"""Clusters whose devices are modelled: a trace through real processes and HTTP, its decisions replayed from the journal,
its figures beside those of `mooncaf simulate` with the same profile."""
import asyncio
import json
import os
import pathlib
import re
import stat
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, Skipped, free_port, main, wait_until  # noqa: E402

TRACE_BLOCK = 512
FIRST_LENGTH_WORD, LONGEST_ANSWER = 512, 2048  # runtime/sim/modelled_pass.hpp
PAPERS_TRACE = pathlib.Path(os.environ.get("MOONCAF_TRACE") or
                            pathlib.Path(__file__).resolve().parents[3] / "shared/traces/conversation_trace.jsonl")


# ---- the trace, as prompts of a modelled model

def papers_trace(count, skip=0):
    """A stretch of the conversation trace, which has to be at hand.

    The trace's clock ticks every 3 s, and up to 28 requests bear one time. Simulated, they come in the trace's order; through
    HTTP short prompts arrive before long ones of the same moment, which serves them sooner on the whole (TTFT 14 to 27 %
    less where prompts queue). So they are spread over the time to the next moment: one order for both.
    """
    if not PAPERS_TRACE.exists():
        raise Skipped(f"no conversation trace at {PAPERS_TRACE.name} beside the project, nor in MOONCAF_TRACE")
    rows = [json.loads(line) for line in PAPERS_TRACE.read_text().splitlines()[skip:skip + count]]
    first = rows[0]["timestamp"]
    for r in rows:
        r["timestamp"] -= first
        r["output_length"] = min(max(r["output_length"], 1), LONGEST_ANSWER)
    return spread(rows)


def spread(rows):
    """Requests of one time, evenly over what is left until the next."""
    moments = {}
    for r in rows:
        moments.setdefault(r["timestamp"], []).append(r)
    begins = list(moments)
    for at, until in zip(begins, [*begins[1:], begins[-1] + 3000]):
        for i, r in enumerate(moments[at]):
            r["timestamp"] = at + (until - at) * i // len(moments[at])
    return rows


def body_of(row):
    """The prompt as token ids: equal hash ids are equal blocks; the last token says how long the answer is."""
    blocks = ["%d,%d,%d,%d,%s" % (h & 255, h >> 8 & 255, h >> 16 & 255, h >> 24 & 255, "7," * (TRACE_BLOCK - 4))
              for h in row["hash_ids"]]
    ids = "".join(blocks)
    surplus = len(row["hash_ids"]) * TRACE_BLOCK - row["input_length"] + 1
    kept = ids.rsplit(",", surplus + 1)[0] + "," if row["input_length"] > 1 else ""
    return (b'{"stream":true,"temperature":0,"max_tokens":%d,"prompt":[' % LONGEST_ANSWER + kept.encode()
            + b"%d]}" % (FIRST_LENGTH_WORD + row["output_length"] - 1))


class Answer(asyncio.Protocol):
    """One streamed request. Times are taken as data comes, and nothing is parsed before the end: whatever the client
    computes meanwhile slows the cluster, which has no other machine. TTFT counts from when the request was due: a burst
    that the client cannot send at once has waited, too."""

    def __init__(self, body, key, done, due):
        self.body, self.key, self.done, self.begin, self.chunks = body, key, done, due, []

    def connection_made(self, transport):
        transport.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Authorization: Bearer %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                        % (self.key, len(self.body)) + self.body)

    def data_received(self, data):
        self.chunks.append((time.monotonic(), data))

    def connection_lost(self, error):
        if not self.done.done():
            self.done.set_result(None)

    def read(self):
        """Status, TTFT, gaps between tokens; what came together has one time."""
        if not self.chunks:
            return {"status": 0, "ttft": None, "gaps": []}
        status = int(self.chunks[0][1][9:12])
        if status != 200:
            return {"status": status, "ttft": None, "gaps": []}
        times, text, seen = [], b"", 0
        for at, data in self.chunks:
            text += data
            while (end := text.find(b"\n\n", seen)) >= 0:
                times += [at] * text[seen:end].count(b'"choices":[{')
                seen = end + 2
            text, seen = text[seen:], 0
        whole = b"[DONE]" in self.chunks[-1][1] or any(b"[DONE]" in d for _, d in self.chunks[-3:])
        if not times or not whole:
            return {"status": -1, "ttft": None, "gaps": []}
        return {"status": 200, "ttft": times[0] - self.begin, "gaps": [b - a for a, b in zip(times, times[1:])]}


async def play(port, rows, scale):
    """Sends every request at its time, `scale` times sooner. Returns the answers in order, times scaled back."""
    bodies = [body_of(r) for r in rows]
    loop, begin, answers, waits = asyncio.get_running_loop(), time.monotonic() + 0.2, [], []
    for row, body in zip(rows, bodies):
        due = begin + row["timestamp"] / 1000 / scale
        await asyncio.sleep(max(0, due - time.monotonic()))
        done = loop.create_future()
        key = row.get("key", "none").encode()
        _, answer = await loop.create_connection(lambda b=body, k=key, d=done, t=due: Answer(b, k, d, t), "127.0.0.1", port)
        answers.append(answer)
        waits.append(done)
    await asyncio.wait_for(asyncio.gather(*waits), 600)
    out = [a.read() for a in answers]
    for a in out:
        if a["ttft"] is not None:
            a["ttft"] *= scale
            a["gaps"] = [g * scale for g in a["gaps"]]
    return out


def tbt(gaps):
    """Of a request, as the papers have it: the mean of its slowest tenth of gaps, at least ten if it has as many."""
    n = min(len(gaps), max(10, -(-len(gaps) // 10)))
    return statistics.mean(sorted(gaps)[-n:]) if n else 0


# ---- clusters

def start(cluster, prefill, decode, processes, profile, scale, *more, key=None, workers=()):
    """`prefill` + `decode` instances in one process, or each in one of its own, which has the options `workers`, too. Returns a
    client and its port."""
    http, control = free_port(), free_port()
    common = ["--device", f"model:{profile}", "--time-scale", str(scale), "--metrics-listen", "127.0.0.1:0",
              "--data-listen", "127.0.0.1:0", "--model="]
    front = ["--http", f"127.0.0.1:{http}", "--listen", f"127.0.0.1:{control}", *more]
    if not processes:
        cluster.start("all", *common, *front, "--prefill-instances", str(prefill), "--decode-instances", str(decode))
    else:
        cluster.start("front", "--role", "conductor,gateway", *common, *front)
        join = [*common, *workers, "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
        for i in range(prefill):
            cluster.start(f"prefill{i}", "--role", "prefill", "--prefill-instances", "1", *join)
        for i in range(decode):
            cluster.start(f"decode{i}", "--role", "decode", "--decode-instances", "1", *join)
    client = cluster.wait_healthy("127.0.0.1", http, key=key)
    wait_until("all instances are there", lambda: len(client.cluster()["instances"]) == prefill + decode, 60)
    if processes:
        wait_until("the gateway can use every node", lambda: all(
            " peer up " in p.output() for n, p in cluster.processes.items() if n != "front"), 60)
    return client, http


def live(rows, prefill, decode, processes, profile, scale, *more, slo=(30, 0.1)):
    """One replay: what clients saw and what the conductor counted, in the profile's time."""
    with Cluster() as cluster:
        client, http = start(cluster, prefill, decode, processes, profile, scale, "--ttft-slo", f"{slo[0]}s",
                             "--tbt-slo", f"{round(slo[1] * 1000)}ms", *more)
        answers = asyncio.run(play(http, rows, scale))
        counters = client.cluster()["counters"]
        cluster.wait_idle()
    good = [a for a in answers if a["status"] == 200]
    ttft = sorted(a["ttft"] for a in good)
    gaps = [g for a in good for g in a["gaps"]]
    return {
        "answers": answers,
        "completed": len(good),
        "ttft_mean": statistics.mean(ttft), "ttft_p90": ttft[int(0.9 * (len(ttft) - 1))],
        "gap_mean": statistics.mean(gaps) if gaps else 0,
        "hit": counters["cached_tokens"] / max(1, counters["prompt_tokens"]),
        "rejected_ttft": counters["rejected_ttft"], "rejected_tbt": counters["rejected_tbt"],
        "fetches": counters["fetches"],
        "goodput": sum(a["ttft"] <= slo[0] and tbt(a["gaps"]) <= slo[1] for a in good) / len(rows),
    }


def simulated(trace, prefill, decode, profile, *more, slo=(30, 0.1)):
    made = json.loads(subprocess.run(
        [BINARY, "simulate", "--trace", str(trace), "--profile", profile, "--prefill", str(prefill), "--decode", str(decode),
         "--slo-ttft", f"{slo[0]}s", "--slo-tbt", f"{round(slo[1] * 1000)}ms", "--json", *more],
        check=True, capture_output=True, text=True).stdout)
    return made


# ---- the tests

def small_trace(folder, count):
    rows = papers_trace(count)
    path = pathlib.Path(folder) / "trace.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return rows, path


def answers_depend_on_the_prompt_alone():
    """The same tokens from one process and from several; as long as the prompt says; text works, too."""
    def ask(client):
        told = client.complete(prompt=[1, 2, 3] * 700 + [FIRST_LENGTH_WORD + 6], max_tokens=50, temperature=0)
        assert told["usage"]["completion_tokens"] == 7 and told["choices"][0]["finish_reason"] == "stop", told
        text = client.complete(prompt="Where do we meet?", max_tokens=12, temperature=1)
        assert text["choices"][0]["finish_reason"] == "length"
        chat = client.chat([{"role": "user", "content": "hello"}], max_tokens=4)
        return [told["choices"][0]["text"], text["choices"][0]["text"], chat["choices"][0]["message"]["content"]]

    seen = []
    for processes in (False, True):
        with Cluster() as cluster:
            client, _ = start(cluster, 2, 2, processes, "h200-llama8b", 50)
            seen += [ask(client) for _ in range(3)]
            cluster.wait_idle()
    assert all(s == seen[0] for s in seen), seen


def a_journal_of_a_served_trace_replays():
    with Cluster() as cluster:
        journal = pathlib.Path(cluster.folder.name) / "decisions"
        rows, _ = small_trace(cluster.folder.name, 60)
        client, http = start(cluster, 3, 2, True, "h200-llama8b", 10, "--admission", "early", "--journal", str(journal),
                             workers=("--journal", str(journal)))
        answers = asyncio.run(play(http, rows, 10))
        assert sum(a["status"] == 200 for a in answers) == len(rows), [a["status"] for a in answers]
        # A node that dies and one that stops are inputs, too.
        cluster.processes["prefill2"].kill9()
        wait_until("its node has left", lambda: len(client.cluster()["instances"]) == 4)
        client.complete(prompt=[1, 2, 3] * 700, max_tokens=5)
        cluster.wait_idle()
        cluster.processes["front"].stop()
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600
        check_journal(journal, len(rows) + 1)
        # Its requests, as a trace: the last one is not of `rows`.
        made = subprocess.run([BINARY, "trace", "from-journal", str(journal)], capture_output=True, text=True, check=True)
        asked = [json.loads(line) for line in made.stdout.splitlines()]
        lengths = sorted((r["input_length"], r["output_length"]) for r in asked)
        sent = sorted([*((r["input_length"], r["output_length"]) for r in rows), (2100, 5)])
        assert lengths == sent, (lengths, sent, made.stderr)
        # Of workers that would have one journal, being nameless, one has it; the others say so, and serve.
        told = [p.output().count("is written by another process; give each a --journal or a --name") for n, p in cluster.processes.items()
                if n != "front"]
        assert sorted(told) == [0, 0, 1, 1, 1], told
        assert replay(*(journal.with_name(f"decisions.{w}") for w in ("prefill0", "decode0"))).stdout.count("all the same") == 2
        explained = replay(journal, "--explain", f"#{len(rows)}")
        assert explained.stdout.count("\n> ") == 2 and "prefill instance" in explained.stdout, explained.stdout
        # As after a power cut in mid-write.
        torn = journal.with_name("torn")
        torn.write_bytes(journal.read_bytes()[:-5])
        cut = replay(torn)
        assert cut.returncode == 0 and "never finished" in cut.stderr, cut
        # A length in the middle that a disk got wrong, and a frame that is not there: what is missing is counted.
        whole = journal.read_bytes()
        frames = [m.start() for m in re.finditer(b"mcj[FE]", whole)]
        second, third = frames[len(frames) // 2:len(frames) // 2 + 2]
        torn.write_bytes(whole[:second + 6] + b"\x7f" + whole[second + 7:])
        damaged = replay(torn)
        assert damaged.returncode == 3 and "is damaged: 1 frame with" in damaged.stderr, damaged
        assert "all the same as far as they are there" in damaged.stdout, damaged
        torn.write_bytes(whole[:second] + whole[third:])
        gone = replay(torn)
        assert gone.returncode == 3 and "should be here" in gone.stderr and ": 1 frame with" in gone.stderr, gone
        torn.write_bytes(b"what is this")
        assert "offset 0: this is no journal" in replay(torn).stderr


def the_journal_of_an_overloaded_server_tells_whom_it_refused():
    """A full queue, and a decode side that refuses after prefill: clients, list and trace agree on how many."""
    for options, stage in ((["--admission", "queue", "--max-queued", "6"], "refused at placement"),
                           (["--admission", "baseline", "--tbt-slo", "27ms"], "refused at decode")):
        with Cluster() as cluster:
            journal = pathlib.Path(cluster.folder.name) / "decisions"
            rows, _ = small_trace(cluster.folder.name, 60)
            for i, r in enumerate(rows):
                r["timestamp"] = 20 * i
            client, http = start(cluster, 1, 1, False, "a800x8-llama70b", 20, *options, "--journal", str(journal))
            statuses = [a["status"] for a in asyncio.run(play(http, rows, 20))]
            cluster.wait_idle()
            cluster.processes["all"].stop()
            refused = sum(s != 200 for s in statuses)
            assert 0 < refused < len(rows), statuses
            check_journal(journal, len(rows))
            listed = replay(journal, "--list").stdout.splitlines()[:-1]
            assert sum("refused" in line for line in listed) == refused, (refused, listed)
            made = subprocess.run([BINARY, "trace", "from-journal", str(journal)], capture_output=True, text=True, check=True)
            assert len(made.stdout.splitlines()) == len(rows) - refused, made.stderr
            assert f"{refused} left out: " in made.stderr, made.stderr
            number = next(line.split()[0] for line in listed if stage in line)
            assert stage in replay(journal, "--explain", number).stdout
            # The workers' own decisions, beside it.
            workers = [journal.with_name(f"decisions.{worker}") for worker in ("prefill0", "decode0")]
            explained = replay(*workers, journal, "--explain", number)
            assert explained.returncode == 0 and explained.stdout.count("all the same") == 3, explained
            told = [line for line in explained.stdout.splitlines() if re.match(r"\S+/decisions\.(prefill|decode)0 \d+ ", line)]
            if stage == "refused at decode":
                assert [w in t for w, t in zip(("; loads ", "computed ", "; refused: "), told)] == [True] * 3, told
                served = next(line.split()[0] for line in listed if "refused" not in line)
                whole = replay(*workers, journal, "--explain", served).stdout
                assert "; taken into the batch" in whole and re.search(r"decode0 \d+ answered \d+ tokens in ", whole), whole
            else:
                assert told == [], told
            print(f"    {' '.join(options)}: {refused} of {len(rows)} refused")


TENANTS = """
[flood]
key = "f"
[chat]
key = "c"
[paying]
key = "p"
share = 3
operates = true
"""


def tenants_that_wait_take_turns_by_their_shares():
    """One tenant asks for sixty answers at once. The first tokens of others who ask behind it come as if it had asked for its
    turns alone, and sooner for the one with the larger share; simulated from the journal, too."""
    with Cluster() as cluster:
        at = pathlib.Path(cluster.folder.name)
        (at / "keys").write_text(TENANTS)
        own = lambda key, hashes, ms: {"timestamp": ms, "input_length": 2048, "output_length": 5, "key": key, "hash_ids": hashes}
        rows = [own("f", [10 * i + k for k in range(4)], i) for i in range(60)]
        for i in range(12):
            rows += [own(key, [base + 10 * i + k for k in range(4)], 1000 + i) for key, base in (("c", 10_000), ("p", 20_000))]
        client, http = start(cluster, 1, 1, True, "a800x8-llama70b", 2, "--api-keys-file", str(at / "keys"), "--journal", str(at / "decisions"),
                             key="p")
        answers = asyncio.run(play(http, rows, 2))
        assert all(a["status"] == 200 for a in answers), [a["status"] for a in answers]
        last = {key: max(a["ttft"] for a, r in zip(answers, rows) if r["key"] == key) for key in "fcp"}
        print("    last first tokens, s: " + ", ".join(f"{key} {s:.1f}" for key, s in last.items()))
        # Of a turn's five places three are p's: its 12 requests end after 20 places, c's after 12 more of c and of f.
        assert last["p"] < last["c"] < last["f"], last
        assert last["p"] < 0.45 * last["f"] and last["c"] < 0.7 * last["f"], last
        cluster.wait_idle()
        cluster.processes["front"].stop()
        check_journal(at / "decisions", len(rows))
        made = subprocess.run([BINARY, "trace", "from-journal", str(at / "decisions")], capture_output=True, text=True, check=True)
        (at / "asked.jsonl").write_text(made.stdout)
        asked = [json.loads(line) for line in made.stdout.splitlines()]
        assert sorted((r.get("share", 1), sum(o["tenant"] == r["tenant"] for o in asked)) for r in {r["tenant"]: r for r in asked}.values()) == [
            (1, 12), (1, 60), (3, 12)], asked
        told = simulated(at / "asked.jsonl", 1, 1, "a800x8-llama70b")
        assert sorted(t["arrived"] for t in told["tenants"].values()) == [12, 12, 60], told["tenants"]


def a_server_that_adapts_plays_its_last_minutes():
    """It says how each rule would have done and what else would have helped, beside its work; ends when it is told to, and its
    journal gives the same decisions and advice."""
    with Cluster() as cluster:
        journal = pathlib.Path(cluster.folder.name) / "decisions"
        rows, _ = small_trace(cluster.folder.name, 150)
        client, http = start(cluster, 2, 1, True, "a800x8-llama70b", 20, "--admission", "adaptive", "--ttft-slo", "700ms",
                             "--journal", str(journal))
        asyncio.run(play(http, rows, 20))
        wait_until("it has played", lambda: client.cluster()["admission"]["what_ifs"])
        told = client.cluster()["admission"]
        shares = {p["with"]: p["inside_slos"] for p in told["played"] + told["what_ifs"]}
        assert {"queue", "priced", "early", "one more decode instance", "10 % more requests"} <= shares.keys(), told
        assert all(0 <= share <= 1 for share in shares.values()) and told["rule"] in shares, told
        assert re.search(r'mooncaf_played_share\{[^}]*rule="priced"', client.request("GET", "/metrics")[2].decode())
        cluster.wait_idle()
        cluster.processes["front"].stop()
        assert "all the same" in replay(journal).stdout
        advice = subprocess.run([BINARY, "advise", str(journal)], capture_output=True, text=True)
        assert advice.returncode == 0 and "one more prefill instance" in advice.stdout, advice


def replay(journal, *more):
    return subprocess.run([BINARY, "replay", str(journal), *more], capture_output=True, text=True)


def check_journal(journal, requests):
    done = replay(journal)
    assert done.returncode == 0 and "all the same" in done.stdout, done.stdout + done.stderr
    assert int(done.stdout.split(" calls, ")[1].split()[0]) >= requests, done.stdout
    print("   ", done.stdout.strip())


def a_live_cluster_and_its_simulation_agree():
    """In every mode of admission that differs on this stretch: within a tenth, which is twice what quiet runs differ by
    (tests/bench/papers_live.py has the figures), and hits within two points."""
    with Cluster() as folder:
        rows, path = small_trace(folder.folder.name, 80)
        for admission in ("none", "early", "priced"):
            found = live(rows, 4, 4, True, "a800x8-llama70b", 4, "--admission", admission)
            made = simulated(path, 4, 4, "a800x8-llama70b", "--admission", admission)
            hit = 1 - made["computed_tokens"] / made["prompt_tokens"]
            print(f"    {admission}, live: TTFT {found['ttft_mean']:.2f} s, gap {1e3 * found['gap_mean']:.1f} ms, hit {found['hit']:.3f}, "
                  f"{found['completed']} served; simulated: {made['ttft_s']['mean']:.2f} s, {1e3 * made['gap_s']['mean']:.1f} ms, "
                  f"{hit:.3f}, {made['requests']['completed']}", flush=True)
            assert abs(found["completed"] - made["requests"]["completed"]) <= 1, [a["status"] for a in found["answers"]]
            assert 0.9 < found["ttft_mean"] / made["ttft_s"]["mean"] < 1.1, admission
            assert 0.9 < found["gap_mean"] / made["gap_s"]["mean"] < 1.1, admission
            assert abs(found["hit"] - hit) < 0.02, admission


if __name__ == "__main__":
    main([answers_depend_on_the_prompt_alone, a_journal_of_a_served_trace_replays,
          the_journal_of_an_overloaded_server_tells_whom_it_refused, tenants_that_wait_take_turns_by_their_shares, a_server_that_adapts_plays_its_last_minutes,
          a_live_cluster_and_its_simulation_agree])
