#!/usr/bin/env python3
"""Servers of vLLM and SGLang share KV through the store, or stand behind a conductor, each in processes of its own, with a real model on the processor.

MOONCAF_ENGINES names the interpreter that has them (engines/install.sh makes it). Answers are greedy, and held to those of a server of the same engine
without a connector. PROMPTS=6 TOKENS=24 say how many.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "engines"))
import servers  # noqa: E402
from cluster import Client, Cluster, Skipped, free_port, main, wait_until  # noqa: E402
from servers import BLOCK, Sglang, Vllm  # noqa: E402
from store_world import ROOT, Store, package, ready  # noqa: E402

TOKENS = int(os.environ.get("TOKENS", "24"))
COUNT = int(os.environ.get("PROMPTS", "6"))
# In BF16 a server alone answers otherwise where it has a part of the prompt in its own prefix cache.
HOW = {"args": ["--enforce-eager"], "dtype": "float32"}


def prompts():
    """Of a page of ours, each from another place on; every second one begins with the same 3,000 characters."""
    page = (ROOT / "README.md").read_text()
    return [(page[:3000] if i % 2 else "") + page[3000 + 211 * i:][:300 + 97 * i] for i in range(COUNT)]


def needs_vllm():
    if not servers.has("vllm"):
        raise Skipped("vLLM is not installed")


@functools.cache
def alone():
    """What a server without a connector answers, the first and the second time."""
    with Cluster() as cluster:
        server = cluster.processes["alone"] = Vllm("alone", model(), cluster.folder.name, **HOW).ready()
        answers = [(server.answer(p, TOKENS), server.answer(p, TOKENS)) for p in prompts()]
    assert all(first[0] == second[0] for first, second in answers), "one may be held to it"
    return answers


@functools.cache
def model():
    return servers.model_folder(os.environ.get("MOONCAF_ENGINES_MODEL") or os.environ["TMPDIR"])


class Live(Cluster):
    """A store and servers on it."""

    def __enter__(self):
        self.world = Store(self, segments=1, size="1GiB")
        return self

    def vllm(self, **given):
        """Servers by these names, each with its --kv-transfer-config and environment, that start at once."""
        for name, (transfer, env) in given.items():
            env = {"MOONCAF_CLUSTER_SECRET_FILE": self.world.secret, **env}
            self.processes[name] = Vllm(name, model(), self.world.folder, transfer, env, **HOW)
        return [self.processes[name].ready() for name in given]

    def settled(self):
        """Waits until nothing more comes into the store."""
        seen = []

        def still():
            stat = self.world.json("stat")
            seen.append((stat["objects"], stat["reserved"]))
            return stat["reserved"] == 0 and len(seen) > 4 and len(set(seen[-4:])) == 1

        wait_until("nothing is being saved", still, 60, 0.2)
        return self.world.json("stat")["objects"]


def ours(world, role="kv_both"):
    return {"kv_connector": "MooncafConnector", "kv_connector_module_path": "mooncaf.vllm", "kv_role": role,
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"directory": world.at}}


def asked(server, what=None):
    return [server.answer(p, TOKENS) for p in (what or prompts())]


def equal(answers, name):
    differ = [(i, given, wanted) for i, ((given, _), ((wanted, _), _)) in enumerate(zip(answers, alone())) if given != wanted]
    print(f"     {name}: {len(answers) - len(differ)} of {len(answers)} answers are those of a server alone", flush=True)
    assert not differ, differ


def test_two_servers_share_a_pool():
    needs_vllm()
    alone()
    with Live() as live:
        one, two = live.vllm(one=(ours(live.world), {}), two=(ours(live.world), {}))
        equal(asked(one), "the one that computed")
        assert one.external_hits() == 0
        live.settled()
        found = asked(two)
        equal(found, "the one that loaded")
        hits = two.external_hits()
        print(f"     of {[cached for _, cached in found]} cached tokens {hits} came out of the store", flush=True)
        assert hits >= sum(cached for _, cached in found) - two.own_hits() > 0
        # One dies while it computes; the memory dies while it is loaded from; then the directory.
        doomed = one.client.stream("/v1/completions", {"model": "small", "prompt": "x " * 2000, "max_tokens": 200, "ignore_eos": True})
        next(doomed)
        one.kill9()
        two.forget()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            loading, before = pool.submit(asked, two), two.external_hits()
            wait_until("it loads", lambda: two.external_hits() > before, 60)
            live.processes["s0"].kill9()
            equal(loading.result(), "after the death of the memory")
        live.world.directory.kill9()
        two.forget()
        equal(asked(two), "after the death of the directory")
        live.world.directory.start()
        live.processes["s0"].start()
        for process in (live.world.directory, live.processes["s0"]):
            ready(process)
        wait_until("it saves again", lambda: two.answer(os.urandom(8).hex() + prompts()[0], 1) and live.world.json("stat")["objects"] > 0, 60)


def test_prefill_and_decode_apart():
    needs_vllm()
    alone()
    with Live() as live:
        prefill, decode = live.vllm(prefill=(ours(live.world, "kv_producer"), {}), decode=(ours(live.world, "kv_consumer"), {}))
        found = []
        for prompt in prompts():  # with its first token prefill has handed over
            prefill.answer(prompt, 1)
            found.append(decode.answer(prompt, TOKENS))
        kept = live.settled()
        equal(found, "decode after prefill elsewhere")
        print(f"     {decode.external_hits()} tokens came from prefill, {[cached for _, cached in found]}", flush=True)
        assert [cached for _, cached in found] == [second for _, (_, second) in alone()], "all but what any server computes again"
        assert decode.external_hits() > 0 == prefill.external_hits()
        decode.answer("What decode computes stays with it. " + prompts()[0], 4)
        assert live.settled() == kept


def their_own(name, role="kv_both", **extra):
    """vLLM's connector of that name, over our package's `mooncake`."""
    return {"kv_connector": name, "kv_connector_module_path": "on_processor", "kv_role": role, "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": extra}


def test_their_store_connector():
    needs_vllm()
    alone()
    with Live() as live:
        settings = pathlib.Path(live.world.folder, "mooncake.json")
        settings.write_text(json.dumps({"metadata_server": "P2PHANDSHAKE", "master_server_address": live.world.at, "protocol": "tcp",
                                        "mode": "standalone-store", "global_segment_size": 0, "local_buffer_size": 64 << 20}))
        with_it = lambda: (their_own("MooncakeStoreConnector", lookup_rpc_port=free_port()), {"MOONCAKE_CONFIG_PATH": str(settings)})  # noqa: E731
        one, two = live.vllm(one=with_it(), two=with_it())  # with one number the one would ask the other's worker
        equal(asked(one), "MooncakeStoreConnector, the one that computed")
        live.settled()
        found = asked(two)
        equal(found, "MooncakeStoreConnector, the one that loaded")
        print(f"     of {[cached for _, cached in found]} cached tokens {two.external_hits()} came out of the store", flush=True)
        assert two.external_hits() > 0 and live.world.json("stat")["objects"] > 0


def test_their_transfer_connector():
    needs_vllm()
    alone()
    with Live() as live:
        port = free_port()
        role = lambda name: their_own("MooncakeConnector", name, mooncake_protocol="tcp")  # noqa: E731
        prefill, decode = live.vllm(prefill=(role("kv_producer"), {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port)}),
                                    decode=(role("kv_consumer"), {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(free_port())}))
        engine = Client("127.0.0.1", port).json("GET", "/query")[1]["0"]["engine_id"]
        found = []
        for i, prompt in enumerate(prompts()):
            prefill.answer(prompt, 1, kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": f"x{i}"})
            found.append(decode.answer(prompt, TOKENS, kv_transfer_params={
                "do_remote_decode": False, "do_remote_prefill": True, "transfer_id": f"x{i}", "remote_engine_id": engine,
                "remote_bootstrap_addr": f"http://127.0.0.1:{port}"}))
        equal(found, "MooncakeConnector, decode after prefill elsewhere")
        print(f"     {decode.external_hits()} tokens came from prefill, {[cached for _, cached in found]}", flush=True)
        assert decode.external_hits() > 0


def through_lmcache(world, name, remote):
    """What vLLM is given for LMCache, whose chunks of 64 tokens go on to a remote store: through LMCache's memory of 0.1 GB."""
    settings = pathlib.Path(world.folder, f"{name}.yaml")
    settings.write_text(json.dumps({"chunk_size": 64, "local_cpu": False, "max_local_cpu_size": 0.1, "remote_serde": "naive", **remote}))
    # Its Mooncake backend takes every code but 0 of a look-up for a hit, so one that found nobody as well: such a load has to be computed.
    connector = {"kv_connector": "LMCacheConnectorV1", "kv_connector_module_path": "lmcache_on_processor", "kv_role": "kv_both",
                 "kv_load_failure_policy": "recompute"}
    return connector, {"LMCACHE_CONFIG_FILE": str(settings), "PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false"}


def shared_through_lmcache(kind, remote):
    needs_vllm()
    if not servers.has("lmcache"):
        raise Skipped("LMCache is not installed")
    alone()
    with Live() as live:
        one, two = live.vllm(one=through_lmcache(live.world, "one", remote(live.world)), two=through_lmcache(live.world, "two", remote(live.world)))
        equal(asked(one), f"{kind}, the one that computed")
        live.settled()
        found = asked(two)
        equal(found, f"{kind}, the one that loaded")
        hits = two.external_hits()
        print(f"     of {[cached for _, cached in found]} cached tokens {hits} came out of the store", flush=True)
        assert hits >= sum(cached for _, cached in found) - two.own_hits() > 0
        # The memory dies while it is loaded from, then the directory.
        two.forget()
        live.processes["s0"].kill9()
        equal(asked(two), f"{kind}, after the death of the memory")
        live.world.directory.kill9()
        two.forget()
        equal(asked(two), f"{kind}, after the death of the directory")


def test_lmcache_over_our_backend():
    plugin = "remote_storage_plugin.mooncaf."
    shared_through_lmcache("LMCache, mooncaf.lmcache", lambda world: {"remote_storage_plugins": ["mooncaf"], "extra_config": {
        plugin + "module_path": "mooncaf.lmcache", plugin + "class_name": "MooncafAdapter", plugin + "directory": world.at}})


def test_lmcache_over_its_mooncake_backend():
    shared_through_lmcache("LMCache, mooncakestore", lambda world: {"remote_url": f"mooncakestore://{world.at}/", "extra_config": {
        "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "master_server_address": world.at,
        "global_segment_size": 0, "local_buffer_size": 16 << 20}})


@functools.cache
def sglang_alone():
    """What a server of SGLang without HiCache answers, each prompt with empty caches."""
    with Cluster() as cluster:
        server = cluster.processes["alone"] = Sglang("alone", model(), cluster.folder.name).ready()
        answers = []
        for p in prompts():
            answers.append(server.answer(p, TOKENS)[0])
            server.forget()
        return answers


def shared_by_hicache(kind, storage):
    if not servers.has("sglang"):
        raise Skipped("SGLang is not installed")
    wanted = sglang_alone()

    def same(server, name):
        found = [(*server.answer(p, TOKENS), server.stored) for p in prompts()]
        differ = [(i, given, right) for i, ((given, _, _), right) in enumerate(zip(found, wanted)) if given != right]
        print(f"     {kind}, {name}: {len(wanted) - len(differ)} of {len(wanted)} answers are those of a server alone", flush=True)
        assert not differ, differ
        print(f"     of {[cached for _, cached, _ in found]} cached tokens {[stored for _, _, stored in found]} came out of the store", flush=True)
        return sum(stored for _, _, stored in found)

    with Live() as live:
        for name in ("one", "two"):
            live.processes[name] = Sglang(name, model(), live.world.folder, storage(live.world), {"MOONCAF_CLUSTER_SECRET_FILE": live.world.secret})
        one, two = (live.processes[name].ready() for name in ("one", "two"))
        assert same(one, "the one that computed") == 0
        live.settled()
        assert same(two, "the one that loaded") > 0
        # The other server dies, then the memory, then the directory.
        one.kill9()
        two.forget()
        assert same(two, "after the death of the other") > 0
        two.forget()
        live.processes["s0"].kill9()
        same(two, "after the death of the memory")
        two.forget()
        live.world.directory.kill9()
        same(two, "after the death of the directory")


def test_sglang_over_our_backend():
    shared_by_hicache("SGLang, mooncaf.sglang", lambda world: ("dynamic", {
        "backend_name": "mooncaf", "module_path": "mooncaf.sglang", "class_name": "MooncafStorage", "interface_v1": 1, "directory": world.at}))


def test_sglang_over_its_mooncake_backend():
    shared_by_hicache("SGLang, mooncake", lambda world: ("mooncake", {
        "master_server_address": world.at, "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "global_segment_size": 0}))


def test_vllm_behind_the_conductor():
    needs_vllm()
    behind_the_conductor([first for (first, _), _ in alone()], lambda n, folder, events: Vllm(
        f"vllm-{n}", model(), folder, **{**HOW, "args": [*HOW["args"], "--kv-events-config", json.dumps({"enable_kv_cache_events": True, **events})]}))


def test_sglang_behind_the_conductor():
    if not servers.has("sglang"):
        raise Skipped("SGLang is not installed")
    behind_the_conductor(sglang_alone(), lambda n, folder, events: Sglang(
        f"sglang-{n}", model(), folder, args=[
            "--kv-events-config", json.dumps(events), "--grammar-backend", "xgrammar", *(["--incremental-streaming-output"] if n else [])]))


def behind_the_conductor(wanted, server_of):
    with Cluster() as cluster:
        folder, http, control = cluster.folder.name, free_port(), free_port()
        servers_there = []
        for n in range(2):
            events = {"publisher": "zmq", "endpoint": f"ipc://{folder}/news-{n}", "replay_endpoint": f"ipc://{folder}/replay-{n}"}
            cluster.processes[f"engine-{n}"] = server_of(n, folder, events)
            servers_there.append(cluster.processes[f"engine-{n}"])
        for server in servers_there:
            server.ready()
        one, two = servers_there
        # It computes before anybody listens: what it holds then is told by its replays.
        early = prompts()[0]
        one.answer(early, 1)
        mode = ("--mode", "engines", "--model", str(model()), "--context-length", "8192")
        cluster.start("front", "--role", "conductor,gateway", *mode, "--served-model-name", "small", "--listen", f"127.0.0.1:{control}",
                      "--http", f"127.0.0.1:{http}", "--metrics-listen", "127.0.0.1:0")
        for n, server in enumerate(servers_there):
            cluster.start(f"worker-{n}", "--role", "engine", *mode, "--engine-at", f"127.0.0.1:{server.port}", "--name", f"worker-{n}",
                          "--engine-events", f"ipc://{folder}/news-{n}", "--engine-replay", f"ipc://{folder}/replay-{n}",
                          "--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        client = cluster.wait_healthy("127.0.0.1", http, 300)
        live = lambda: [i["node"] for i in client.cluster()["instances"] if i["state"] == "live"]  # noqa: E731
        wait_until("both take part", lambda: len(live()) == 4, 300)

        def answer(prompt, **more):
            body = client.complete(model="small", prompt=prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True, return_token_ids=True, **more)
            return body["choices"][0]["token_ids"], body["usage"]["prompt_tokens_details"]["cached_tokens"]

        told = [answer(p) for p in prompts()]
        assert told[0][1] > 0, "the prompt from before the start is known"
        assert [tokens for tokens, _ in told] == wanted, [(t, w) for (t, _), w in zip(told, wanted)]
        again = [answer(p) for p in prompts()]
        assert [tokens for tokens, _ in again] == wanted
        hits = one.own_hits() + two.own_hits()
        for (_, cached), prompt in zip([answer(p) for p in prompts()], prompts()):
            assert cached > 0, prompt[:40]
        found = one.own_hits() + two.own_hits() - hits
        expected = sum(cached for _, cached in again)
        print(f"     {len(wanted)} of {len(wanted)} answers are those of a server alone; {expected} tokens were told as cached, {found:.0f} were", flush=True)
        # In blocks of 64 tokens, where the servers' have 32.
        assert 0 <= found - expected <= 32 * len(wanted), (found, expected)
        # What a server forgets is known at its next step.
        for server in servers_there:
            server.forget()
            server.answer("x", 1)
        wait_until("nothing is counted on", lambda: client.cluster()["index"]["blocks"] == 0)
        # A form that a grammar holds: ours, in the words of theirs.
        schema = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 12}, "people": {"type": "integer"}}, "required": ["town", "people"]}
        for _ in range(3):
            formed = client.chat([{"role": "user", "content": "A town, as JSON."}], model="small", max_tokens=60, temperature=1,
                                 response_format={"type": "json_schema", "json_schema": {"name": "t", "schema": schema}})
            parsed = json.loads(formed["choices"][0]["message"]["content"])
            assert set(parsed) == {"town", "people"} and isinstance(parsed["people"], int) and len(parsed["town"]) <= 12, parsed
        described = client.complete(model="small", prompt=prompts()[0], max_tokens=3, temperature=0, logprobs=2)["choices"][0]["logprobs"]
        assert len(described["top_logprobs"]) == 3 and all(v <= 0 for v in described["token_logprobs"]), described
        # One dies with an answer half told.
        long = [first for first, _ in [one.answer(prompts()[1], 150)]][0]
        two.answer(prompts()[1], 1)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(client.complete, model="small", prompt=prompts()[1], max_tokens=150, temperature=0, ignore_eos=True, return_token_ids=True)
                       for _ in range(4)]
            decodes = lambda: [i for i in client.cluster()["instances"] if i["role"] == "decode" and i["running"]]  # noqa: E731
            wait_until("both decode", lambda: len(decodes()) == 2)
            one.kill9()
            for r in running:
                assert r.result()["choices"][0]["token_ids"] == long
        wait_until("it is away", lambda: set(live()) == {"worker-1"})
        one.start()
        one.ready()
        wait_until("it takes part again", lambda: len(live()) == 4)


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
