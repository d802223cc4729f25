#!/usr/bin/env python3
"""The HTTP front at its limits: queues that are full, SLOs, keys, stops and workers that are not there. Each test has
a server of its own.
"""
import concurrent.futures
import http.client
import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, Cluster, free_port, main, one_server, wait_until  # noqa: E402
from front_client import LONG, NAME, PROMPT, client_of, openai, refused  # noqa: E402
import httpx2  # noqa: E402  # openai's own


def as_many_as_come_are_queued_and_all_are_answered():
    with Cluster() as cluster:
        server = one_server(cluster)
        create = lambda **fields: client_of(server).completions.create(
            **{"model": NAME, "temperature": 0, "max_tokens": 4, "extra_body": {"ignore_eos": True}, **fields})
        with concurrent.futures.ThreadPoolExecutor(150) as pool:
            answers = list(pool.map(lambda i: create(prompt=f"Request {i}:"), range(150)))
        assert all(a.usage.completion_tokens == 4 for a in answers)
        many = create(prompt="One prompt,", n=128)
        assert sorted(c.index for c in many.choices) == list(range(128)), len(many.choices)
        prompts = create(prompt=[f"Number {i}" for i in range(200)], max_tokens=2)
        assert prompts.usage.completion_tokens == 400, prompts.usage
        counters = server.cluster()["counters"]
        assert counters["rejected_queue_full"] == counters["rejected_ttft"] == counters["rejected_tbt"] == 0, counters
        cluster.wait_idle()


def a_server_out_of_descriptors_says_so_and_recovers():
    with Cluster() as cluster:
        server = one_server(cluster)
        process = cluster.processes["all"]
        folder = f"/proc/{process.process.pid}/fd"
        limits = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (len(os.listdir(folder)) + 4, limits[1]))
        clients = [socket.create_connection((server.host, server.port)) for _ in range(40)]
        said = "no connection could be taken: Too many open files"
        wait_until("it says that it has no descriptors left", lambda: said in process.output())
        assert process.output().count(said) == 1, "once, however often it tried"
        for client in clients:
            client.close()
        wait_until("it takes connections again", server.healthy)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, limits)


def a_full_queue_is_told_with_a_time_to_come_back():
    with Cluster() as cluster:
        server = one_server(cluster, "--max-queued", "3", "--max-batch", "1")

        def one(i):
            try:
                client_of(server).completions.create(model=NAME, prompt=f"{i} {LONG}", max_tokens=60,
                                                     extra_body={"ignore_eos": True})
                return "served"
            except openai.RateLimitError as e:
                assert "the queue is full" in str(e) and e.type == "rate_limit_error", e
                assert int(e.response.headers["retry-after"]) >= 1, e.response.headers
                return "refused"

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(one, range(16)))
        assert outcomes.count("served") >= 4 and "refused" in outcomes, outcomes
        assert server.cluster()["counters"]["rejected_queue_full"] == outcomes.count("refused")
        cluster.wait_idle()


def an_slo_that_cannot_be_met_is_refused_with_the_reason_but_not_on_an_idle_server():
    with Cluster() as cluster:
        server = one_server(cluster, "--admission", "early", "--prefill-instances", "1")

        def call(prompt, **slo):
            return client_of(server).completions.create(model=NAME, prompt=prompt, max_tokens=1, temperature=0,
                                                        extra_body=slo)

        assert call("Alone. " + LONG * 2, ttft_slo_ms=1, tbt_slo_ms=1).choices
        patient = {"ttft_slo_ms": 600000, "tbt_slo_ms": 60000}
        placed = lambda: server.cluster()["counters"]["placed"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            before = placed()
            jobs = [pool.submit(call, f"Book {i}. " + LONG * 4, **patient) for i in range(4)]
            wait_until("the others are placed", lambda: placed() >= before + 4)
            e = refused(openai.RateLimitError, lambda: call("Urgent. " + LONG, ttft_slo_ms=1), "predicted TTFT")
            assert int(e.response.headers["retry-after"]) >= 1 and e.type == "rate_limit_error", e.response.headers
            for job in jobs:
                assert job.result().choices
        cluster.wait_idle()


def a_context_that_cannot_be_had_is_said_at_start():
    with Cluster() as cluster:
        greedy = cluster.start("greedy", "--role", "all", "--context-length", "1000000", "--http",
                               f"127.0.0.1:{free_port()}", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        wait_until("it gives up", lambda: not greedy.alive(), 30)
        assert "context-length: 1000000 tokens are more than the 8192" in greedy.output(), greedy.output()
        assert greedy.process.returncode not in (0, None), greedy.process.returncode
    with Cluster() as cluster:
        one_server(cluster, "--cache-dram", "64MiB", name="small")
        assert "less than one context" in cluster.processes["small"].output()


def overload_is_told_with_a_time_to_come_back():
    with Cluster() as cluster:
        server = one_server(cluster, "--max-requests", "4")

        def one(i):
            try:
                client_of(server).completions.create(model=NAME, prompt=f"{i} {LONG}", max_tokens=60,
                                                     extra_body={"ignore_eos": True})
                return "served"
            except openai.RateLimitError as e:
                assert "limit of 4 requests" in str(e), e
                assert int(e.response.headers["retry-after"]) >= 1, e.response.headers
                return "refused"

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(one, range(16)))
        assert outcomes.count("served") >= 4 and "refused" in outcomes, outcomes
        text = server.request("GET", "/metrics")[2].decode()
        rejected = [l for l in text.splitlines() if l.startswith("mooncaf_requests_total") and 'outcome="rejected"' in l]
        assert float(rejected[0].split()[-1]) == outcomes.count("refused"), rejected
        cluster.wait_idle()


def a_key_is_asked_for_where_one_is_set():
    with Cluster() as cluster, tempfile.NamedTemporaryFile("w") as file:
        file.write("s3cret\n")
        file.flush()
        server = one_server(cluster, "--api-key-file", file.name)
        create = lambda key: client_of(server, key).completions.create(model=NAME, prompt="a", max_tokens=1)
        assert create("s3cret").choices
        for key in ("wrong", "s3cre", "s3crett"):
            refused(openai.AuthenticationError, lambda: create(key), "API key")
        for path in ("/v1/models", "/metrics", "/cluster", "/tokenize", "/version", "/integrity"):
            assert server.request("GET", path)[0] == 401, path
        assert server.request("GET", "/health")[0] == 200, "load balancers have no key"
        assert server.request("GET", "/")[0] == 200, "the page asks for the key itself"
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer s3cret"})[0] == 200


def keys_of_tenants_have_limits_and_caches_of_their_own():
    keys = """
[plain]
key = "k-plain"
[other]
key = "k-other"
[alone]
key = "k-alone"
own_cache = true
[small]
key = "k-small"
max_concurrent = 2
requests_per_minute = 4
[boss]
key = "k-boss"
operates = true
"""
    with Cluster() as cluster, tempfile.NamedTemporaryFile("w") as file:
        file.write(keys)
        file.flush()
        server = one_server(cluster, "--api-keys-file", file.name, "--model-alias", "nick, *")
        create = lambda key, prompt="a", model="nick", **more: client_of(server, key).completions.create(
            model=model, prompt=prompt, **{"max_tokens": 1, **more})
        refused(openai.AuthenticationError, lambda: create("k-nobody"), "API key")
        cached = lambda key: create(key, LONG, "whatever").usage.prompt_tokens_details.cached_tokens
        assert cached("k-plain") == 0 and cached("k-other") > 300, "shared, as the page says"
        assert cached("k-alone") == 0 and cached("k-alone") > 300, "an own cache is shared with nobody"
        refused(openai.BadRequestError, lambda: create("k-small", n=3), "limit of this key")
        assert len(create("k-small", n=2).choices) == 2
        assert len(create("k-small", n=2).choices) == 2
        e = refused(openai.RateLimitError, lambda: create("k-small", n=2), "4 answers a minute")
        assert 1 <= int(e.response.headers["retry-after"]) <= 31, e.response.headers
        for path in ("/cluster", "/metrics", "/integrity"):
            of = lambda key: server.request("GET", path, headers={"Authorization": "Bearer " + key})[0]
            assert (of("k-plain"), of("k-boss")) == (403, 200), path
        told = server.request("GET", "/metrics", headers={"Authorization": "Bearer k-boss"})[2].decode()
        counted = {(m[1] or m[2], m[3]): float(m[4]) for m in re.finditer(
            r'^mooncaf_tenant_\w+_total{(?:kind="(\w+)",)?model_name="[^"]*",(?:outcome="(\w+)",)?tenant="(\w+)"} (\S+)$', told, re.M)}
        assert counted["finished", "alone"] == 2 and counted["finished", "small"] == 4, counted
        assert counted["prompt", "alone"] > 2 * counted["cached", "alone"] - 1 > 600 and counted["output", "alone"] == 2, counted


def a_key_may_come_from_the_environment():
    with Cluster() as cluster:
        port = free_port()
        process = cluster.start("all", "--role", "all", "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0",
                                "--metrics-listen", "127.0.0.1:0", env={"MOONCAF_API_KEY": "from-env"})
        server = cluster.wait_healthy("127.0.0.1", port)
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer from-env"})[0] == 200
        assert b"from-env" not in open(f"/proc/{process.process.pid}/cmdline", "rb").read()
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer from-env",
                                                            "Host": "any.name"})[0] == 200, "with a key any name will do"


def a_certificate_makes_the_api_https():
    with Cluster() as cluster:
        own = lambda name: os.path.join(cluster.folder.name, name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", own("key"), "-out", own("cert")],
                       check=True, capture_output=True)
        port = free_port()
        process = cluster.start("all", "--role", "all", "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--metrics-listen",
                                "127.0.0.1:0", "--tls-certificate-file", own("cert"), "--tls-key-file", own("key"))
        trusting = httpx2.Client(verify=ssl.create_default_context(cafile=own("cert")))
        api = openai.OpenAI(base_url=f"https://localhost:{port}/v1", api_key="none", max_retries=0, timeout=60 * PATIENCE, http_client=trusting)

        def served():
            assert process.alive()
            try:
                return trusting.get(f"https://localhost:{port}/health").status_code == 200
            except httpx2.TransportError:
                return False
        wait_until("the gateway serves", served, 60)
        ask = {"model": "", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        whole = api.completions.create(**ask).choices[0].text
        assert "".join(e.choices[0].text for e in api.completions.create(stream=True, **ask)) == whole
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # each with a connection of its own, and two requests on it
            texts = list(pool.map(lambda _: [api.completions.create(**ask).choices[0].text for _ in range(2)], range(8)))
        assert all(t == [whole, whole] for t in texts), texts
        assert trusting.post(f"https://localhost:{port}/tokenize", json={"prompt": "sea " * 70_000}).json()["count"] >= 70_000  # many records
        refused(openai.APIConnectionError, lambda: openai.OpenAI(base_url=f"https://localhost:{port}/v1", api_key="x", max_retries=0).models.list())
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
            raise AssertionError("plain HTTP is not served")
        except (OSError, http.client.HTTPException):
            pass
        events = api.completions.create(**{**ask, "max_tokens": 2000}, stream=True, extra_body={"ignore_eos": True})
        next(events)
        events.close()  # a client that leaves is noticed
        idle = lambda: trusting.get(f"https://localhost:{port}/integrity").json()["idle"]
        wait_until("nothing is held for who left", idle)


def an_open_server_warns():
    with Cluster() as cluster:
        port = free_port()
        process = cluster.start("all", "--role", "all", "--http", f"0.0.0.0:{port}", "--listen", "127.0.0.1:0",
                                "--metrics-listen", "127.0.0.1:0")
        cluster.wait_healthy("127.0.0.1", port)
        assert "open to everybody" in process.output(), process.output()


def a_stop_without_time_to_drain_ends_streams_with_an_error_event():
    with Cluster() as cluster:
        server = one_server(cluster, "--drain-timeout", "0s")
        stream = server.stream("/v1/completions", {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True})
        assert next(stream)["choices"]
        cluster.processes["all"].process.terminate()
        last = None
        for last in stream:
            pass
        assert last and last["error"]["message"] == "the server is stopping", last
        assert cluster.processes["all"].process.wait(15) == 0


def health_is_200_only_when_a_request_could_be_served():
    with Cluster() as cluster:
        control, port = free_port(), free_port()
        quiet = ("--metrics-listen", "127.0.0.1:0")
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", *quiet)
        from cluster import Client
        client = Client("127.0.0.1", port)
        answers = lambda: client.request("GET", "/health")[0]

        def listens():
            try:
                return answers()
            except OSError:
                return None

        assert wait_until("the front listens", listens, 30) == 503
        _, headers, body = client.request("GET", "/health")
        assert headers["Retry-After"] == "1" and "no live prefill instance" in json.loads(body)["error"]["message"], body
        worker = cluster.start("worker", "--role", "prefill,decode", "--join", f"127.0.0.1:{control}", "--listen",
                               "127.0.0.1:0", *quiet)
        wait_until("health turns good", lambda: answers() == 200, 60)
        assert client.complete(prompt="a", max_tokens=1)
        worker.kill9()
        wait_until("health turns bad", lambda: answers() == 503, 30)


TESTS = [
    as_many_as_come_are_queued_and_all_are_answered, a_server_out_of_descriptors_says_so_and_recovers,
    a_full_queue_is_told_with_a_time_to_come_back,
    an_slo_that_cannot_be_met_is_refused_with_the_reason_but_not_on_an_idle_server,
    a_context_that_cannot_be_had_is_said_at_start, overload_is_told_with_a_time_to_come_back,
    a_key_is_asked_for_where_one_is_set, keys_of_tenants_have_limits_and_caches_of_their_own,
    a_key_may_come_from_the_environment, a_certificate_makes_the_api_https, an_open_server_warns,
    a_stop_without_time_to_drain_ends_streams_with_an_error_event, health_is_200_only_when_a_request_could_be_served,
]

if __name__ == "__main__":
    main(TESTS)
