#!/usr/bin/env python3
"""`--device cuda` in the product itself, without a GPU: the driver's library is one that runs the kernels on the
processor and checks every access (tests/support/simt/driver).

The tokens are the host's, alone and together, computed and out of the cache; KV travels between both kinds of device; and
what goes wrong with a driver or a GPU is said, before loading with status 2, in a first pass with 6, amid work with 70.
"""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402
from startup import refused  # noqa: E402

os.environ["LD_LIBRARY_PATH"] = os.environ["MOONCAF_FAKE_CUDA_DIR"]  # of every process here
# F32 weights: where both devices round so little, both have the same best token.
SMALL = ("--model", "dummy:layers=1,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,type=f32,ctx=256",
         "--threads", "1", "--block-tokens", "16")
GPU = ("--device", "cuda", "--device-kv", "1MiB", "--context-length", "128")
OWN = ("--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0")
PROMPTS = [f"{i}: the tide comes in and goes out" for i in range(4)]
_expected = {}


def check_answer(client, prompt):
    body = client.complete(prompt=prompt, temperature=0, max_tokens=4, ignore_eos=True)
    assert text_of(body) == _expected.setdefault(prompt, text_of(body)), (prompt, body)
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_answers(client):
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return sum(pool.map(lambda prompt: check_answer(client, prompt), PROMPTS))


def the_tokens_are_the_hosts():
    with Cluster() as cluster:
        check_answers(one_server(cluster, *SMALL))
    with Cluster() as cluster:
        client = one_server(cluster, *SMALL, *GPU)
        assert check_answers(client) == 0
        assert check_answers(client) >= 16 * len(PROMPTS)
        cluster.wait_idle()
        assert "cuda fake, sm_90, 4 processors" in cluster.processes["all"].output()


def chance_is_the_hosts():
    """Penalties, limits and log-probabilities, computed where the logits are."""
    asked = dict(prompt="the tide comes in and goes out", max_tokens=6, ignore_eos=True, temperature=0.8, seed=11, top_p=0.9,
                 top_k=40, presence_penalty=0.5, repetition_penalty=1.2, logit_bias={"40": 3}, logprobs=3)
    answers = []
    for device in ((), GPU):
        with Cluster() as cluster:
            body = one_server(cluster, *SMALL, *device).complete(**asked)
            answers.append(body["choices"][0])
    host, gpu = answers
    assert gpu["text"] == host["text"], answers
    for key in ("token_logprobs", "top_logprobs"):
        for a, b in zip(gpu["logprobs"][key], host["logprobs"][key], strict=True):
            pairs = ((a, b),) if key == "token_logprobs" else zip(a.values(), b.values(), strict=True)
            assert all(abs(x - y) < 0.02 for x, y in pairs), answers


def kv_travels_between_a_gpu_and_a_host():
    for prefill, decode in ((GPU, ()), ((), GPU)):
        with Cluster() as cluster:
            control, port = free_port(), free_port()
            cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                          f"127.0.0.1:{control}", *SMALL, *OWN)
            for role, device in (("prefill", prefill), ("decode", decode)):
                cluster.start(role, "--role", role, *device, "--join", f"127.0.0.1:{control}", *SMALL, *OWN)
            check_answers(cluster.wait_healthy("127.0.0.1", port))
            cluster.wait_idle()


def what_is_wrong_with_a_driver_is_said_before_loading():
    usual = [*SMALL, *GPU, "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", *OWN]
    refused(usual, 2, "the CUDA driver does not start", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            env={"MOONCAF_FAKE_CUDA": "init"})
    refused(usual, 2, "the CUDA driver shows no GPU", env={"MOONCAF_FAKE_CUDA": "none"})
    refused([*usual, "--device", "cuda:3"], 2, "no GPU 3", "shows 1")
    refused(usual, 6, "uncorrectable ECC error encountered", env={"MOONCAF_FAKE_CUDA": "broken:" + __file__})


def memory_that_cannot_be_pinned_is_said_and_done_without():
    os.environ["MOONCAF_FAKE_CUDA"] = "pageable"
    with Cluster() as cluster:
        check_answers(one_server(cluster, *SMALL, *GPU))
        del os.environ["MOONCAF_FAKE_CUDA"]
        assert "bytes of the host's memory cannot be pinned: CUDA_ERROR_NOT_PERMITTED" in cluster.processes["all"].output()
    with Cluster() as cluster:
        one_server(cluster, *SMALL, *GPU)
        assert "pinned" not in cluster.processes["all"].output()


def a_gpu_that_fails_amid_work_ends_its_process_and_others_answer():
    with Cluster() as cluster:
        control, port = free_port(), free_port()
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", "--policy", "random", *SMALL, *OWN)
        join = ("--join", f"127.0.0.1:{control}", *SMALL, *OWN)
        cluster.start("decode", "--role", "decode", *join)
        file = os.path.join(cluster.folder.name, "broken")
        broken = cluster.start("gpu", "--role", "prefill", *GPU, *join, env={"MOONCAF_FAKE_CUDA": "broken:" + file})
        client = cluster.wait_healthy("127.0.0.1", port)
        cluster.start("host", "--role", "prefill", *join)
        wait_until("both prefill workers are there",
                   lambda: sum(w["role"] == "prefill" for w in client.cluster()["instances"]) == 2)
        check_answers(client)
        open(file, "w").close()
        for round_ in range(400):
            if not broken.alive():
                break
            client.complete(prompt=f"{round_}: the moon pulls at the sea", temperature=0, max_tokens=1)
        assert broken.process.wait(10) == 70, broken.output()
        broken.process.returncode = -9  # as far as the cluster is concerned
        assert "uncorrectable ECC error encountered" in broken.output(), broken.output()
        check_answers(client)
        cluster.wait_idle()


TESTS = [the_tokens_are_the_hosts, chance_is_the_hosts, memory_that_cannot_be_pinned_is_said_and_done_without,
         kv_travels_between_a_gpu_and_a_host,
         what_is_wrong_with_a_driver_is_said_before_loading, a_gpu_that_fails_amid_work_ends_its_process_and_others_answer]

if __name__ == "__main__":
    main(TESTS)
