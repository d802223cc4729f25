#!/usr/bin/env python3
"""`--device cuda` in the product itself, without a GPU: the driver's library is one that runs the kernels on the
processor and checks every access (tests/support/simt/driver).

The tokens are the host's, alone and together, computed and out of the cache; KV travels between both kinds of device; and
what goes wrong with a driver or a GPU is said: before loading with status 2, in a first pass with 6, amid work by a worker
that ends alone, and with status 70 by a process that was nothing else.
"""
import concurrent.futures
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, PATIENCE, Client, Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402
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
    """From the host's copy, since there is no NIC, which is said; tests/rdma/guest.sh has the same with one."""
    for prefill, decode in ((GPU, ()), ((), GPU)):
        with Cluster() as cluster:
            control, port = free_port(), free_port()
            cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                          f"127.0.0.1:{control}", *SMALL, *OWN)
            for role, device in (("prefill", prefill), ("decode", decode)):
                cluster.start(role, "--role", role, *device, "--join", f"127.0.0.1:{control}", *SMALL, *OWN)
            client = cluster.wait_healthy("127.0.0.1", port)
            check_answers(client)
            cluster.wait_idle()
            wait_until("the GPU is seen", lambda: client.cluster()["devices"])
            device = client.cluster()["devices"][0]
            assert device["sent_bytes"] == 0, device
            if prefill:
                assert "no RDMA" in device["unreached"], device
                assert "KV leaves from the host's memory" in cluster.processes["prefill"].output()
            else:
                assert device["unreached"] == "", device


def what_stays_on_a_gpu_comes_to_memory_with_checksums_that_hold():
    """A planned stop brings it to memory and to the SSD, with checksums made on the GPU as it passes; who reads it checks them."""
    with Cluster() as cluster:
        ssd = ("--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--prefetch-threshold", "0", "--prefetch", "wait_complete")
        client = one_server(cluster, *SMALL, *GPU, *ssd, "--device-write-policy", "write_back")
        check_answers(client)
        cluster.wait_idle()
        wait_until("the node reported", lambda: client.cluster()["devices"][0]["unwritten_blocks"] >= len(PROMPTS))
        assert client.cluster()["shards"][0]["slots_committed"] == 0
        cluster.processes.pop("all").stop()
        again = one_server(cluster, *SMALL, *GPU, *ssd, name="again")
        wait_until("what lies on the SSD is announced", lambda: (now := again.cluster())["index"]["blocks"] >= now["shards"][0]["ssd_blocks"] > 0)
        assert check_answers(again) >= 16
        wait_until("what was read and found good is counted", lambda: again.cluster()["shards"][0]["hits_ssd"] > 0)


def groups_of_two_gpus_give_the_tokens_of_one():
    """Each has its layers' weights and KV, or its share of all, in memory of its own, and the driver lets neither reach the
    other's. A mixture's experts are divided by rows, and whole."""
    mixture = "dummy:gpt-oss-20b,layers=2,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,type=f32"
    for model, groups in ((SMALL[1].replace("layers=1", "layers=3"), (("--pipeline", "2"), ("--tensor", "2"))),
                          (mixture, (("--tensor", "2"), ("--tensor", "2", "--expert", "2")))):
        groups_give_the_tokens_of_one(("--model", model, *SMALL[2:], *GPU, "--prefill-instances", "1", "--chunk-tokens", "16"), groups)


def groups_give_the_tokens_of_one(model, groups):
    answers = []
    for size in ((), *groups):
        os.environ["MOONCAF_FAKE_CUDA"] = "two"
        with Cluster() as cluster:
            client = one_server(cluster, *model, *size)
            del os.environ["MOONCAF_FAKE_CUDA"]
            bodies = [client.complete(prompt=PROMPTS[i % 2], temperature=0, max_tokens=4, ignore_eos=True, logprobs=1) for i in range(4)]
            answers.append([(text_of(b), b["choices"][0]["logprobs"]["token_logprobs"]) for b in bodies])
            assert bodies[3]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16, bodies[3]
            cluster.wait_idle()
            assert cluster.processes["all"].output().count("device name=\"cuda fake") == (2 if size else 1)
    assert all(one == answers[0] for one in answers), answers
    for size in groups:
        refused([*model, "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", *OWN, *size], 2, "no GPU 1", "shows 1")


def what_is_wrong_with_a_driver_is_said_before_loading():
    usual = [*SMALL, *GPU, "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", *OWN]
    refused(usual, 2, "the CUDA driver does not start", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            env={"MOONCAF_FAKE_CUDA": "init"})
    refused(usual, 2, "the CUDA driver shows no GPU", env={"MOONCAF_FAKE_CUDA": "none"})
    refused([*usual, "--device", "cuda:3"], 2, "no GPU 3", "shows 1")
    with tempfile.NamedTemporaryFile("w", suffix=".fate") as fate:
        fate.write("ecc 1")
        fate.flush()
        refused(usual, 6, "uncorrectable ECC error encountered", env={"MOONCAF_FAKE_CUDA": "failing:" + fate.name})


def memory_that_cannot_be_pinned_is_said_and_done_without():
    os.environ["MOONCAF_FAKE_CUDA"] = "pageable"
    with Cluster() as cluster:
        check_answers(one_server(cluster, *SMALL, *GPU))
        del os.environ["MOONCAF_FAKE_CUDA"]
        assert "bytes of the host's memory cannot be pinned: CUDA_ERROR_NOT_PERMITTED" in cluster.processes["all"].output()
    with Cluster() as cluster:
        one_server(cluster, *SMALL, *GPU)
        assert "pinned" not in cluster.processes["all"].output()


def whether_a_nic_could_reach_a_gpu_is_said():
    for trouble, words in (("", "none of 1 GPUs exports dma-bufs (it takes the open kernel modules of the driver)"),
                           ("nic", "dma-buf of 1 of 1 GPUs, CUDA driver 13.0")):
        run = subprocess.run([BINARY, "topology"], capture_output=True, text=True, timeout=30 * PATIENCE,
                             env={**os.environ, "MOONCAF_FAKE_CUDA": trouble})
        assert words in run.stdout, (trouble, run.stdout, run.stderr)


def fail_with(file, how):
    """Written whole or not at all, for the driver reads it at any time."""
    with open(file + ".new", "w") as new:
        new.write(how)
    os.replace(file + ".new", file)


class Mixed:
    """A GPU in the process that is conductor, gateway and both kinds of worker, and a host that is both kinds of worker."""

    def __init__(self, cluster, *options):
        self.control, port, metrics = free_port(), free_port(), free_port()
        self.fate = os.path.join(cluster.folder.name, "fate")
        self.cluster = cluster
        self.front = cluster.start("front", "--role", "conductor,gateway,prefill,decode", "--prefill-instances", "1", *GPU,
                                   "--http", f"127.0.0.1:{port}",
                                   "--listen", f"127.0.0.1:{self.control}", "--policy", "random", *SMALL,
                                   "--metrics-listen", f"127.0.0.1:{metrics}", "--data-listen", "127.0.0.1:0", *options,
                                   env={"MOONCAF_FAKE_CUDA": "failing:" + self.fate})
        self.client = cluster.wait_healthy("127.0.0.1", port)
        self.metrics = Client("127.0.0.1", metrics)

    def others_come(self):
        self.cluster.start("host", "--role", "prefill,decode", "--join", f"127.0.0.1:{self.control}", *SMALL, *OWN)
        wait_until("both nodes' workers are there",
                   lambda: len({(i["node"], i["role"]) for i in self.client.cluster()["instances"]}) == 4)

    def failed(self):
        return {i["role"]: i["reason"] for i in self.client.cluster()["instances"] if i["state"] == "failed"}

    def failures(self, role):
        text = self.metrics.request("GET", "/metrics")[2].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("mooncaf_device_failures_total") and f'role="{role}"' in line)


def a_gpu_that_fails_in_a_prefill_ends_its_workers_alone():
    """In the midst of a pass; and since the card is gone, the decode worker ends, too. All else of the process goes on, and
    what only the card held is given up once."""
    with Cluster() as cluster:
        mixed = Mixed(cluster, "--device-write-policy", "write_through_selective")
        client = mixed.client
        check_answers(client)
        mixed.others_come()
        fail_with(mixed.fate, "gone 7")
        for round_ in range(100):
            check_answers(client)
            if set(mixed.failed()) == {"prefill", "decode"}:
                break
        failed = mixed.failed()
        assert set(failed) == {"prefill", "decode"}, client.cluster()["instances"]
        assert all("CUDA_ERROR_UNKNOWN" in why and "dmesg" in why for why in failed.values()), failed
        assert mixed.failures("prefill") == mixed.failures("decode") == 1
        log = mixed.front.output()
        assert "device failed; its worker computes nothing any more" in log and "start this process again" in log, log
        assert log.count("is lost with it") <= 1, log
        check_answers(client)
        assert client.healthy()
        cluster.wait_idle()


def a_gpu_that_fails_in_an_answer_does_not_show_in_it():
    """The tokens before and after it are one answer; prefill goes on there until its next pass."""
    asked = dict(prompt=PROMPTS[0], temperature=0, max_tokens=40, ignore_eos=True)
    with Cluster() as cluster:
        mixed = Mixed(cluster)
        expected = text_of(mixed.client.complete(**asked))
        mixed.others_come()
        for _ in range(100):
            got = ""
            for event in mixed.client.stream("/v1/completions", asked):
                if event is None:
                    continue
                got += event["choices"][0]["text"] if event["choices"] else ""
                if len(got) >= 4 and not os.path.exists(mixed.fate):
                    fail_with(mixed.fate, "timeout 9")
            assert got == expected, (got, expected)
            if "decode" in mixed.failed():
                break
        assert "CUDA_ERROR_LAUNCH_TIMEOUT" in mixed.failed()["decode"]
        assert mixed.failures("decode") == 1
        cluster.wait_idle()


def memory_that_runs_out_ends_the_worker_that_wanted_it():
    """A longer prompt takes more room on the device than there was: prefill ends, decode on the same GPU goes on."""
    with Cluster() as cluster:
        mixed = Mixed(cluster)
        client = mixed.client
        check_answer(client, PROMPTS[0])
        mixed.others_come()
        fail_with(mixed.fate, "memory 1")
        for round_ in range(100):
            client.complete(prompt=f"{round_}: " + "the moon pulls at the sea; " * 3, temperature=0, max_tokens=4, ignore_eos=True)
            if mixed.failed():
                break
        failed = mixed.failed()
        assert list(failed) == ["prefill"] and "--device-kv" in failed["prefill"], failed
        check_answers(client)
        assert list(mixed.failed()) == ["prefill"] and mixed.failures("decode") == 0
        cluster.wait_idle()


def a_gpu_that_fails_amid_work_ends_its_process_and_others_answer():
    with Cluster() as cluster:
        control, port = free_port(), free_port()
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", "--policy", "random", *SMALL, *OWN)
        join = ("--join", f"127.0.0.1:{control}", *SMALL, *OWN)
        cluster.start("decode", "--role", "decode", *join)
        file = os.path.join(cluster.folder.name, "fate")
        broken = cluster.start("gpu", "--role", "prefill", *GPU, *join, env={"MOONCAF_FAKE_CUDA": "failing:" + file})
        client = cluster.wait_healthy("127.0.0.1", port)
        cluster.start("host", "--role", "prefill", *join)
        wait_until("both prefill workers are there",
                   lambda: sum(w["role"] == "prefill" for w in client.cluster()["instances"]) == 2)
        check_answers(client)
        fail_with(file, "ecc 1")
        for round_ in range(400):
            if not broken.alive():
                break
            client.complete(prompt=f"{round_}: the moon pulls at the sea", temperature=0, max_tokens=1)
        assert broken.process.wait(10 * PATIENCE) == 70, broken.output()
        broken.process.returncode = -9  # as far as the cluster is concerned
        assert "uncorrectable ECC error encountered" in broken.output(), broken.output()
        check_answers(client)
        cluster.wait_idle()


TESTS = [the_tokens_are_the_hosts, chance_is_the_hosts, groups_of_two_gpus_give_the_tokens_of_one, memory_that_cannot_be_pinned_is_said_and_done_without,
         kv_travels_between_a_gpu_and_a_host, what_stays_on_a_gpu_comes_to_memory_with_checksums_that_hold, whether_a_nic_could_reach_a_gpu_is_said,
         what_is_wrong_with_a_driver_is_said_before_loading, a_gpu_that_fails_in_a_prefill_ends_its_workers_alone,
         a_gpu_that_fails_in_an_answer_does_not_show_in_it, memory_that_runs_out_ends_the_worker_that_wanted_it,
         a_gpu_that_fails_amid_work_ends_its_process_and_others_answer]

if __name__ == "__main__":
    main(TESTS)
