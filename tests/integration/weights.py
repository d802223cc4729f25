#!/usr/bin/env python3
"""A model's way to hosts that have none: by `mooncaf up`, and by hand."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, main, wait_until  # noqa: E402
from hosts import network  # noqa: E402
from launched import TINY, Launched, needs_sshd, front_and_far, private_sshd  # noqa: E402


def a_host_without_the_model_gets_it_from_others():
    model = os.environ["MOONCAF_MODEL"]
    hosts = """[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1
[west]
address = "127.0.0.1"
model = "WEST/model.gguf"
decode = 1
[east]
address = "127.0.0.1"
model = "EAST/deep/model.gguf"
decode = 1
"""
    with Launched(hosts) as cluster:
        for name in ("front", "west"):
            (cluster.home / name).mkdir()
        os.symlink(model, cluster.home / "front/model.gguf")
        text = cluster.file.read_text().replace(f'path = "{TINY}"', f'path = "{cluster.home}/front/model.gguf"\ncontext_length = 512')
        cluster.file.write_text(text.replace("WEST", f"{cluster.home}/west").replace("EAST", f"{cluster.home}/east"))
        want = pathlib.Path(model).read_bytes()
        # An earlier attempt left half of it, and something wrong in there.
        (cluster.home / "west/model.gguf.part").write_bytes(want[:len(want) // 2 - 1] + bytes([want[len(want) // 2] ^ 255]))
        began = time.monotonic()
        said = cluster.must("up").stderr
        print(f"     three hosts, two without the model of {len(want) / 1e6:.0f} MB: {time.monotonic() - began:.1f} s")
        for there in ("west/model.gguf", "east/deep/model.gguf"):
            assert (cluster.home / there).read_bytes() == want, there
        assert not list(cluster.home.rglob("*.part"))
        assert re.search(r"east.*: its model, 100 % of 0\.\d+ GB, \d+ MB/s\n", said) and "west (this machine): has the model" in said, said
        assert cluster.chat()["choices"][0]["message"]["content"]

        cluster.must("stop")
        wait_until("the offers have ended, too", lambda: cluster.left_over() == [])
        (cluster.home / "east/deep/model.gguf").write_bytes(want[:64] + want[:63:-1])  # another, of the same size
        (cluster.home / "west/model.gguf").unlink()
        said = cluster.run("up").stderr  # what east has is no model
        assert (cluster.home / "west/model.gguf").read_bytes() == want
        assert "east-decode-0 ended" in said, said
        assert re.search(r"west.*: its model, not from 127\.0\.0\.1:\d+: has another content than 127\.0\.0\.1:\d+\n", said), said
        (cluster.home / "west/model.gguf").unlink()
        os.unlink(cluster.home / "front/model.gguf")
        os.rename(cluster.home / "east/deep/model.gguf", cluster.home / "east/deep/other.gguf")
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert f"west (this machine): has no model {cluster.home}/west/model.gguf, and no other host has one of that name" in done.stderr, done.stderr


def a_host_gets_no_more_of_the_model_than_its_processes_read():
    """A host with a gateway gets the words, one with a stage of a group its layers; the answers are those of whole hosts. Once it is to carry more, the rest comes."""
    model = os.environ["MOONCAF_MODEL"]
    hosts = """[whole]
address = "127.0.0.1"
conductor = 1
decode = 1
[door]
address = "127.0.0.1"
model = "HOME/door/model.gguf"
gateway = 1
[stage]
address = "127.0.0.1"
model = "HOME/stage/model.gguf"
[lead]
address = "127.0.0.1"
model = "HOME/lead/model.gguf"
prefill = 1
prefill_ranks = "stage,stage"
"""
    with Launched(hosts) as cluster:
        (cluster.home / "whole").mkdir()
        os.symlink(model, cluster.home / "whole/model.gguf")
        text = cluster.file.read_text().replace(f'path = "{TINY}"', f'path = "{cluster.home}/whole/model.gguf"\ncontext_length = 512\nthreads = 1')
        cluster.file.write_text(text.replace("HOME", str(cluster.home)))
        want, slices = pathlib.Path(model).read_bytes(), ("door", "stage", "lead")
        cluster.must("up")
        on_disk = {name: (cluster.home / f"{name}/model.gguf.slice").stat().st_blocks * 512 / len(want) for name in slices}
        print("     of the model lies " + ", ".join(f"{part:.0%} at {name}" for name, part in on_disk.items()))
        assert on_disk["door"] < 0.2 and on_disk["stage"] < 0.9 and on_disk["lead"] < 0.7, on_disk
        assert not list(cluster.home.glob("*/model.gguf.part")) and not any((cluster.home / name / "model.gguf").exists() for name in slices)
        answer = cluster.chat()["choices"][0]["message"]["content"]
        assert "its model" not in cluster.must("up").stderr, "it is there"

        lead = cluster.home / "lead/model.gguf"
        cluster.must("stop")
        cluster.file.write_text(cluster.file.read_text().replace('prefill_ranks = "stage,stage"\n', ""))
        said = cluster.must("up").stderr
        assert lead.read_bytes() == want and not list(lead.parent.glob("*.slice*")), said
        assert cluster.chat()["choices"][0]["message"]["content"] == answer

        # By hand a process with a slice that is not enough, and one whose note is another's.
        slice_of = cluster.home / "stage/model.gguf"
        serve = lambda path: subprocess.run([BINARY, "--model", str(path), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"],  # noqa: E731
                                            env=cluster.env, capture_output=True, text=True, timeout=60)
        done = serve(slice_of)
        assert done.returncode != 0 and f"`mooncaf weights fetch {slice_of}` brings the rest" in done.stderr, done.stderr[-500:]
        note = slice_of.with_name("model.gguf.slice.json")
        note.write_text(note.read_text().replace(str(len(want)), str(len(want) + 1)))
        done = serve(slice_of)
        assert done.returncode != 0 and "is not the file that" in done.stderr, done.stderr[-500:]


def a_model_on_its_way_does_not_hold_an_interrupted_up():
    needs_sshd()
    with network(2) as (names, addresses, _):
        with Launched(front_and_far(addresses, "model = \"FAR\"\ndecode = 1\n"), addresses[0]) as cluster, private_sshd(cluster, names[1], addresses[1]):
            subprocess.run(["tc", "-n", names[0], "qdisc", "add", "dev", "eth", "root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "50ms"], check=True)
            model = pathlib.Path(os.environ["MOONCAF_MODEL"])
            text = cluster.file.read_text().replace(f'path = "{TINY}"', f'path = "{model}"')
            cluster.file.write_text(text.replace("FAR", f"{cluster.home}/far/{model.name}"))
            up = subprocess.Popen([BINARY, "up", str(cluster.file)], env=cluster.env, stderr=subprocess.PIPE, text=True)
            for line in up.stderr:
                if "its model, " in line:
                    break
            up.send_signal(signal.SIGINT)
            began = time.monotonic()
            said = up.communicate(timeout=60)[1]
            assert up.returncode == 1 and "interrupted" in said, said
            assert time.monotonic() - began < 10, "the whole model was waited for"
            wait_until("nothing of it runs on", lambda: [p for p in cluster.left_over() if isinstance(p, bytes) and BINARY.encode() in p] == [], 60)


def hosts_that_fetch_at_once_bring_one_another_what_has_come():
    """Of the host that has it, whose link is slow, the model leaves about once and not three times."""
    with network(4) as (names, addresses, _), tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        want = os.urandom(64_000_001)
        (folder / "M.gguf").write_bytes(want)
        secret = folder / "secret"
        secret.write_text("of this test and of nobody else\n")
        secret.chmod(0o600)
        subprocess.run(["tc", "-n", names[0], "qdisc", "add", "dev", "eth", "root", "tbf", "rate", "200mbit", "burst", "256kb", "latency", "50ms"], check=True)
        run = lambda i, *args: subprocess.Popen(["ip", "netns", "exec", names[i], BINARY, "weights", *args, "--cluster-secret-file", str(secret)],  # noqa: E731
                                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        sent = lambda: int(subprocess.run(["ip", "netns", "exec", names[0], "cat", "/sys/class/net/eth/statistics/tx_bytes"],  # noqa: E731
                                          check=True, capture_output=True, text=True).stdout)
        offer = run(0, "offer", str(folder / "M.gguf"), "--listen", f"{addresses[0]}:7470")
        try:
            offer.stdout.readline()
            before, began = sent(), time.monotonic()
            fetches = [run(i, "fetch", str(folder / f"here{i}"), "--from", f"{addresses[0]}:7470", "--host", addresses[i]) for i in (1, 2, 3)]
            said = [one.communicate(timeout=100)[0] for one in fetches]
            copies = (sent() - before) / len(want)
            print(f"     64 MB from one host at 200 Mb/s to three: {time.monotonic() - began:.1f} s, {copies:.2f} copies left it")
            for i in (1, 2, 3):
                assert (folder / f"here{i}").read_bytes() == want, said
            assert any(" of it from others that fetch it" in text for text in said), said
            assert copies < 2.4, copies
        finally:
            offer.kill()
            offer.wait(10)
            offer.stdout.close()


def weights_are_brought_by_hand():
    with Launched() as cluster:
        want = os.urandom(30_000_001)
        (cluster.home / "M.gguf").write_bytes(want)
        offer = subprocess.Popen([BINARY, "weights", "offer", str(cluster.home / "M.gguf"), "--idle", "5s"], env=cluster.env, stdout=subprocess.PIPE, text=True)
        try:
            at = re.fullmatch(r"offers .* at (127\.0\.0\.1:\d+)\n", offer.stdout.readline())[1]
            fetch = lambda: subprocess.run([BINARY, "weights", "fetch", "here.gguf", "--from", f"{at},127.0.0.1:1"],  # noqa: E731
                                           env=cluster.env, cwd=cluster.home, capture_output=True, text=True, timeout=60)
            done = fetch()
            assert done.returncode == 0 and "not used: 127.0.0.1:1: " in done.stderr, done
            assert (cluster.home / "here.gguf").read_bytes() == want
            again = fetch()
            assert again.returncode == 1 and "is there already" in again.stderr, again
            assert offer.wait(60) == 0, "an offer ends when nobody wants it any more"
        finally:
            offer.kill()
            offer.wait(10)
            offer.stdout.close()


if __name__ == "__main__":
    main([a_host_without_the_model_gets_it_from_others, a_host_gets_no_more_of_the_model_than_its_processes_read,
          a_model_on_its_way_does_not_hold_an_interrupted_up,
          hosts_that_fetch_at_once_bring_one_another_what_has_come, weights_are_brought_by_hand])
