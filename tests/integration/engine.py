#!/usr/bin/env python3
"""The transfer engine of the Python package: answers as the reference gave them, and bytes between two processes.

`tests/data/store/engine.jsonl` has what PyPI's mooncake-transfer-engine-non-cuda 0.3.13.post1 answered, over TCP; where
that is installed (examples/install_packages.sh --tests), it is asked again.
"""
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import main, wait_until  # noqa: E402
from store_world import REFERENCE, ROOT, noise, package, package_path  # noqa: E402

CALLS = str(ROOT / "tests/integration/engine_calls.py")
RECORDED = ROOT / "tests/data/store/engine.jsonl"


def secret(text="a secret of this test alone, 0123456789\n"):
    path = os.path.join(tempfile.mkdtemp(prefix="mooncaf-engine-"), "secret")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write(text)
    return path


def answers(path, **env):
    done = subprocess.run([sys.executable, CALLS], env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CALL ")]


def expected_differences():
    text = (ROOT / "storage/python/README.md").read_text()
    rows = text.split("<!-- engine differences")[1].split("<!-- end")[0].splitlines()[3:]
    cells = [re.split(r" \| ", row.strip("| \n")) for row in rows if row.startswith("| ")]
    return {name: (json.loads(theirs.strip("`")), json.loads(ours.strip("`"))) for name, theirs, ours, why in cells if why}


class Peer:
    """An engine in a process of its own, with a megabyte of memory that is registered and one that is managed."""

    def __init__(self, key):
        code = ("import ctypes, os, sys\nfrom mooncake.engine import TransferEngine\n"
                "e = TransferEngine()\nassert e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') == 0, e.last_error()\n"
                "plain = ctypes.create_string_buffer(1 << 20)\n"
                "assert e.register_memory(ctypes.addressof(plain), 1 << 20) == 0\n"
                "managed = e.allocate_managed_buffer(1 << 20)\n"
                "print(e.get_rpc_port(), ctypes.addressof(plain), managed, flush=True)\n"
                "for line in sys.stdin:\n"
                "    if line == 'words\\n': print([(w.name, w.msg) for w in e.get_notifies()], flush=True)\n"
                "    else: print(e.read_bytes_from_buffer(int(line), 16).hex(), flush=True)\n")
        env = {**os.environ, "PYTHONPATH": package_path(), "MOONCAF_CLUSTER_SECRET_FILE": key}
        self.process = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        told = self.process.stdout.readline().split()
        assert len(told) == 3, self.process.stderr.read()
        port, self.plain, self.managed = map(int, told)
        self.name = f"127.0.0.1:{port}"

    def ask(self, what):
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)


def engine(key):
    from mooncake.engine import TransferEngine

    os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = key
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, made.last_error()
    return made


def test_every_answer_is_the_recorded_one_or_in_the_table():
    recorded = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    ours = answers(package_path(), MOONCAF_CLUSTER_SECRET_FILE=secret())
    assert [label for label, _ in ours] == [label for label, _ in recorded]
    assert {a[0]: (a[1], b[1]) for a, b in zip(recorded, ours) if a != b} == expected_differences()
    if REFERENCE:
        assert answers(REFERENCE) == recorded, "the reference answers otherwise than it was recorded"


def test_two_processes_exchange_bytes():
    key = secret()
    mine, size = engine(key), 1 << 20
    data, back = ctypes.create_string_buffer(noise(size, 1), size), ctypes.create_string_buffer(size)
    at, to = ctypes.addressof(data), ctypes.addressof(back)
    with Peer(key) as peer:
        assert mine.batch_register_memory([at, to], [size, size]) == 0 and mine.send_probe(peer.name) == 0
        for there in (peer.plain, peer.managed):  # over TCP, and through memory that both map
            assert mine.transfer_sync_write(peer.name, at, there, size) == 0, mine.last_error()
            assert peer.ask(there + 4096) == data.raw[4096:4112].hex()
            ctypes.memset(to, 0, size)
            assert mine.transfer_sync_read(peer.name, to, there, size) == 0 and back.raw == data.raw
        pieces = 64
        step = size // pieces
        offsets = [i * step for i in range(pieces)]
        batch = mine.batch_transfer_async_write(peer.name, [at + o for o in offsets], [peer.plain + o for o in reversed(offsets)], [step] * pieces)
        assert mine.get_batch_transfer_status([batch]) == 0
        assert mine.batch_transfer_sync_read(peer.name, [to + o for o in offsets], [peer.plain + o for o in reversed(offsets)], [step] * pieces) == 0
        assert back.raw == data.raw
        # Memory that it registers later is found, too; and there is nothing beyond what it registered.
        from mooncake.engine import TransferNotify, TransferOpcode

        assert mine.transfer_sync(peer.name, at, peer.plain, 16, TransferOpcode.Write, TransferNotify("request", "17")) == 0
        assert peer.ask("words") == "[('request', '17')]"
        assert mine.transfer_sync_write(peer.name, at, peer.plain + size - 8, 16) == -1
        assert mine.transfer_sync_write(peer.name, 4096, peer.plain, 16) == -1, "no memory is there"


def test_a_peer_that_dies_is_an_answer_and_another_is_found_at_once():
    key = secret()
    mine = engine(key)
    managed = mine.allocate_managed_buffer(4096)
    with Peer(key) as peer:
        assert mine.transfer_sync_write(peer.name, managed, peer.managed, 4096) == 0
        peer.process.send_signal(signal.SIGKILL)
        peer.process.wait(20)
        assert mine.transfer_sync_write(peer.name, managed, peer.managed, 4096) == -1 and mine.send_probe(peer.name) != 0
        number = mine.transfer_submit_write(peer.name, managed, peer.managed, 4096)
        assert number == 0 or wait_until("it ends", lambda: mine.transfer_check_status(number), 20) == -1
    with Peer(key) as other:
        assert mine.transfer_sync_write(other.name, managed, other.managed, 4096) == 0


def test_engines_find_each_other_by_names_that_a_metadata_server_keeps():
    from mooncake.engine import TransferEngine
    from mooncake.http_metadata_server import KVBootstrapServer, KVPoll

    os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = secret()
    server = KVBootstrapServer(0, "127.0.0.1")
    assert server.poll() == KVPoll.Failed
    server.run()
    url, data, room = f"http://127.0.0.1:{server.port}/metadata", ctypes.create_string_buffer(noise(4096, 2), 4096), ctypes.create_string_buffer(4096)
    at, to = ctypes.addressof(data), ctypes.addressof(room)

    def named(name, there=url):
        made = TransferEngine()
        return made, made.initialize(name, there, "tcp", "")

    (one, first), (two, second) = named("127.0.0.1:12345"), named("127.0.0.1:12346")
    assert [first, second, server.poll()] == [0, 0, KVPoll.Success] and one.get_rpc_port() not in (0, 12345)
    assert one.register_memory(at, 4096) == two.register_memory(to, 4096) == 0
    assert two.get_first_buffer_address("127.0.0.1:12345") == at and two.send_probe("127.0.0.1:12345") == 0
    assert two.transfer_sync_read("127.0.0.1:12345", to, at, 4096) == 0 and room.raw == data.raw
    number = two.transfer_submit_write("127.0.0.1:12345", to, at, 4096)
    assert number > 0 and wait_until("it ends", lambda: two.transfer_check_status(number), 20) == 1
    assert two.transfer_sync_read(f"127.0.0.1:{one.get_rpc_port()}", to, at, 16) == two.transfer_sync_read("nobody", to, at, 16) == -1, "names alone"
    # A name belongs to one; who comes back under it is found at his new port.
    again, code = named("127.0.0.1:12345")
    assert code == -1 and "12345" in again.last_error()
    del one
    other, code = named("127.0.0.1:12345")
    assert code == 0 and other.register_memory(at, 4096) == 0 and two.transfer_sync_read("127.0.0.1:12345", to, at, 4096) == 0
    for nowhere in ("http://127.0.0.1:1/metadata", "127.0.0.1:2379", "etcd://127.0.0.1:2379", ""):
        wrong, code = named("127.0.0.1:4444", nowhere)
        assert code == -1 and wrong.last_error(), nowhere

    def ask(method, path, body=None):
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert ask("GET", "/metadata")[0] == 400 and ask("GET", "/metadata?key=a")[0] == ask("DELETE", "/metadata?key=a")[0] == ask("GET", "/other?key=a")[0] == 404
    assert ask("PUT", "/metadata?key=a", b"1")[0] == ask("PUT", "/metadata?key=a", b"2")[0] == 200 and ask("GET", "/metadata?key=a") == (200, b"2")
    assert ask("PUT", "/metadata?key=mooncake%2Frpc_meta%2F127.0.0.1%3A12345", b"{}")[0] == 400 and ask("POST", "/metadata?key=a", b"")[0] == 405
    assert ask("DELETE", "/metadata?key=a")[0] == 200 and ask("GET", "/metadata?key=a")[0] == 404
    server.close()
    assert server.poll() == KVPoll.Failed and two.transfer_sync_read("127.0.0.1:12345", to, at, 16) == 0, "who is known needs no server"


def test_a_stranger_and_a_forked_child_are_refused():
    mine = engine(secret("another secret, 0123456789 0123456789\n"))
    with Peer(secret()) as peer:
        assert mine.transfer_sync_write(peer.name, mine.allocate_managed_buffer(16), peer.plain, 16) == -1
        assert "secret" in mine.last_error() and mine.get_first_buffer_address(peer.name) == 0
    child = os.fork()
    if child == 0:
        os._exit(0 if mine.register_memory(4096, 1) == -1 and mine.get_rpc_port() == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
