#!/usr/bin/env python3
"""Hosts that share nothing but a network: network namespaces of the test's own, joined by a bridge.

Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN) and iproute2. The test itself moves into the first host.
"""
import contextlib
import ctypes
import itertools
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import serving  # noqa: E402
from cluster import Cluster, main, wait_until  # noqa: E402

CLONE_NEWNET = 0x40000000
NETWORKS = itertools.count()


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def enter(namespace_file):
    """Moves this thread, and those that it starts from now on, into a network namespace."""
    with open(namespace_file) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def network(hosts):
    """`hosts` namespaces on one bridge, 10.77.0.1 and up; the caller ends up in the first, and returns after."""
    number = next(NETWORKS)
    names = [f"mooncaf{os.getpid()}-{number}-{i}" for i in range(hosts + 1)]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        switch = names[-1]
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(names[:-1]):
            ip("-n", switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth", "netns", name)
            ip("-n", switch, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth")
            ip("-n", name, "link", "set", "eth", "up")
        enter(f"/var/run/netns/{names[0]}")
        yield names[:-1], [f"10.77.0.{i + 1}" for i in range(hosts)], switch
    finally:
        enter(ORIGIN)
        for name in made:
            ip("netns", "delete", name)


ORIGIN = f"/proc/{os.getpid()}/fd/{os.open('/proc/self/ns/net', os.O_RDONLY)}"


def secret_in(cluster, name, text):
    path = os.path.join(cluster.folder.name, name)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(text)
    return path


SECRET = "0123456789abcdef" * 4


def same_tokens_from_three_hosts_over_tcp():
    with network(3) as (names, addresses, _), Cluster() as cluster:
        host, port = serving.three_processes(cluster, netns=names, hosts=addresses,
                                             secret=secret_in(cluster, "secret", SECRET))
        client = cluster.wait_healthy(host, port)
        serving.check_all(client)
        wait_until("bytes were counted on tcp", lambda: serving.bytes_by_path(client).get("tcp", 0) > 1 << 20)
        assert set(p for p, n in serving.bytes_by_path(client).items() if n) == {"tcp"}, serving.bytes_by_path(client)
        serving.check_all(client, cached=True)
        cluster.wait_idle()


def a_host_without_the_secret_gets_nothing():
    with network(3) as (names, addresses, _), Cluster() as cluster:
        secret = secret_in(cluster, "secret", SECRET)
        host, port = serving.three_processes(cluster, netns=names, hosts=addresses, secret=secret)
        client = cluster.wait_healthy(host, port)
        front = cluster.processes["front"]
        control = front.args[front.args.index("--listen") + 1]

        wrong = secret_in(cluster, "wrong", SECRET[::-1])
        cluster.start("stranger", "--role", "prefill", "--join", control, "--listen", f"{addresses[2]}:0",
                      "--data-listen", f"{addresses[2]}:0", "--metrics-listen", "127.0.0.1:0",
                      "--cluster-secret-file", wrong, netns=names[2])
        wait_until("the stranger is told why it may not join",
                   lambda: "secret" in cluster.processes["stranger"].output())
        assert len(client.cluster()["nodes"]) == 3, client.cluster()["nodes"]

        # Whoever merely connects and talks hears nothing of use, and disturbs nobody.
        for address in [control, *data_addresses(cluster)]:
            where, _, number = address.rpartition(":")
            for greeting in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096)):
                heard = talk(where, int(number), greeting)
                assert len(heard) < 256, (address, greeting[:16], heard[:64])
        serving.check_all(client)
        cluster.wait_idle()


def a_host_that_falls_silent_costs_a_pause():
    """A cable is pulled: nobody is told. The stream goes on elsewhere, with the tokens it would have had."""
    with network(4) as (names, addresses, switch), Cluster() as cluster:
        secret = secret_in(cluster, "secret", SECRET)
        host, port = serving.three_processes(cluster, netns=names, hosts=addresses, secret=secret)
        front = cluster.processes["front"]
        control = front.args[front.args.index("--listen") + 1]
        client = cluster.wait_healthy(host, port)
        question = {"prompt": serving.STORY * 2, "temperature": 0, "max_tokens": 160, "ignore_eos": True}
        expected = serving.text_of(client.complete(**question))
        cluster.start("spare", "--role", "decode", "--join", control, "--listen", f"{addresses[3]}:0", "--data-listen",
                      f"{addresses[3]}:0", "--metrics-listen", "127.0.0.1:0", "--cluster-secret-file", secret,
                      netns=names[3])
        wait_until("the spare joined", lambda: len(client.cluster()["nodes"]) == 4, 60)
        pieces = []
        for event in client.stream("/v1/completions", question):
            if event and event["choices"]:
                pieces.append(event["choices"][0]["text"])
            if len(pieces) == 20:
                pieces.append("")
                placed = client.cluster()["recent"][0]["decode"].split("/")[0]
                number = 2 if placed == cluster.processes["decode"].node() else 3
                ip("-n", switch, "link", "set", f"port{number}", "down")
        assert "".join(pieces) == expected, ("".join(pieces), expected)
        ip("-n", switch, "link", "set", f"port{number}", "up")
        wait_until("the silent host is back", lambda: len(client.cluster()["nodes"]) == 4, 60)
        assert serving.text_of(client.complete(**question)) == expected
        cluster.wait_idle()


def data_addresses(cluster):
    """Where the data planes listen, from their sockets: the logs name the control ports."""
    found = []
    for name in ("prefill", "decode"):
        process = cluster.processes[name]
        listing = subprocess.run(["ip", "netns", "exec", process.netns, "ss", "-Hltn"], check=True, capture_output=True,
                                 text=True).stdout
        found += [line.split()[3] for line in listing.splitlines() if line.split()[3].startswith("10.77.")]
    assert len(found) >= 4, found  # a control and a data port each
    return found


def talk(host, port, greeting):
    """All that a peer answers to `greeting` and the end of input."""
    heard = b""
    with socket.create_connection((host, port), timeout=10) as s, contextlib.suppress(OSError):  # a reset is an answer, too
        s.sendall(greeting)
        s.shutdown(socket.SHUT_WR)
        while part := s.recv(4096):
            heard += part
    return heard


def possible():
    """Whether namespaces can be made here; says why not."""
    try:
        with network(1):
            return True
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"network namespaces cannot be made here: {getattr(e, 'stderr', '') or e}")
        return False


TESTS = [same_tokens_from_three_hosts_over_tcp, a_host_without_the_secret_gets_nothing,
         a_host_that_falls_silent_costs_a_pause]

if __name__ == "__main__":
    if not possible():
        for test in TESTS:
            print(f"SKIPPED: {test.__name__}: network namespaces need root")
        print(f"0 passed, 0 failed, {len(TESTS)} skipped")
        sys.exit(0)
    main(TESTS)
