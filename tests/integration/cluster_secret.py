#!/usr/bin/env python3
"""The secret of a cluster that `mooncaf up` started: the operator's or one that is made, seen by nobody, changed while the
cluster serves."""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, main, wait_until  # noqa: E402
from launched import TINY, Launched, while_asked  # noqa: E402


def a_secret_of_the_operator_is_used_and_kept():
    with Launched() as cluster:
        secret = cluster.home / "shared"
        secret.touch(0o600)
        secret.write_text("0123456789abcdef" * 2)
        cluster.file.write_text(cluster.file.read_text().replace("[launch]", "[launch]\nsecret_file = \"shared\""))
        cluster.must("up")
        copies = list((cluster.home / "state").rglob("secret"))
        assert len(copies) == 3 and all(c.read_text() == secret.read_text() for c in copies)
        cluster.must("stop")
        assert cluster.left_over() == [] and secret.exists()


def another_secret_loses_no_request_and_shuts_out_the_old_one():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        [kept] = (cluster.home / "state").rglob("*.secret")
        old = kept.read_text()
        began = time.monotonic()
        answers, lost = while_asked(cluster, lambda: cluster.must("rotate-secret"))
        print(f"     another secret in {time.monotonic() - began:.1f} s, {len(answers)} requests meanwhile, {len(lost)} of them lost")
        assert answers and all(a == answer for a in answers) and not lost, lost[:3]
        assert cluster.pids() == before, "a process was started anew"
        for file in [kept, *cluster.home.rglob("secret")]:
            assert file.read_text() == kept.read_text() != old and file.stat().st_mode & 0o777 == 0o600, file
        os.kill(before["east-decode-0"], signal.SIGKILL)  # its successor knows the new one alone
        cluster.wait_back("east-decode-0", before["east-decode-0"])
        wait_until("the conductor sees it", lambda: cluster.instances() == 4)
        assert cluster.chat()["choices"] == answer

        stale = cluster.home / "stale"
        stale.write_text(old)
        stale.chmod(0o600)
        log = cluster.home / "stale.log"
        with log.open("wb") as out:
            stranger = subprocess.Popen([BINARY, "--role", "decode", "--model", TINY, "--cache-dram", "32MiB", "--join", f"127.0.0.1:{cluster.control}",
                                         "--listen", "127.0.0.1:0", "--cluster-secret-file", str(stale)], stderr=out)
        try:
            wait_until("it is told why it is not let in", lambda: "does not share our cluster secret" in log.read_text())
            assert cluster.instances() == 4
        finally:
            stranger.kill()
            stranger.wait(10)

        kept.write_text("one secret of many\nanother secret of many\na third secret of many\n")
        done = cluster.run("rotate-secret")
        assert done.returncode == 1 and "3 secrets" in done.stderr, done
        assert cluster.chat()["choices"] == answer


def a_rotation_that_is_cut_off_goes_on():
    with Launched() as cluster:
        cluster.must("up")
        answer = cluster.chat()["choices"]
        [kept] = (cluster.home / "state").rglob("*.secret")
        [folder] = [f.parent for f in cluster.home.rglob("secret") if f.parent.name == "east"]
        agent = folder / "agent.pid"
        was = agent.read_text()
        agent.write_text("1 1\n")  # nobody answers there
        done = cluster.run("rotate-secret")
        assert done.returncode == 1 and "east" in done.stderr and "call this again" in done.stderr, done
        assert cluster.chat()["choices"] == answer
        agent.write_text(was)
        cluster.must("rotate-secret")
        assert len({f.read_text() for f in [kept, *cluster.home.rglob("secret")]}) == 1
        assert cluster.chat()["choices"] == answer


def the_secret_is_in_no_argument_environment_or_log():
    with Launched() as cluster:
        cluster.must("up")
        secrets = list(cluster.home.rglob("secret"))
        assert secrets and all(p.stat().st_mode & 0o777 == 0o600 for p in secrets)
        text = secrets[0].read_bytes().strip()
        for process in [*cluster.pids().values(),
                        *(int(p.read_text().split()[0]) for p in cluster.home.rglob("agent.pid"))]:
            for place in ("cmdline", "environ"):
                assert text not in pathlib.Path(f"/proc/{process}/{place}").read_bytes()
        for file in cluster.home.rglob("*"):
            assert not file.is_file() or file.name.endswith("secret") or text not in file.read_bytes(), file


if __name__ == "__main__":
    main([a_secret_of_the_operator_is_used_and_kept, another_secret_loses_no_request_and_shuts_out_the_old_one,
          a_rotation_that_is_cut_off_goes_on, the_secret_is_in_no_argument_environment_or_log])
