"""Clients of a cluster that is being hurt: each answer is the right one and ends once, or an honest error after a right
beginning."""
import http.client
import json
import random
import socket
import threading
import time

PROMPTS = 24
HONEST = {400, 413, 415, 429, 431, 499, 503}
PAUSE = 0.05  # of a client between two requests


def prompt(i):
    """Token ids; four families share a beginning of some blocks each."""
    family = random.Random(i % 4)
    own = random.Random(1000 + i)
    return [family.randrange(3, 500) for _ in range(48 + 32 * (i % 4))] + \
           [own.randrange(3, 500) for _ in range(20 + 9 * (i % 7))]


def question(i, device):
    # Drawn with a seed: a model of random weights repeats itself when it is greedy, and a lost token would not show.
    fields = {"prompt": prompt(i), "max_tokens": 8 + (i * 13) % 56, "temperature": 1.0, "seed": 7 + i}
    if i % 8 == 7 and device != "model":  # held to a form, whose state goes with the request
        return {**fields, "guided_regex": "([a-f]{3}[0-9]){2,9}"}
    return {**fields, "ignore_eos": True, "n": 2 if i % 8 == 3 else 1}


def texts(body):
    """The answers of a body that is not streamed; each must have ended, once."""
    choices = sorted(body["choices"], key=lambda c: c["index"])
    assert [c["index"] for c in choices] == list(range(len(choices))), body
    assert all(c["finish_reason"] in ("length", "stop") for c in choices), body
    return [c["text"] for c in choices]


def post(body):
    return b"POST /v1/completions HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" \
        % (len(body), body)


# Whole requests, so that heads can be wrong, too. The last two never end: the client leaves instead.
HOSTILE = [post(b) for b in (
    b"{", b"\0" * 100, b'{"prompt": ' + b"[" * 5000, b'{"prompt": "x", "max_tokens": 1e400}', b"[]", b'{"prompt": 5}',
    b'{"x": [' + b"{}," * 20000 + b"{}]}", b'{"prompt": "\xff\xfe"}', b'{"prompt": [999999999]}',
    b'{"prompt": [[1]' + b",[1]" * 1000 + b'], "n": 128}', b'{"max_tokens": -1, "prompt": "' + b"word " * 30000 + b'"}',
    b'{"prompt": "x", "use_beam_search": true}', b'{"prompt": "x", "model": "another"}',
    b'{"prompt": "x", "guided_regex": "(((((a*)*)*)*)*)*b{1,99999}"}',
    b'{"prompt": "x", "max_tokens": 4, "guided_json": {"$ref": "#"}}')] + [
    b"GET / HTTP/1.1\r\nno colon here\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03 hello\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: minus\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50000 + b"\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 1000\r\n\r\n{", b"GET /hea"]
WITHOUT_END = 2


class Load:
    """Threads that ask until they are told to stop."""

    def __init__(self, world, expected, bound):
        self.world, self.expected, self.bound = world, expected, bound
        scenario = world.scenario
        self.device, self.leaving, self.hostile = scenario["device"], scenario["leaving"], scenario["hostile"]
        self.counts = {"exact": 0, "refused": 0, "cut short": 0, "left": 0, "hostile": 0, "unreachable": 0,
                       "slowest request": 0}
        self.violations = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(scenario["seed"] * 100 + i),), daemon=True)
                        for i in range(scenario["clients"])]
        for thread in self.threads:
            thread.start()

    def finish(self):
        self.stopping.set()
        deadline = time.monotonic() + self.bound + 10
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0.1))
            if thread.is_alive():
                self.wrong("hang", f"a client still waits {self.bound + 10} s after the last request began")

    def wrong(self, kind, text):
        with self.lock:
            self.violations.append((kind, text))

    def run(self, dice):
        while not self.stopping.is_set():
            gateway = dice.choice(self.world.gateways())
            i = dice.randrange(PROMPTS)
            began = time.monotonic()
            try:
                if dice.random() < self.hostile:
                    outcome = self.ask_rubbish(gateway, dice)
                else:
                    outcome = self.ask(gateway, i, dice.random() < 0.6, dice.random() < self.leaving)
            except (OSError, http.client.HTTPException) as e:
                outcome = "unreachable"
                if gateway not in self.world.disturbed:
                    self.wrong("dishonest", f"gateway {gateway}, which no fault touched, broke a connection: {e!r}")
            except Exception as e:  # an answer that is none
                outcome = "unreachable"
                self.wrong("dishonest", f"prompt {i}: {type(e).__name__}: {str(e)[:300]}")
            took = time.monotonic() - began
            with self.lock:
                self.counts[outcome] += 1
                self.counts["slowest request"] = max(self.counts["slowest request"], round(took, 1))
            if took > self.bound:
                self.wrong("hang", f"prompt {i} took {took:.1f} s, outcome {outcome}")
            self.stopping.wait(2 * PAUSE if outcome in ("refused", "unreachable") else PAUSE)

    def ask_rubbish(self, gateway, dice):
        n = dice.randrange(len(HOSTILE))
        with socket.create_connection((self.world.address[gateway], 8000), timeout=self.bound) as s:
            try:
                s.sendall(HOSTILE[n])
                if n >= len(HOSTILE) - WITHOUT_END:
                    return "hostile"
                head = s.recv(4096)
            except ConnectionResetError:
                return "hostile"  # hung up on in the middle of what it sent
            status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.1 ") else None
            if status not in HONEST | {403, 404} and not (status is None and gateway in self.world.disturbed):
                self.wrong("dishonest", f"rubbish {n} was answered with {head[:100]!r}")
            return "hostile"

    def ask(self, gateway, i, stream, leave):
        connection = http.client.HTTPConnection(self.world.address[gateway], 8000, timeout=self.bound)
        try:
            connection.request("POST", "/v1/completions", json.dumps({**question(i, self.device), "stream": stream}),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                body = response.read()
                if response.status not in HONEST or b'"error"' not in body:
                    self.wrong("dishonest", f"prompt {i}: status {response.status}, {body[:200]!r}")
                return "refused"
            if not stream:
                return self.judge(i, texts(json.loads(response.read())), True)
            return self.read_stream(gateway, i, response, leave)
        finally:
            connection.close()

    def read_stream(self, gateway, i, response, leave):
        answers = [""] * len(self.expected[i])
        ends, done = [0] * len(answers), False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            if done:
                self.wrong("dishonest", f"prompt {i}: after the end came {line[:200]!r}")
            if line.strip() == b"data: [DONE]":
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                return self.judge(i, answers, False)
            for choice in event["choices"]:
                answers[choice["index"]] += choice["text"]
                ends[choice["index"]] += choice["finish_reason"] is not None
            if leave and len(answers[0]) > 20:
                self.judge(i, answers, False)
                return "left"
        if not done and gateway not in self.world.disturbed:
            self.wrong("dishonest", f"prompt {i}: the stream ended without a word, and no fault touched its gateway")
        if done and ends != [1] * len(answers):
            self.wrong("dishonest", f"prompt {i}: its answers ended {ends} times")
        return self.judge(i, answers, done)

    def judge(self, i, answers, whole):
        for text, expected in zip(answers, self.expected[i], strict=True):
            if text != expected if whole else not expected.startswith(text):
                at = next((n for n, (a, b) in enumerate(zip(text, expected)) if a != b), min(len(text), len(expected)))
                self.wrong("wrong text", f"prompt {i}, from character {at}: {text[at:at + 40]!r} instead of "
                                         f"{expected[at:at + 40]!r}{'' if whole else ' (cut short)'}")
        return "exact" if whole else "cut short"
