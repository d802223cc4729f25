#!/usr/bin/env python3
"""The programs of Mooncake's package as ours has them: `mooncake_master`, `mooncake_client`, `mooncake_http_metadata_server`, and `mc_store_rest_server`
with its calls, which needs aiohttp, as the reference brings it along."""
import http.client
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, Skipped, free_port, main, wait_until  # noqa: E402
from store_world import REFERENCE, Store, package, package_path  # noqa: E402


class Program:
    """One of the package's programs, as `python -m MODULE` starts it; ended as a service manager does."""

    def __init__(self, module, *arguments, **env):
        path = os.pathsep.join(filter(None, (package_path(), REFERENCE)))
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=self.said, stderr=self.said,
                                        env={**os.environ, "PYTHONPATH": path, "MOONCAF_BINARY": BINARY, **env})

    def text(self):
        self.said.seek(0)
        return self.said.read().decode()

    def ends(self, told=signal.SIGTERM):
        self.process.send_signal(told)
        return self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        self.process.kill()
        self.process.wait()
        if failed:
            print(f"---- {' '.join(self.process.args)}:\n{self.text()}", file=sys.stderr)
        self.said.close()


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def test_a_directory_and_a_client_start_with_the_flags_of_mooncake_s():
    from mooncake.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        secret = world.secret
        rpc, metrics, names = free_port(), free_port(), free_port()
        known = {"MOONCAF_CLUSTER_SECRET_FILE": secret}
        flags = ("--rpc_address=127.0.0.1", "-rpc_port", str(rpc), f"--metrics_port={metrics}", "--metrics_host=127.0.0.1", "--default_kv_lease_ttl=300ms",
                 "--enable_http_metadata_server=true", f"--http_metadata_server_port={names}", "--http_metadata_server_host=127.0.0.1", "--logtostderr",
                 "--eviction_high_watermark_ratio=0.9", "--noenable_disk_eviction", "--rpc_thread_num=4", "--enable_offload")
        with Program("mooncake.cli", *flags, **known) as master, Program(
                "mooncake.cli_client", f"--master_server_address=127.0.0.1:{rpc}", "--host=127.0.0.1", "--global_segment_size=32 MB",
                "--metadata_server=P2PHANDSHAKE", "--threads=2", **known) as lender:
            wait_until("the door answers", lambda: ask(metrics, "GET", "/health")[0] == 200, 60)
            wait_until("memory is given", lambda: ask(metrics, "GET", "/get_all_segments")[1].startswith(b"127.0.0.1:1"), 60)
            os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = secret
            store = MooncakeDistributedStore()
            assert store.setup("127.0.0.1", f"http://127.0.0.1:{names}/metadata", 0, 16 << 20, "tcp", "", f"127.0.0.1:{rpc}") == 0, store.last_error()
            assert store.put("k", b"v") == 0 and store.get("k") == b"v" and b"master_key_count 1" in ask(metrics, "GET", "/metrics")[1]
            wait_until("the lease of 300 ms has ended", lambda: store.remove("k") == 0)
            assert ask(names, "PUT", "/metadata?key=a", b"1")[0] == 200 and ask(names, "GET", "/metadata?key=a")[1] == b"1"
            store.close()
            told = [line for line in master.text().splitlines() if "without a meaning here" in line]
            assert len(told) == 1 and "--rpc_thread_num" in told[0] and "--rpc_port" not in told[0], told
            assert lender.ends() == 0 and master.ends() == 0
            wait_until("all of it is gone", lambda: ask(metrics, "GET", "/health")[0] == 0)
        with Program("mooncake.cli", "--no_such_flag=1") as wrong:
            assert wrong.process.wait(30) == 1 and "no_such_flag" in wrong.text()
        with Program("mooncake.cli", "--rpc_port=many") as wrong:
            assert wrong.process.wait(30) == 1 and "many" in wrong.text()
        # What a file says is under what the command line says; without a secret nobody but this machine is served.
        file = os.path.join(world.folder, "master.json")
        pathlib.Path(file).write_text(json.dumps({"rpc_port": 1, "enable_metric_reporting": False, "default_kv_lease_ttl": "1s"}))
        with Program("mooncake.cli", f"--config_path={file}", f"--rpc_port={rpc}", MOONCAF_CLUSTER_SECRET_FILE="", HOME=world.folder) as master:
            wait_until("it is ready", lambda: f"127.0.0.1:{rpc}" in master.text() and "ready" in master.text(), 60)
            assert "MOONCAF_CLUSTER_SECRET_FILE" in master.text() and master.ends(signal.SIGINT) == 0


def test_the_metadata_server_is_a_program():
    port = free_port()
    with Program("mooncake.http_metadata_server", "--port", str(port), "--host", "127.0.0.1", "--log-level", "WARNING") as server:
        wait_until("it answers", lambda: ask(port, "GET", "/metadata?key=a")[0] == 404, 30)
        with Program("mooncake.http_metadata_server", "--port", str(port), "--host", "127.0.0.1") as second:
            assert second.process.wait(30) == 1 and str(port) in second.text()
        assert server.ends() == 0


def test_the_service_gives_memory_and_answers_http():
    if importlib.util.find_spec("aiohttp") is None and not REFERENCE:
        raise Skipped("aiohttp is not installed")
    with Cluster() as cluster:
        world = Store(cluster, segments=0, lease="2s")
        port, settings = free_port(), os.path.join(world.folder, "mooncake.json")
        pathlib.Path(settings).write_text(json.dumps({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_address": "127.0.0.1:1",
                                                      "global_segment_size": "32 MB", "local_buffer_size": 16 << 20}))
        with Program("mooncake.mooncake_store_service", "--config", settings, "-D", f"master_server_address={world.at}", "--port", str(port),
                     MOONCAF_CLUSTER_SECRET_FILE=world.secret) as service:
            api = lambda method, call, body=None: ask(port, method, "/api/" + call, body)  # noqa: E731
            wait_until("it answers", lambda: api("GET", "exist/k") == (200, b'{"exists": false}'), 60)
            assert [s["bytes"] for s in world.json("segments")] == [32 << 20]
            assert api("PUT", "put", {"key": "k", "value": "v\u00e4lue"})[0] == 200 and api("GET", "get/k") == (200, "v\u00e4lue".encode())
            assert api("GET", "exist/k")[1] == b'{"exists": true}' and api("GET", "get/absent")[0] == 404 and world.run("get", "k") == "v\u00e4lue".encode()
            for wrong in ({"key": "k"}, {"value": "v"}, {"key": "", "value": "v"}):
                assert api("PUT", "put", wrong)[0] == 400, wrong
            for wrong in (b"no JSON", b"[]", {"key": "k", "value": 5}):
                status, said = api("PUT", "put", wrong)
                assert status == 500 and json.loads(said)["error"], wrong
            assert api("DELETE", "remove/k")[0] == 500, "it has a lease"
            status, said = api("POST", "mount", {"size": 16 << 20})
            [more] = json.loads(said)["segment_ids"]
            assert status == 200 and json.loads(said)["allocated_size"] == 16 << 20 and more in {s["name"] for s in world.json("segments")}
            assert api("POST", "unmount", {"segment_ids": more, "grace_period_seconds": 1})[0] == 200 and len(world.json("segments")) == 1
            assert api("POST", "unmount", {"segment_ids": ["nobody's"]})[0] == 500 and api("POST", "unmount", {})[0] == 400
            assert [api("POST", "mount", {"size": wrong})[0] for wrong in (0, -1, "many", True, None)] == [400] * 5
            # No file is lent: the service says so, and goes on as it was.
            assert api("POST", "reconfigure", {"mode": "decode", "path": "/dev/shm/x", "size": 1 << 24})[0] == 500
            assert api("POST", "reconfigure", {"mode": "decode"})[0] == api("POST", "reconfigure", {"mode": "other"})[0] == 400
            assert json.loads(api("POST", "reconfigure", {"mode": "prefill"})[1]) == {"status": "success", "mode": "prefill"}
            assert [api("POST", "mount_shm", {"name": name, "size": 1})[0] for name in ("/x", "../x", "", None)] == [500, 400, 400, 400]
            assert api("POST", "unmount_shm", {"segment_ids": ["x"]})[0] == 500 and api("POST", "unmount_shm", {})[0] == 400
            assert api("POST", "unmount_local_disk", {})[0] == 200
            assert [api("POST", "unmount_local_disk", wrong)[0] for wrong in (b"no", [], {"grace_period_seconds": -1}, {"grace_period_seconds": 3601})] == [400] * 4
            wait_until("the lease has ended", lambda: api("DELETE", "remove/k")[0] == 200, 30)
            assert api("PUT", "put", {"key": "l", "value": "v"})[0] == 200 and api("DELETE", "remove_all") == (200, b'{"status": "success removed 1 keys"}')
            assert service.ends() == 0, service.text()
            wait_until("its memory is gone", lambda: world.json("segments") == [])
        with Program("mooncake.mooncake_store_service", "--config", settings, "--max-wait-time", "0.5", "--port", str(port)) as service:
            assert service.process.wait(30) != 0 and "could not be set up" in service.text()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
