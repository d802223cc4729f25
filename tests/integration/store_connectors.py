#!/usr/bin/env python3
"""Our connectors for SGLang, LMCache and vLLM on a live store: engines without a model, in processes of their own (engines/connectors.py).

MOONCAF_ENGINES names an interpreter of the same version as this one that can import torch, sglang, lmcache and vllm: then the connectors are made by
the engines' own factories, over their own base classes. Without it engines/recorded.py stands in for those, held to the signatures that
tests/data/store/interfaces.json has of them.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "engines"))
import recorded  # noqa: E402
from cluster import PATIENCE, Cluster, main, wait_until  # noqa: E402
from store_world import Store, package, package_path, ready  # noqa: E402

ENGINES = os.environ.get("MOONCAF_ENGINES", "")
DRIVER = pathlib.Path(__file__).parent / "engines/connectors.py"
OURS = {"sglang": ("MooncafStorage", "HiCacheStorage"), "lmcache": ("MooncafConnector", "RemoteConnector"), "vllm": ("MooncafConnector", "KVConnectorBase_V1")}


class Engine:
    """A process that answers."""

    def __init__(self, kind, world):
        env = {**os.environ, "PYTHONPATH": package_path(), "MOONCAF_CLUSTER_SECRET_FILE": world.secret, "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen([ENGINES or sys.executable, str(DRIVER), kind, world.at], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = []
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()
        self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[7:])
        self.process.wait(10)
        raise AssertionError("".join(self.said)[-3000:])

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.result()

    def result(self):
        answer = self.answer()
        assert not answer["wrong"], answer["wrong"]
        return answer["answer"]

    def serve(self, pages, salt, wait=True):
        """How many pages it found. What it had in the end was right. Waits until what it computed is saved, or not."""
        answer = self.ask("serve", pages, salt, wait)
        assert answer["right"], (pages, salt, answer)
        return answer["found"]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60 * PATIENCE) == 0, "".join(self.said)[-3000:]

    def kill(self):
        self.process.kill()
        self.process.wait(10)


def share(kind):
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        one, other = Engine(kind, world), Engine(kind, world)
        # A busy machine may keep a directory that is well from answering for a second; how an engine goes on without one comes next.
        for engine in (one, other):
            engine.ask("patience", 60)
        find_each_other_s(one, other, "salt")
        one.ask("special", "own salt")
        one.close()
        other.ask("patience", 1)
        survive(kind, world, other)
        other.close()


def find_each_other_s(one, other, salt):
    """What one has written the other finds, as far as there is no gap."""
    assert one.serve(6, salt) == 0 and other.serve(6, salt) == 6 and other.serve(4, salt) == 4
    assert other.serve(9, salt) == 6 and one.serve(9, salt) == 9, "what was computed behind it was saved, too"
    assert one.serve(9, "another " + salt) == 0
    other.ask("forget", 3, salt)
    assert one.serve(9, salt) == 3 and other.serve(9, salt) == 9


def survive(kind, world, other):
    """One dies while it writes; the directory stands still, dies, and comes back: the other goes on, with the store or without."""
    dying = Engine(kind, world)
    dying.process.stdin.write("".join(json.dumps(["serve", 9, f"dying-{i}"]) + "\n" for i in range(2000)))
    dying.process.stdin.flush()
    for _ in range(3):
        assert dying.result()["right"]
    dying.kill()
    wait_until("the first is found", lambda: other.serve(9, "dying-0") == 9)
    for i in range(1, 12):
        assert 0 <= other.serve(9, f"dying-{i}") <= 9
    wait_until("nothing is reserved for the dead", lambda: world.json("stat")["reserved"] == 0)

    wait_until("it is kept", lambda: other.serve(5, "before") == 5)
    world.directory.process.send_signal(signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{world.directory.process.pid}/task")
    wait_until("it stands still", lambda: all(") T " in (t / "stat").read_text() for t in threads.iterdir()))
    try:
        assert other.serve(5, "before", wait=False) == 0, "it does not wait for a directory that does not answer"
    finally:
        world.directory.process.send_signal(signal.SIGCONT)
    wait_until("it asks again", lambda: other.serve(5, "before") == 5)
    world.directory.kill9()
    assert other.serve(5, "before") == 0
    alone = Engine(kind, world)
    assert alone.serve(5, "after") == 0 and alone.serve(5, "after") == 0
    world.directory.start()
    ready(world.directory)
    for engine in (alone, other):
        wait_until("it is there again", lambda: engine.serve(5, "after") == 5)
    alone.close()


def test_sglang():
    share("sglang")


def test_lmcache():
    share("lmcache")


def test_vllm():
    share("vllm")


def test_the_connectors_have_the_methods_of_the_engines():
    """Each method that they replace takes what the engine's own takes; and where the engines are, they still have these."""
    for kind, (ours, base) in OURS.items():
        code = ("import sys, json; sys.path[:0] = sys.argv[1:]; import recorded\n"
                f"import importlib.util as u\nif u.find_spec('{kind}') is None: recorded.install('{kind}')\n"
                f"from mooncaf.{kind} import {ours} as ours\n"
                f"told = json.loads(recorded.RECORD.read_text())['{kind}']['classes']['{base}']\n"
                "mine = {m: recorded.parameters(vars(ours)[m]) for m in told if m in vars(ours) and m != '__init__'}\n"
                f"print('SAYS ' + json.dumps([recorded.differences('{kind}'), mine, told, sorted(getattr(ours, '__abstractmethods__', []))]))")
        out = subprocess.run([ENGINES or sys.executable, "-c", code, str(DRIVER.parent), *package_path().split(os.pathsep)], capture_output=True, text=True, timeout=300 * PATIENCE)
        assert out.returncode == 0, out.stderr[-3000:]
        differences, mine, told, abstract = json.loads(out.stdout.split("SAYS ")[1])
        assert not differences and not abstract, (differences, abstract)
        plain = lambda text: [p.rstrip("=") for p in text.split() if not p.startswith("**")]  # noqa: E731
        assert len(mine) >= 8 and all(plain(mine[m]) == plain(told[m]) for m in mine), [(m, mine[m], told[m]) for m in mine if plain(mine[m]) != plain(told[m])]


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
