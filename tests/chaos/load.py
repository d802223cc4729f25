"""Clients of a cluster that is being hurt: each answer is the right one, or an honest error after a right beginning."""
import http.client
import json
import random
import threading
import time

PROMPTS = 24
HONEST = {400, 413, 415, 429, 499, 503}


def prompt(i):
    """Token ids; four families share a beginning of some blocks each."""
    family = random.Random(i % 4)
    own = random.Random(1000 + i)
    return [family.randrange(3, 500) for _ in range(48 + 32 * (i % 4))] + \
           [own.randrange(3, 500) for _ in range(20 + 9 * (i % 7))]


def question(i):
    # Drawn with a seed: a model of random weights repeats itself when it is greedy, and a lost token would not show.
    return {"prompt": prompt(i), "max_tokens": 8 + (i * 13) % 56, "temperature": 1.0, "seed": 7 + i, "ignore_eos": True}


HOSTILE = [b"{", b"\0" * 100, b'{"prompt": ' + b"[" * 5000, b'{"prompt": "x", "max_tokens": 1e400}', b"[]", b'{"prompt": 5}',
           b'{"x": [' + b"{}," * 2000 + b"{}]}"]


class Load:
    """Threads that ask until they are told to stop."""

    def __init__(self, world, expected, clients, leaving, hostile, bound):
        self.world, self.expected, self.bound = world, expected, bound
        self.leaving, self.hostile = leaving, hostile
        self.counts = {"exact": 0, "refused": 0, "cut short": 0, "left": 0, "hostile": 0, "unreachable": 0}
        self.violations = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        seed = world.scenario["seed"]
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed * 100 + i),), daemon=True)
                        for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def finish(self):
        self.stopping.set()
        deadline = time.monotonic() + self.bound + 10
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0.1))
            if thread.is_alive():
                self.violations.append(f"a client still waits {self.bound + 10} s after the last request began")

    def note(self, what):
        with self.lock:
            self.counts[what] += 1

    def wrong(self, text):
        with self.lock:
            self.violations.append(text)

    def run(self, dice):
        gateways = self.world.gateways()
        while not self.stopping.is_set():
            gateway = dice.choice(gateways)
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
                    self.wrong(f"gateway {gateway}, which no fault touched, broke a connection: {e!r}")
            self.note(outcome)
            took = time.monotonic() - began
            if took > self.bound:
                self.wrong(f"prompt {i} took {took:.1f} s, outcome {outcome}")
            self.stopping.wait(0.1 if outcome in ("refused", "unreachable") else 0.03)

    def connect(self, gateway):
        return http.client.HTTPConnection(self.world.address[gateway], 8000, timeout=self.bound)

    def ask_rubbish(self, gateway, dice):
        connection = self.connect(gateway)
        try:
            connection.request("POST", "/v1/completions", dice.choice(HOSTILE), {"Content-Type": "application/json"})
            status = connection.getresponse().status
            if status not in HONEST:
                self.wrong(f"rubbish was answered with {status}")
            return "hostile"
        finally:
            connection.close()

    def ask(self, gateway, i, stream, leave):
        connection = self.connect(gateway)
        try:
            connection.request("POST", "/v1/completions", json.dumps({**question(i), "stream": stream}),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                body = response.read()
                if response.status not in HONEST or b'"error"' not in body:
                    self.wrong(f"prompt {i}: status {response.status}, {body[:200]!r}")
                return "refused"
            if not stream:
                return self.judge(i, json.loads(response.read())["choices"][0]["text"], True)
            text, done = "", False
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    done = True
                    break
                event = json.loads(line[6:])
                if "error" in event:
                    return self.judge(i, text, False)
                text += "".join(c["text"] for c in event["choices"])
                if leave and len(text) > 20:
                    self.judge(i, text, False)
                    return "left"
            if not done and gateway not in self.world.disturbed:
                self.wrong(f"prompt {i}: the stream ended without a word, and no fault touched its gateway")
            return self.judge(i, text, done)
        finally:
            connection.close()

    def judge(self, i, text, whole):
        expected = self.expected[i]
        if whole and text == expected:
            return "exact"
        if not whole and expected.startswith(text):
            return "cut short"
        at = next((n for n, (a, b) in enumerate(zip(text, expected)) if a != b), min(len(text), len(expected)))
        self.wrong(f"prompt {i}: WRONG TEXT from character {at}: {text[at:at + 40]!r} instead of "
                   f"{expected[at:at + 40]!r}{'' if whole else ' (cut short)'}")
        return "exact"
