#!/usr/bin/env python3
"""A model's way to a host that has none (`mooncaf weights fetch`): MB/s beside plain TCP sockets over the same link, by turns.

    MOONCAF_BINARY=build/actors/mooncaf tests/bench/weights_fetch.py [--size 1] [--rounds 5] [--to 4]

Hosts are network namespaces; `link` is what each source's side is held to. The peer reads one socket for every source into a file,
syncs it, and checks nothing. The best of the rounds counts: where a virtual machine's host takes unused memory away, a file's pages are slow to
come back, for either of them. With --to, one host has it and so many fetch at once, over links of 1 Gb/s: the time until all have it.
Needs root.
"""
import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from cluster import BINARY  # noqa: E402
from hosts import enter, network  # noqa: E402

CHUNK = 1 << 20


def in_host(name, work):
    """Runs `work` in a thread that is in that network namespace."""
    def run():
        enter(f"/var/run/netns/{name}")
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def send_file(address, path, begin, size, listening):
    with socket.create_server((address, 7471)) as server:
        listening.set()
        link, _ = server.accept()
        with link, open(path, "rb") as file:
            link.sendfile(file, begin, size)


def receive_file(address, path, begin, size):
    with socket.create_connection((address, 7471)) as link, open(path, "r+b") as out:
        out.seek(begin)
        buffer = memoryview(bytearray(CHUNK))
        while size > 0:
            n = link.recv_into(buffer)
            out.write(buffer[:n])
            size -= n
        out.flush()
        os.fsync(out.fileno())


def by_sockets(names, addresses, source, target, size):
    """Each source sends its share of the file."""
    target.write_bytes(b"")
    os.truncate(target, size)
    share = size // len(names)
    threads = []
    for name, address, i in zip(names, addresses, range(len(names))):
        listening = threading.Event()
        threads.append(in_host(name, lambda a=address, b=i * share, e=listening: send_file(a, source, b, share, e)))
        listening.wait(10)
    began = time.monotonic()
    threads += [threading.Thread(target=receive_file, args=(a, target, i * share, share)) for i, a in enumerate(addresses)]
    for one in threads[len(names):]:
        one.start()
    for one in threads:
        one.join()
    return size / (time.monotonic() - began)


def by_fetch(names, addresses, host, source, target, size, secret):
    offers = [subprocess.Popen(["ip", "netns", "exec", name, BINARY, "weights", "offer", str(source), "--listen", f"{address}:7470",
                                "--cluster-secret-file", secret], stdout=subprocess.PIPE, text=True) for name, address in zip(names, addresses)]
    try:
        for one in offers:
            one.stdout.readline()
        began = time.monotonic()
        subprocess.run([BINARY, "weights", "fetch", str(target), "--from", ",".join(f"{a}:7470" for a in addresses), "--host", host,
                        "--cluster-secret-file", secret], check=True, capture_output=True)
        return size / (time.monotonic() - began)
    finally:
        for one in offers:
            one.kill()
            one.wait()
            one.stdout.close()


def to_many(count, size, rounds, folder, secret):
    """One host has it, `count` fetch at once."""
    source = folder / "M.gguf"
    with network(count + 1) as (names, addresses, switch):
        for i in range(count + 1):
            for where, device in ((switch, f"port{i}"), (names[i], "eth")):
                subprocess.run(["tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", "rate", "1gbit", "burst", "1mb", "latency", "20ms"], check=True)
        targets = [folder / f"here{i}" for i in range(1, count + 1)]

        def everywhere(work):
            began = time.monotonic()
            threads = [in_host(names[i + 1], lambda i=i: work(i)) for i in range(count)]
            for one in threads:
                one.join()
            took = time.monotonic() - began
            for target in targets:
                assert target.stat().st_size == size
                target.unlink()
            return took

        def plain():
            listening = threading.Event()

            def serve():
                with socket.create_server((addresses[0], 7471), backlog=count) as server:
                    listening.set()
                    threads = []
                    for _ in range(count):
                        link, _ = server.accept()
                        threads.append(threading.Thread(target=lambda link=link: send_all(link, source)))
                        threads[-1].start()
                    for one in threads:
                        one.join()

            server = in_host(names[0], serve)
            listening.wait(10)
            for target in targets:
                target.write_bytes(b"")
                os.truncate(target, size)
            took = everywhere(lambda i: receive_file(addresses[0], targets[i], 0, size))
            server.join()
            return took

        def fetched():
            offer = subprocess.Popen(["ip", "netns", "exec", names[0], BINARY, "weights", "offer", str(source), "--listen", f"{addresses[0]}:7470",
                                      "--cluster-secret-file", secret], stdout=subprocess.PIPE, text=True)
            try:
                offer.stdout.readline()
                return everywhere(lambda i: subprocess.run(
                    [BINARY, "weights", "fetch", str(targets[i]), "--from", f"{addresses[0]}:7470", "--host", addresses[i + 1],
                     "--cluster-secret-file", secret], check=True, capture_output=True))
            finally:
                offer.kill()
                offer.wait()
                offer.stdout.close()

        rows = [(plain(), fetched()) for _ in range(rounds)]
        sockets, ours = (min(r[i] for r in rows) for i in (0, 1))
        print(f"to {count} hosts at once, {size / 1e9:.2f} GB, 1 Gb/s: sockets {sockets:.1f} s, fetch {ours:.1f} s; one copy takes {size / 119e6:.1f} s")


def send_all(link, path):
    with link, open(path, "rb") as file:
        link.sendfile(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1, help="of the file, GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--to", type=int, default=0, help="hosts that fetch at once from one")
    options = parser.parse_args()
    size = int(options.size * 1e9) // (2 * CHUNK) * 2 * CHUNK
    with tempfile.TemporaryDirectory() as folder, network(0 if options.to else 3) as (names, addresses, switch):
        folder = pathlib.Path(folder)
        source, target = folder / "M.gguf", folder / "here.gguf"
        with source.open("wb") as out:
            for _ in range(size // CHUNK):
                out.write(os.urandom(CHUNK))
        secret = folder / "secret"
        secret.write_text("of this bench and of nobody else\n")
        secret.chmod(0o600)
        if options.to:
            to_many(options.to, size, options.rounds, folder, str(secret))
            return
        print(f"{size / 1e9:.2f} GB, best of {options.rounds}\n\n| link | sources | sockets, MB/s | fetch, MB/s | ratio |\n|---|---|---|---|---|")
        for link, rate in (("1 Gb/s", "1gbit"), ("5 Gb/s", "5gbit"), ("as it is", None)):
            for i in (1, 2):
                subprocess.run(["tc", "-n", switch, "qdisc", "del", "dev", f"port{i}", "root"], capture_output=True)
                subprocess.run(["tc", "-n", names[i], "qdisc", "del", "dev", "eth", "root"], capture_output=True)
                if rate:
                    subprocess.run(["tc", "-n", names[i], "qdisc", "add", "dev", "eth", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "20ms"], check=True)
            for sources in (1, 2):
                rows = []
                for _ in range(options.rounds):
                    chosen = names[1:1 + sources], addresses[1:1 + sources]
                    plain = by_sockets(*chosen, source, target, size)
                    target.unlink()
                    rows.append((plain, by_fetch(*chosen, addresses[0], source, target, size, str(secret))))
                    target.unlink()
                plain, fetched = (max(r[i] for r in rows) / 1e6 for i in (0, 1))
                print(f"| {link} | {sources} | {plain:.0f} | {fetched:.0f} | {fetched / plain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
