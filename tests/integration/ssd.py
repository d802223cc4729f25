#!/usr/bin/env python3
"""The SSD tier of a running server: who may read it, what a damaged, a shared and a full one cost."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, Cluster, Skipped, main, one_server, wait_until  # noqa: E402

TINY = "dummy:layers=1,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=600,type=q8_0,ctx=128"
# What is faster to compute than to read is computed: of this one a block takes some 10 ms.
SLOW = "dummy:layers=4,dim=512,heads=8,kv_heads=1,head_dim=64,ffn=2048,vocab=600,type=q8_0,ctx=128"
PROMPTS = [[5 + i, *range(6, 100)] for i in range(4)]  # a full block each


def health(client):
    """The metrics of the tier's health, by name."""
    text = client.request("GET", "/metrics")[2].decode()
    return {line.split('what="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if line.startswith("mooncaf_ssd{")}


def ask(client, prompt):
    return client.complete(prompt=prompt, max_tokens=4, ignore_eos=True, temperature=0)


def cached(client):
    return [ask(client, p)["usage"]["prompt_tokens_details"]["cached_tokens"] for p in PROMPTS]


def server(cluster, folder, *extra, name="all", model=TINY):
    return one_server(cluster, "--model", model, "--cache-dram", "2MiB", "--prefill-instances", "1", "--ssd-path",
                      str(folder), *extra, name=name)


def nobody_else_can_read_what_was_asked():
    with Cluster() as cluster:
        folder = pathlib.Path(cluster.folder.name, "ssd")
        client = server(cluster, folder)
        cached(client)
        cluster.processes["all"].stop()  # which writes the blocks
        modes = {p.name: oct(p.stat().st_mode & 0o777) for p in [folder, *folder.iterdir()]}
        assert modes.pop("ssd") == "0o700", modes
        assert len(modes) > 3 and set(modes.values()) == {"0o600"}, modes


def a_damaged_tier_costs_its_blocks_and_not_the_server():
    with Cluster() as cluster:
        folder = pathlib.Path(cluster.folder.name, "ssd")
        client = server(cluster, folder, "--prefetch-threshold", "0", "--prefetch", "wait_complete", model=SLOW)
        process = cluster.processes["all"]

        def restart():
            process.stop()
            yield
            process.start()
            wait_until("it serves again", client.healthy)

        reference = [ask(client, p)["choices"][0]["text"] for p in PROMPTS]
        with contextlib.contextmanager(restart)():
            pass
        assert cached(client) == [64] * 4 and health(client)["repaired"] == 0, health(client)
        with contextlib.contextmanager(restart)():
            for manifest in folder.glob("MANIFEST*"):
                manifest.write_bytes(b"rubbish")
        assert [ask(client, p)["choices"][0]["text"] for p in PROMPTS] == reference
        assert health(client)["repaired"] == 1, health(client)
        assert str(folder / "damaged") in process.output()
        assert any((folder / "damaged").iterdir())


def a_tier_in_use_is_named_with_its_process():
    with Cluster() as cluster:
        folder = pathlib.Path(cluster.folder.name, "ssd")
        client = server(cluster, folder)
        other = cluster.start("other", "--model", TINY, "--cache-dram", "2MiB", "--ssd-path", str(folder), "--http",
                              "127.0.0.1:0", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        assert other.process.wait(20 * PATIENCE) == 8, other.output()
        assert f"in use by process {cluster.processes['all'].process.pid}" in other.output(), other.output()
        assert ask(client, PROMPTS[0])


def cpu_seconds(process):
    fields = open(f"/proc/{process.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def small_disk(folder, mib):
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "mooncaf-test", str(folder)])
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            # A test that failed leaves processes with files open there; they end before its folder goes.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def a_nearly_full_disk_costs_no_processor_time_and_no_request():
    """Smaller than what the tier wants to keep free: it opens, and takes no block."""
    with Cluster() as cluster, small_disk(pathlib.Path(cluster.folder.name, "ssd"), 100) as mounted:
        if not mounted:
            raise Skipped("no small file system can be mounted here")
        client = server(cluster, pathlib.Path(cluster.folder.name, "ssd"), "--cache-dram", "1MiB")
        process = cluster.processes["all"]
        for i in range(300):  # several times what the memory holds
            ask(client, [5 + i % 500, 5 + i // 500, *range(6, 90)])
        assert health(client)["refuses_writes"] == 1, health(client)
        cluster.wait_idle()
        before, began = cpu_seconds(process), time.monotonic()
        wait_until("two seconds have passed", lambda: time.monotonic() - began > 2, every=0.2)
        idle = (cpu_seconds(process) - before) / (time.monotonic() - began)
        assert idle < 0.3, f"{idle:.2f} of a core while idle"
        said = process.output().count("writes are refused")
        assert said == 1, said
        assert client.integrity()["idle"]
        began = time.monotonic()
        process.stop()
        took = time.monotonic() - began
        assert took < 5 * PATIENCE, f"a planned stop took {took:.1f} s of the ten that a flush may take"


TESTS = [nobody_else_can_read_what_was_asked, a_damaged_tier_costs_its_blocks_and_not_the_server,
         a_tier_in_use_is_named_with_its_process, a_nearly_full_disk_costs_no_processor_time_and_no_request]

if __name__ == "__main__":
    main(TESTS)
