#!/usr/bin/env python3
"""Gateways and a conductor in front of engines of another make (mode engines).

Here the engines are mooncaf servers, each a cluster of its own, which speak the same API as a vLLM does but publish no news of
their caches. With servers of vLLM, news and all: engines_live.py."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, MODEL, Client, Cluster, free_port, main, modelled, one_server, wait_until  # noqa: E402
from rolling import LOCAL, Crowd, answer_to, prompt_of, ready  # noqa: E402

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()


class Front:
    """Some engines, a worker for each, and a conductor with a gateway."""

    def __init__(self, cluster, *device, engines=2, worker=(), engine=()):
        self.cluster = cluster
        self.engines = [one_server(cluster, *device, *engine, name=f"engine-{n}") for n in range(engines)]
        self.mode, self.control, self.http = ("--mode", "engines", *device), free_port(), free_port()
        cluster.start("front", "--role", "conductor,gateway", *self.mode, "--listen", f"127.0.0.1:{self.control}",
                      "--http", f"127.0.0.1:{self.http}", "--metrics-listen", "127.0.0.1:0")
        for n, at in enumerate(self.engines):
            cluster.start(f"worker-{n}", "--role", "engine", *self.mode, "--engine-at", f"127.0.0.1:{at.port}", "--name", f"worker-{n}",
                          "--join", f"127.0.0.1:{self.control}", *LOCAL, *worker)
        self.client = cluster.wait_healthy("127.0.0.1", self.http)
        wait_until("all engines take part", lambda: len(self.instances("live")) == 2 * engines)

    def instances(self, state):
        return [i for i in self.client.cluster()["instances"] if i["state"] == state]


def served(client):
    return client.json("GET", "/v1/models")[1]["data"][0]["id"]


def test_answers_are_the_engines_own():
    with Cluster() as cluster:
        front = Front(cluster, engines=1)
        engine, name = front.engines[0], served(front.client)

        def both(**fields):
            answers = [c.complete(model=name, temperature=0, return_token_ids=True, **fields) for c in (engine, front.client)]
            return [[(c["text"], c["token_ids"], c["finish_reason"], c["logprobs"]) for c in a["choices"]] for a in answers]

        def same(**fields):
            own, ours = both(**fields)
            assert own == ours, (fields, own, ours)
            return ours

        story = "Once upon a time there was a lighthouse keeper who"
        same(prompt=story, max_tokens=40)
        same(prompt=[story, TEXT[:900]], max_tokens=12, n=2)
        assert same(prompt=story, max_tokens=60, stop=["the", "and"])[0][2] == "stop"
        same(prompt=story, max_tokens=20, logit_bias={"260": -100}, repetition_penalty=1.3, presence_penalty=0.5)
        same(prompt=story, max_tokens=20, min_tokens=15, stop_token_ids=[28, 30])
        same(prompt=story, max_tokens=8, allowed_token_ids=[260, 284, 338])
        own, ours = both(prompt=story, max_tokens=8, logprobs=3)
        for a, b in zip(own[0][3]["token_logprobs"], ours[0][3]["token_logprobs"]):
            assert abs(a - b) < 1e-4, (own, ours)
        assert own[0][3]["tokens"] == ours[0][3]["tokens"] and len(ours[0][3]["top_logprobs"][0]) >= 3
        # A streamed chat that a schema holds, and a second turn.
        schema = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 12}}, "required": ["town"]}
        ask = {"model": name, "messages": [{"role": "user", "content": "Name a town."}], "max_tokens": 60, "temperature": 0,
               "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}}
        texts = ["".join(e["choices"][0]["delta"].get("content") or "" for e in c.stream("/v1/chat/completions", ask) if e and e["choices"])
                 for c in (engine, front.client)]
        assert texts[0] == texts[1] and texts[1].startswith("{"), texts
        # Drawn answers: the seed decides.
        draws = [front.client.complete(model=name, prompt=story, max_tokens=24, temperature=1, seed=s)["choices"][0]["text"] for s in (5, 5, 6)]
        assert draws[0] == draws[1] != draws[2], draws
        # What no engine is asked for is refused with the reason, and the engine's own refusal is passed on.
        for path, body, word in (("/v1/embeddings", {"input": "x"}, "embeddings"),
                                 ("/v1/completions", {"prompt": "x", "prompt_logprobs": 1, "max_tokens": 1}, "prompt_logprobs")):
            status, answer = front.client.json("POST", path, {"model": name, **body})
            assert 400 <= status < 600 and word in answer["error"]["message"], (status, answer)
        front.cluster.wait_idle()


def test_a_prompt_goes_where_its_blocks_are():
    with Cluster() as cluster:
        front = Front(cluster, *modelled(cluster.folder.name))
        prompts = [[(n * 41 + i * 7) % 256 for i in range(640)] + [515] for n in range(6)]

        def ask(prompt, **more):
            usage = front.client.complete(prompt=prompt, max_tokens=4, **more)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        def computed():
            return [c.cluster()["counters"]["prompt_tokens"] - c.cluster()["counters"]["cached_tokens"] for c in front.engines]

        assert [ask(p) for p in prompts] == [0] * len(prompts)
        before = computed()
        for _ in range(3):
            for p in prompts:
                assert ask(p) == 640, "what the gateway tells"
        # … and what the engines had to compute: the token behind the last full block, each time.
        again = sum(computed()) - sum(before)
        assert again == 3 * len(prompts), again
        assert all(before), f"both engines got prompts: {before}"
        # Tenants' prompts are apart, at the engine, too.
        assert ask(prompts[0], cache_salt="a") == 0 and ask(prompts[0], cache_salt="a") == 640 and ask(prompts[0], cache_salt="b") == 0


def test_an_engine_that_others_keep_busy_is_spared():
    """Clients that ask an engine itself are in its metrics, and in the conductor's choice."""
    with Cluster() as cluster:
        front = Front(cluster, *modelled(cluster.folder.name))
        busy, idle = front.engines
        long_prompt = [5] * 40 + [512 + 900]  # an answer of 900 tokens
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            crowd = [pool.submit(busy.complete, prompt=[n, *long_prompt], max_tokens=900, temperature=0) for n in range(10)]
            others = lambda: {i["name"]: i["others"] for i in front.client.cluster()["instances"] if i["role"] == "decode"}
            wait_until("the conductor has heard of them", lambda: others() == {"worker-0/decode-0": 10, "worker-1/decode-0": 0}, 30)
            before = [c.cluster()["counters"]["prompt_tokens"] for c in front.engines]
            for n in range(8):
                front.client.complete(prompt=[100 + n, 7, 9, 513], max_tokens=1)
            got = [c.cluster()["counters"]["prompt_tokens"] - b for c, b in zip(front.engines, before)]
            assert got == [0, 8 * 4], got
            assert not any(c.done() for c in crowd), "they were there all the time"
            for c in crowd:
                assert len(c.result()["choices"][0]["text"]) > 0
        wait_until("nobody else is there", lambda: others() == {"worker-0/decode-0": 0, "worker-1/decode-0": 0}, 30)


def test_an_engine_is_killed_and_comes_back():
    with Cluster() as cluster:
        front = Front(cluster, *modelled(cluster.folder.name))
        crowd = Crowd([front.http], 8)
        wait_until("the crowd runs", lambda: crowd.whole > 10)
        for _ in range(2):
            victim = cluster.processes["engine-0"]
            victim.kill9()
            wait_until("nothing is placed there", lambda: {i["node"] for i in front.instances("live")} == {"worker-1"}, 10)
            away = [i["away"] for i in front.instances("draining")]
            assert len(away) == 2 and all("refused" in a for a in away), away
            seen = crowd.whole
            wait_until("the crowd goes on", lambda: crowd.whole > seen + 20)
            victim.start()
            ready(victim)
            wait_until("it takes part again", lambda: len(front.instances("live")) == 4)
            wait_until("it gets requests", lambda: front.engines[0].cluster()["counters"]["finished"] > 0)
        crowd.over.set()
        for t in crowd.threads:
            t.join()
        assert not crowd.broken, crowd.broken[:5]
        front.cluster.wait_idle()


def test_a_worker_that_stops_drains_and_one_that_is_killed_is_replaced():
    with Cluster() as cluster:
        front = Front(cluster, *modelled(cluster.folder.name))
        crowd = Crowd([front.http], 6)
        wait_until("the crowd runs", lambda: crowd.whole > 10)
        worker = cluster.processes["worker-0"]
        worker.stop()
        worker.start()
        wait_until("it is back", lambda: len(front.instances("live")) == 4)
        worker.kill9()
        worker.start()
        wait_until("it is back again", lambda: len(front.instances("live")) == 4)
        seen = crowd.whole
        wait_until("the crowd goes on", lambda: crowd.whole > seen + 10)
        crowd.over.set()
        for t in crowd.threads:
            t.join()
        assert not crowd.broken, crowd.broken[:5]


def test_what_an_engine_asks_for_and_what_it_lacks_is_told():
    with Cluster() as cluster:
        folder = pathlib.Path(cluster.folder.name)
        (folder / "keys").write_text("sesame\n")
        (folder / "wrong").write_text("barley\n")
        for name in ("keys", "wrong"):
            (folder / name).chmod(0o600)
        device = modelled(cluster.folder.name)
        front = Front(cluster, *device, engines=1, engine=("--api-key-file", str(folder / "keys")),
                      worker=("--engine-key-file", str(folder / "keys")))
        assert len(answer_to(front.http, prompt_of(3, 9))) >= 9
        at = f"127.0.0.1:{front.engines[0].port}"

        def refused(*options, words):
            process = cluster.start("refused", "--role", "engine", *front.mode, "--join", f"127.0.0.1:{front.control}", *LOCAL, *options)
            wait_until("it ended", lambda: not process.alive())
            del cluster.processes["refused"]
            assert process.process.returncode not in (0, -11, -6) and words in process.output(), process.output()[-800:]
            process.log_path.unlink()

        refused("--engine-at", at, words="401")
        refused("--engine-at", at, "--engine-key-file", str(folder / "wrong"), words="401")
        refused("--engine-at", at, "--engine-key-file", str(folder / "keys"), "--engine-model", "another", words="serves no 'another'")
        refused("--engine-at", at, "--engine-key-file", str(folder / "none"), words="engine-key-file")
        refused(words="--engine-at HOST:PORT")


def test_one_command_starts_what_stands_before_the_engines():
    with Cluster() as cluster:
        engines = [one_server(cluster, name=f"engine-{n}") for n in range(2)]
        http, control = free_port(), free_port()
        env = {**os.environ, "MOONCAF_BINARY": os.path.abspath(BINARY), "MOONCAF_HTTP": f"127.0.0.1:{http}", "MOONCAF_CONTROL": f"127.0.0.1:{control}",
               "XDG_CONFIG_HOME": os.path.join(cluster.folder.name, "config")}
        script = str(pathlib.Path(__file__).resolve().parents[2] / "examples/engines.sh")
        with open(os.path.join(cluster.folder.name, "script.log"), "ab") as log:
            command = subprocess.Popen([script, os.path.abspath(MODEL), *(f"127.0.0.1:{e.port}" for e in engines)], env=env, stdout=log, stderr=log)
        try:
            client = Client("127.0.0.1", http)
            wait_until("it serves", lambda: client.healthy() and len(client.cluster()["instances"]) == 4, 60)
            name = served(client)
            said = [c.complete(model=name, prompt="Once upon a time", max_tokens=8, temperature=0)["choices"][0]["text"] for c in (client, engines[0])]
            assert said[0] == said[1], said
            assert {i["node"] for i in client.cluster()["instances"]} == {f"127.0.0.1:{e.port}" for e in engines}
        finally:
            command.terminate()
            assert command.wait(30) == 0
        wait_until("nothing of it is left", lambda: not client.healthy())


if __name__ == "__main__":
    main([f for name, f in list(globals().items()) if name.startswith("test_")])
