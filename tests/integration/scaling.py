#!/usr/bin/env python3
"""A cluster that asks for nodes as its load needs (`--scale-prefill` and the like), and whoever obeys: `mooncaf scale`, called by
the conductor, with `mooncaf up`; and a program that fails. Clients ask all the time, and no answer changes.

The devices are modelled: an answer depends on every token before it, so lost or mixed-up state shows as other tokens."""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, Cluster, free_port, main, modelled, wait_until  # noqa: E402
from elastic import Load, long_prompt  # noqa: E402
from rolling import LOCAL, Crowd  # noqa: E402
from up import Launched  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Scaled(Launched):
    """One host with a conductor, a gateway, and prefill and decode nodes of modelled devices, that scales itself."""

    def __init__(self):
        super().__init__(hosts="""[here]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1  # the conductor changes this
decode = 1
""")
        device = modelled(self.folder.name)[1]
        self.journal = self.home / "journal"
        text = self.file.read_text()
        text = re.sub(r"\[model\]\npath = .*\n", f'[model]\ndevice = "{device}"\n', text).replace('[cache]\ndram = "32MiB"\n', "")
        self.file.write_text(f"""[scheduler]
scale_prefill = "1-3"
scale_every = "500ms"
down_after = "4s"
journal = "{self.journal}"
scale_command = "{os.path.abspath(BINARY)} scale {self.file}"
""" + text)

    def count(self, role):
        with contextlib.suppress(OSError, AssertionError):
            return len({i["node"] for i in self.client.cluster()["instances"] if i["role"] == role and i["state"] == "live"})
        return 0

    def figures(self):
        log = next(self.home.rglob("here-conductor.log")).read_text()  # whole: `logs` tells its end
        port = int(re.findall(r" metrics at=127.0.0.1:(\d+)", log)[-1])
        return Client("127.0.0.1", port).request("GET", "/metrics")[2].decode()

    def wanted(self):
        return self.client.cluster()["counters"]["wanted_prefill"]


def nodes_come_with_the_load_and_go_after_it():
    with Scaled() as cluster:
        cluster.must("up")
        with Crowd([cluster.http], 1) as crowd:
            assert cluster.count("prefill") == 1
            with Load(cluster.http, 40, long_prompt):
                wait_until("three prefill", lambda: cluster.count("prefill") == 3, 90)
                assert cluster.wanted() == 3
                assert re.search(r'mooncaf_wanted_nodes\{.*part="prefill".*\} 3\b', figures := cluster.figures()), figures
            wait_until("one prefills", lambda: cluster.count("prefill") == 1, 90)
            crowd.more(4)
        print(f"     {crowd.end()} answers as before beside the load")
        assert "prefill = 1  # the conductor changes this\n" in cluster.file.read_text() and "decode = 1\n" in cluster.file.read_text()
        log = cluster.run("logs", "here-conductor").stdout
        assert "nodes wanted=\"prefill=3\"" in log and "scale done=\"prefill=1\"" in log, log
        cluster.must("stop")
        done = subprocess.run([BINARY, "replay", str(cluster.journal)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "all the same" in done.stdout, done


def an_operator_who_fails_is_asked_again():
    done = subprocess.run([BINARY, "--role", "conductor", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--scale-nodes", "2-4",
                           "--elastic-roles", "--scale-command", "no-such-operator now"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "scale-command: there is no program 'no-such-operator'" in done.stderr, done
    with Cluster() as cluster:
        device, control, port = modelled(cluster.folder.name), free_port(), free_port()
        notes = pathlib.Path(cluster.folder.name, "notes")
        program = pathlib.Path(cluster.folder.name, "operator")
        program.write_text(f"#!/bin/sh\necho \"$@\" >> {notes}\ntest $(wc -l < {notes}) -ge 2\n")
        program.chmod(0o700)
        cluster.start("main", "--role", "conductor,gateway", *device, "--name", "main", "--listen", f"127.0.0.1:{control}", "--http",
                      f"127.0.0.1:{port}", "--metrics-listen", "127.0.0.1:0", "--elastic-roles", "--scale-nodes", "2-4", "--scale-every", "500ms",
                      "--down-after", "2s", "--scale-command", f"{program} my-cluster")
        for n in range(2):
            cluster.start(f"worker-{n}", "--role", "prefill,decode,cache", *device, "--join", f"127.0.0.1:{control}", *LOCAL, "--name", f"worker-{n}")
        cluster.wait_healthy("127.0.0.1", port)
        wait_until("both are members", lambda: len(cluster.client.cluster()["nodes"]) == 3)
        with Load(port, 40, long_prompt):
            wait_until("it was asked twice", lambda: notes.exists() and len(notes.read_text().splitlines()) >= 2, 90)
        asked = notes.read_text().splitlines()
        assert re.fullmatch(r"my-cluster coupled=[34]", asked[0]), asked
        assert "scale failed=\"coupled=" in cluster.processes["main"].output()
        cluster.wait_idle()


def calls_of(example, *args, programs):
    """What the example asked of programs on the path: each notes its words and its input, and prints what the dictionary says."""
    with tempfile.TemporaryDirectory() as folder:
        notes = pathlib.Path(folder, "notes")
        for name, prints in programs.items():
            program = pathlib.Path(folder, name)
            program.write_text(f"#!/bin/sh\necho {name} \"$@\" >> {notes}\n{prints}\n")
            program.chmod(0o700)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        done = subprocess.run([ROOT / "examples/scale" / example, *args], env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, notes.read_text().splitlines()


def the_examples_call_what_they_say():
    assert calls_of("kubernetes.sh", "ns", "prefill=3", "decode=2", programs={"kubectl": ""}) == (0, [
        f"kubectl --namespace ns scale statefulset/mooncaf-{part} --replicas={n}" for part, n in (("prefill", 3), ("decode", 2))])
    assert calls_of("kubernetes.sh", "ns", "prefill=3", programs={"kubectl": "exit 4"})[0] == 4
    status, calls = calls_of("slurm.sh", "jobs", "prefill=3", programs={"squeue": "echo 11", "sbatch": "", "scancel": ""})
    assert status == 0 and calls[1:] == ["sbatch --job-name=mooncaf-prefill jobs/prefill.sbatch"] * 2, calls
    status, calls = calls_of("slurm.sh", "jobs", "decode=1", programs={
        "squeue": "case $* in *=PENDING,*) echo 11; echo 12; echo 13;; *=PENDING*) echo 13;; *) echo 12; echo 11;; esac", "sbatch": "", "scancel": ""})
    assert status == 0 and calls[-1] == "scancel --batch --signal=TERM 13 12", calls
    status, calls = calls_of("webhook.sh", "http://127.0.0.1:1/scale", "prefill=3", "decode=2", programs={"curl": ""})
    assert status == 0 and '--data {"prefill": 3,"decode": 2} http://127.0.0.1:1/scale' in calls[0], calls


if __name__ == "__main__":
    main([the_examples_call_what_they_say, nodes_come_with_the_load_and_go_after_it, an_operator_who_fails_is_asked_again])
