#!/usr/bin/env python3
"""`mooncaf up` and its companions: a cluster from one file, of hosts that are all this machine, and of two that are network
namespaces with a private sshd in one of them (needs root, iproute2 and openssh-server)."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Client, free_port, main, wait_until  # noqa: E402
from hosts import network  # noqa: E402
from launched import Launched, needs_sshd, front_and_far, private_sshd, talking, while_asked  # noqa: E402


def serves_and_brings_back_what_dies():
    with Launched() as cluster:
        began = time.monotonic()
        cluster.must("up")
        first = cluster.chat()
        print(f"     from up to the first answer of 6 processes: {time.monotonic() - began:.2f} s")
        before = cluster.pids()
        assert sorted(before) == ["east-decode-0", "east-decode-1", "front-conductor", "front-gateway", "west-prefill-0", "west-prefill-1"]
        assert "ready" in cluster.must("status").stdout
        cluster.must("up")
        assert cluster.pids() == before, "the second up started something"

        os.kill(before["west-prefill-0"], signal.SIGKILL)
        cluster.wait_back("west-prefill-0", before["west-prefill-0"])
        assert cluster.nodes()["west-prefill-0"]["last_end"] == "signal 9" and cluster.nodes()["west-prefill-0"]["starts"] == 2
        wait_until("the conductor sees it", lambda: cluster.instances() == 4)
        assert cluster.chat()["choices"] == first["choices"]
        assert "ready roles=prefill,cache" in cluster.must("logs", "west-prefill-0").stdout

        # An agent that is killed takes its processes with it; the next up starts both.
        agent = int(next(cluster.home.glob("state/mooncaf/*/east/agent.pid")).read_text().split()[0])
        os.kill(agent, signal.SIGKILL)
        wait_until("its processes have ended",
                   lambda: not any(os.path.exists(f"/proc/{before[n]}") for n in ("east-decode-0", "east-decode-1")))
        assert cluster.run("status").returncode == 1
        # As systemd does after a reboot (config/package/mooncaf-agent@.service).
        name = next(cluster.home.glob("state/mooncaf/*/east")).relative_to(cluster.home / "state/mooncaf")
        revived = subprocess.Popen([BINARY, "agent", "run", str(name)], env=cluster.env)
        wait_until("the host is back", lambda: cluster.nodes()["east-decode-1"]["state"] == "ready")
        again = subprocess.run([BINARY, "agent", "run", str(name)], env=cluster.env, capture_output=True, text=True, timeout=30)
        assert again.returncode == 1 and f"runs already, as process {revived.pid}" in again.stderr, again
        cluster.must("up")
        assert cluster.chat()["choices"] == first["choices"]

        cluster.must("stop")
        assert revived.wait(30) == 0
        assert cluster.left_over() == []


def groups_over_hosts_start_serve_and_come_back():
    """Stages of one model in processes of two hosts: found by name, shown, scraped, started again with their leader."""
    with Launched("""[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
[west]
address = "127.0.0.1"
prefill = 1
prefill_ranks = "east"
[east]
address = "127.0.0.1"
decode = 1
decode_ranks = "east"
""") as cluster:
        cluster.must("up")
        before = cluster.pids()
        assert sorted(before) == ["east-decode-0", "east-decode-0-rank-1", "front-conductor", "front-gateway", "west-prefill-0",
                                  "west-prefill-0-rank-1"]
        wait_until("the conductor knows both groups", lambda: len(cluster.client.cluster()["ranks"]) == 4)
        ranks = [(r["node"], r["process"], r["layers"], bool(r["at"])) for r in cluster.client.cluster()["ranks"]]
        assert sorted(ranks) == [("east-decode-0", "east-decode-0", "2 to 2", False), ("east-decode-0", "east-decode-0-rank-1", "1 to 1", True),
                                 ("west-prefill-0", "west-prefill-0", "2 to 2", False),
                                 ("west-prefill-0", "west-prefill-0-rank-1", "1 to 1", True)], ranks
        log = next(cluster.home.rglob("front-conductor.log")).read_text()
        port = int(re.search(r" metrics at=127.0.0.1:(\d+)", log)[1])
        conductor = Client("127.0.0.1", int(port))

        def scraped_processes():
            targets = {t["labels"]["process"]: t["targets"][0] for t in json.loads(conductor.request("GET", "/targets")[2])}
            return targets if set(targets) == set(before) else None

        scraped = wait_until("every process is listed for Prometheus", scraped_processes)
        host, port = scraped["west-prefill-0-rank-1"].split(":")
        assert Client(host, int(port)).request("GET", "/metrics")[0] == 200
        first = cluster.chat()["choices"]
        os.kill(before["west-prefill-0-rank-1"], signal.SIGKILL)
        cluster.wait_back("west-prefill-0-rank-1", before["west-prefill-0-rank-1"])
        assert cluster.chat()["choices"] == first
        assert cluster.pids()["west-prefill-0"] != before["west-prefill-0"], "a leader without its rank went on"
        before, told = cluster.pids(), sum(log.read_text().count("rank lost") for log in cluster.home.rglob("*.log"))
        answers, lost = while_asked(cluster, lambda: cluster.must("restart", "--rolling"))
        assert answers and all(a == first for a in answers) and not lost, (len(answers), lost[:3])
        assert not set(cluster.pids().values()) & set(before.values())
        logs = {log.name: log.read_text() for log in cluster.home.rglob("*.log")}
        assert sum(text.count("rank lost") for text in logs.values()) == told, "a leader ended before its requests did"
        began = time.monotonic()
        cluster.must("stop")
        assert time.monotonic() - began < 30, "a process that was asked for /targets did not end by itself"
        assert cluster.left_over() == []


def scales_drains_and_restarts_under_requests():
    with Launched() as cluster:
        cluster.must("up")
        answer = cluster.chat()["choices"]
        before = cluster.pids()
        cluster.must("scale", "prefill=+1")
        assert "prefill = 3\n" in cluster.file.read_text()
        assert {n: p for n, p in cluster.pids().items() if n != "west-prefill-2"} == before
        wait_until("the conductor sees it", lambda: cluster.instances() == 5)

        began = time.monotonic()
        answers, lost = while_asked(cluster, lambda: cluster.must("restart", "--rolling"))
        took = time.monotonic() - began
        print(f"     {len(answers)} requests while 7 processes were restarted in {took:.1f} s, {len(lost)} of them lost")
        assert answers and all(a == answer for a in answers)
        assert not lost, f"{len(lost)} requests failed beside {len(answers)}: {lost[:3]}"
        assert not set(cluster.pids().values()) & set(before.values())
        assert cluster.chat()["choices"] == answer

        cluster.must("drain", "west-prefill-1")
        assert cluster.nodes()["west-prefill-1"]["state"] == "not running"
        assert cluster.chat()["choices"] == answer
        cluster.must("scale", "prefill=-2")
        assert [n for n in cluster.nodes() if n.startswith("west")] == ["west-prefill-0"]
        assert cluster.chat()["choices"] == answer


def status_says_which_conductor_leads():
    hosts = "".join(f"""[host{n}]
address = "127.0.0.{n + 1}"
runner = "local"
conductor = 1
gateway = {int(n == 0)}
prefill = {int(n == 1)}
decode = {int(n == 2)}
""" for n in range(3))
    with Launched(hosts) as cluster:
        cluster.must("up")
        cluster.chat()
        leaders = lambda: [name for name, n in cluster.nodes().items() if n["leads"]]  # noqa: E731
        wait_until("one leads", lambda: len(leaders()) == 1, 30)
        [was] = leaders()
        table = cluster.must("status").stdout
        assert table.count("(leads)") == 1 and table.count("(stands by)") == 2, table
        os.kill(cluster.pids()[was], signal.SIGKILL)
        wait_until("another leads", lambda: len(leaders()) == 1 and leaders() != [was], 30)
        assert cluster.chat()["choices"]


def a_successor_that_cannot_start_leaves_the_gateway():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        right = cluster.file.read_text()
        cluster.file.write_text(right.replace("gateway = 1", "gateway = 1\nmax_requests = 1\napi_keys_file = \"keys\""))
        (cluster.home / "keys").write_text("not a list of keys\n")
        [log] = cluster.home.rglob("front-gateway.log")
        with talking(log):
            done = cluster.run("restart", "--rolling")
        assert done.returncode == 1, done
        assert re.search(r"front-gateway's successor ended with exit status \d+: .*keys.*; the process that ran goes on", done.stderr), done.stderr
        assert cluster.pids()["front-gateway"] == before["front-gateway"]
        assert cluster.chat()["choices"] == answer
        cluster.file.write_text(right)


def a_restart_keeps_the_logs():
    with Launched() as cluster:
        cluster.must("up")
        answer, before = cluster.chat()["choices"], cluster.pids()
        cluster.must("restart")
        assert not set(cluster.pids().values()) & set(before.values())
        assert cluster.chat()["choices"] == answer
        for node in before:
            assert cluster.must("logs", node).stdout.count(" ready roles=") == 2, node
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 2\nlora_modules = \"a=/nowhere\""))
        done = cluster.run("restart")
        assert done.returncode == 1 and "nowhere" in done.stderr and "the logs are kept" in done.stderr, done
        assert "nowhere" in cluster.run("logs").stdout


def a_gateway_with_a_certificate_is_waited_for():
    with Launched() as cluster:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", cluster.home / "key.pem", "-out", cluster.home / "cert.pem"],
                       check=True, capture_output=True)
        text = cluster.file.read_text().replace("[gateway]", "[gateway]\ntls_certificate_file = \"cert.pem\"\ntls_key_file = \"key.pem\"")
        # Without a decode process nothing can be served, and `up` says so of this gateway, too.
        cluster.file.write_text(text.replace("decode = 2", "decode = 0").replace('ready_within = "60s"', 'ready_within = "2s"'))
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert f"the gateway at https://127.0.0.1:{cluster.http} serves no request after 2s" in done.stderr, done.stderr
        cluster.file.write_text(text)
        assert f"serves at https://127.0.0.1:{cluster.http}" in cluster.must("up").stdout
        trusts = ssl.create_default_context(cafile=str(cluster.home / "cert.pem"))
        trusts.check_hostname = False
        front = http.client.HTTPSConnection("127.0.0.1", cluster.http, context=trusts, timeout=30)
        front.request("GET", "/health")
        assert front.getresponse().status == 200
        front.close()


def an_object_store_comes_back_with_what_it_held():
    """Memory for a third of the objects, so most are read from SSD; one of the two nodes is killed."""
    with Launched() as cluster:
        directory = free_port()
        cluster.file.write_text(f"""[launch]
port = {cluster.control}
[metrics]
listen = "127.0.0.1:0"
[front]
address = "127.0.0.1"
conductor = 1
store_listen = "127.0.0.1:{directory}"
[pool]
address = "127.0.0.1"
cache = 2
store_dram = "16MiB"
store_ssd_path = "{cluster.home}/ssd"
store_ssd_size = "256MiB"
store_write_policy = "write_through"
""")
        cluster.must("up")
        secret = str(next((cluster.home / "state/mooncaf").glob("*.secret")))

        def store(*words, given=None):
            return subprocess.run([BINARY, "store", *words, "--directory", f"127.0.0.1:{directory}", "--cluster-secret-file", secret],
                                  input=given, capture_output=True, timeout=60)

        def stored():
            return json.loads(store("stat", "--json").stdout)

        def segments():
            return store("segments", "--json").stdout.count(b'"medium"')

        wait_until("both are mounted", lambda: segments() == 4)
        values = {f"value-{n}": os.urandom(1 << 20) for n in range(60)}
        for written, (name, value) in enumerate(values.items(), 1):
            assert store("put", name, given=value).returncode == 0
            wait_until("it is on SSD", lambda: stored()["ssd_objects"] == written)  # what comes faster stays in memory
        assert all(store("get", name).stdout == value for name, value in values.items())
        os.kill(cluster.pids()["pool-cache-1"], signal.SIGKILL)
        wait_until("its loss is noticed", lambda: segments() < 4)
        wait_until("it is back", lambda: segments() == 4)
        assert all(store("get", name).stdout == value for name, value in values.items())


def a_busy_port_or_host_out_of_reach_leaves_nothing():
    with Launched() as cluster, socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.http))
        taken.listen()
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(rf"front \(this machine\): 127.0.0.1:{cluster.http} is taken", done.stderr), done.stderr
        assert cluster.left_over() == []
    unreachable = """[front]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1
[away]
address = "127.0.0.1"
runner = "ssh"
ssh = "no-such-host.invalid"
decode = 1
"""
    with Launched(unreachable) as cluster:
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(r"away \(ssh no-such-host.invalid\): .*ssh", done.stderr), done.stderr
        assert cluster.left_over() == []
        cluster.file.write_text(cluster.file.read_text().replace('ready_within = "60s"', 'ready_within = "3s"'))
        done = cluster.run("up", "--keep-going")
        assert done.returncode == 1 and f"gateway at http://127.0.0.1:{cluster.http} serves no request" in done.stderr, done
        assert "serves at" not in done.stdout, done
        states = {name: n["state"] for name, n in cluster.nodes().items()}
        assert states == {"front-conductor": "ready", "front-gateway": "ready", "front-prefill-0": "ready", "away-decode-0": "unknown"}, states


def a_process_that_cannot_start_is_named_and_the_rest_ended():
    with Launched() as cluster:
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 2\nlora_modules = \"a=/nowhere\""))
        done = cluster.run("up")
        assert done.returncode == 1, done
        assert re.search(r"east \(this machine\): .*east-decode-\d ended with exit status \d+: .*nowhere", done.stderr), done.stderr
        assert cluster.left_over() == []


def an_interrupted_up_leaves_nothing():
    with Launched() as cluster:
        up = subprocess.Popen([BINARY, "up", str(cluster.file)], env=cluster.env, stderr=subprocess.PIPE, text=True)
        for line in up.stderr:
            if "processes are ready" in line:  # the conductor's
                up.send_signal(signal.SIGINT)
                break
        rest = up.stderr.read()
        assert up.wait(60) == 1 and "interrupted" in rest, rest
        up.stderr.close()
        assert cluster.left_over() == []


def a_wrong_file_is_refused_with_its_line():
    with Launched() as cluster:
        cluster.file.write_text(cluster.file.read_text().replace("decode = 2", "decode = 65"))
        done = cluster.run("up")
        assert done.returncode == 2 and re.search(r"cluster.toml:\d+: east.decode 65 is out of range; allowed: 0 to 64", done.stderr), done
        cluster.file.write_text(cluster.file.read_text().replace("decode = 65", "decode = 2"))
        cluster.file.unlink()
        for command in (["up"], ["scale", "decode=+1"]):
            done = cluster.run(*command)
            assert done.returncode == 2 and "cannot read" in done.stderr and str(cluster.file) in done.stderr, done


def two_hosts_over_ssh():
    needs_sshd()
    with network(2) as (names, addresses, _):
        with Launched(front_and_far(addresses, "prefill = 1\ndecode = 2\n"), addresses[0]) as cluster, private_sshd(cluster, names[1], addresses[1]) as sshd:
            began = time.monotonic()
            cluster.must("up")
            answer = cluster.chat()["choices"]
            print(f"     over ssh, from up to the first answer of 6 processes: {time.monotonic() - began:.2f} s")
            before = cluster.pids()
            far = pathlib.Path(f"/proc/{before['far-decode-0']}/ns/net").readlink()
            assert far != pathlib.Path("/proc/thread-self/ns/net").readlink(), "it runs on the first host"
            os.kill(before["far-decode-0"], signal.SIGKILL)
            cluster.wait_back("far-decode-0", before["far-decode-0"])
            assert cluster.chat()["choices"] == answer
            assert "ready roles=decode" in cluster.must("logs", "far-decode-1").stdout
            cluster.must("scale", "decode=+1")
            assert cluster.nodes()["far-decode-2"]["state"] == "ready"
            cluster.must("stop")
            assert cluster.left_over() == []
            sshd.terminate()
            sshd.wait(10)
            done = cluster.run("up")
            assert done.returncode == 1, done
            assert re.search(rf"far \(ssh {addresses[1]}\): cannot be reached by `ssh {addresses[1]}`: .*refused", done.stderr), done.stderr
            assert cluster.left_over() == []


if __name__ == "__main__":
    main([two_hosts_over_ssh, serves_and_brings_back_what_dies, groups_over_hosts_start_serve_and_come_back,
          scales_drains_and_restarts_under_requests, status_says_which_conductor_leads,
          a_successor_that_cannot_start_leaves_the_gateway, an_object_store_comes_back_with_what_it_held, a_restart_keeps_the_logs,
          a_gateway_with_a_certificate_is_waited_for, a_busy_port_or_host_out_of_reach_leaves_nothing,
          a_process_that_cannot_start_is_named_and_the_rest_ended, an_interrupted_up_leaves_nothing,
          a_wrong_file_is_refused_with_its_line])
