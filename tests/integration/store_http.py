#!/usr/bin/env python3
"""The object store as one sees it from outside: the endpoint's calls, metrics and page, and `mooncaf store top`."""
import fcntl
import fnmatch
import http.client
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, free_port, main, wait_until  # noqa: E402
from store_world import ROOT, Store, noise, package, ready  # noqa: E402


def names_of_mooncake_s_master(said):
    """Each of those that its `/metrics` prints is told of, or storage/objects/METRICS.md says why it is not."""
    recorded = set((ROOT / "tests/data/store/master_metrics.txt").read_text().split())
    page = (ROOT / "storage/objects/METRICS.md").read_text()
    here, absent = (re.findall(r"`([\w*]+)`", "\n".join(line.split("|")[1] for line in page.split(mark)[1].split("<!-- end")[0].splitlines() if line.startswith("| `")))
                    for mark in ("<!-- names here", "<!-- names not here"))
    assert set(here) == said & recorded, set(here) ^ (said & recorded)
    untold = {name for name in recorded - said if not any(fnmatch.fnmatchcase(name, pattern) for pattern in absent)}
    idle = {pattern for pattern in absent if not any(fnmatch.fnmatchcase(name, pattern) for name in recorded - said)}
    assert not untold and not idle, (untold, idle)


def test_the_endpoint_speaks_http():
    with Cluster() as cluster:
        world = Store(cluster)
        port, data = free_port(), noise(100_000, 6)
        token = os.path.join(world.folder, "token")
        pathlib.Path(token).write_text("a-token-of-this-test\n")
        endpoint = ("store", "http", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen")
        for name, at, more in (("http", port, ()), ("locked", free_port(), ("--token-file", token))):
            command = endpoint if name == "http" else ("store", "door", *endpoint[2:])  # its former name, which scripts may still use
            ready(world.start(name, *command, f"127.0.0.1:{at}", *more))
            locked = at

        def ask(method, path, body=None, headers=None, at=port):
            connection = http.client.HTTPConnection("127.0.0.1", at, timeout=30)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

        key = "/objects/a%2Fb%00%ff"
        assert ask("GET", key)[0] == 404 and ask("PUT", key, data)[0] == 201 and ask("PUT", key, b"other")[0] == 200
        status, body, headers = ask("GET", key)
        assert status == 200 and body == data
        for wanted, part in (("bytes=10-19", data[10:20]), ("bytes=99990-", data[99990:]), ("bytes=-5", data[-5:]), ("bytes=5-999999", data[5:])):
            status, body, headers = ask("GET", key, headers={"Range": wanted})
            assert status == 206 and body == part and headers["Content-Range"].endswith("/100000"), wanted
        assert ask("GET", key, headers={"Range": "bytes=100000-"})[0] == 416 and ask("GET", key, headers={"Range": "lines=1-2"})[1] == data
        status, body, headers = ask("HEAD", key)
        assert status == 200 and body == b"" and headers["X-Object-Bytes"] == headers["Content-Length"] == "100000"
        assert ask("PUT", "/objects/two?replicas=2", b"x")[0] == 201 and len(world.json("stat", "two")[0]["places"]) == 2
        assert ask("DELETE", key)[0] == 409 and ask("DELETE", key + "?force=1")[0] == 200 and ask("HEAD", key)[0] == 404
        assert ask("PUT", "/objects/", b"x")[0] == 400 and ask("PUT", "/objects/empty", b"")[0] == 400 and ask("GET", "/objects/%4")[0] == 400
        assert ask("PUT", "/objects/large", bytes(129 << 20))[0] == 507 and ask("POST", key, b"x")[0] == 405 and ask("GET", "/other")[0] == 404
        assert sorted(s["name"] for s in json.loads(ask("GET", "/segments")[1])) == ["s0", "s1"]
        assert sorted(ask("GET", "/get_all_segments")[1].split()) == [b"s0", b"s1"]
        text = ask("GET", "/metrics")[1].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values["mooncaf_store_objects"] == values["master_key_count"] == "1"
        assert int(values["mooncaf_store_capacity_bytes"]) == int(values["master_total_capacity_bytes"]) == 128 << 20
        assert int(values['segment_allocated_bytes{segment="s0"}']) > 0 and int(values["mooncaf_store_hits_total"]) >= 6
        asked = {name: int(values[f"master_{name}_requests_total"]) for name in ("put_start", "put_end", "get_replica_list", "remove", "remove_all")}
        assert asked["put_start"] >= 3 and asked["put_end"] >= 2 and asked["get_replica_list"] >= 6 and asked["remove"] == 2 and asked["remove_all"] == 0, asked
        assert int(values["master_put_start_alloc_failures_total"]) == int(values["mooncaf_store_refused_puts_total"]) >= 1
        assert int(values["mem_cache_nums_"]) >= 2 and values["file_cache_nums_"] == values["master_total_file_capacity_bytes"] == "0"
        assert int(values["master_mount_segment_requests_total"]) >= 2, "one of each holder"
        names_of_mooncake_s_master({line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")})
        moved = [int(values[f"mooncake_transfer_{what}_latency_count"]) for what in ("get", "put")]
        assert moved == [6, 2], moved
        found = 'mooncaf_store_directory_seconds_%s{question="find"%s}'
        assert int(values[found % ("count", "")]) == int(values[found % ("bucket", ',le="+Inf"')]) >= 6
        assert 0 < float(values[found % ("sum", "")]) < 5 and int(values[found % ("bucket", ',le="20"')]) >= 6
        assert ask("GET", "/health")[0] == 200
        # The page needs no token; what it shows does.
        assert b"<title>mooncaf store" in ask("GET", "/store", at=locked)[1] and ask("GET", "/store/figures", at=locked)[0] == 401
        figures = json.loads(ask("GET", "/store/figures")[1])
        assert figures["counts"]["objects"] == 1 and [s["name"] for s in figures["segments"]] in (["s0", "s1"], ["s1", "s0"])
        assert {"reserve", "publish", "find"} <= {t["question"] for t in figures["times"]}
        replicas = lambda: json.loads(ask("GET", "/store/figures")[1])["counts"]["replicas"]  # noqa: E731
        wait_until("no room is kept for another put", lambda: replicas() == 2)
        assert b"\nmooncaf_store_replicas 2\n" in ask("GET", "/metrics")[1]
        assert ask("GET", "/objects/two")[1] == ask("GET", "/objects/two")[1] == b"x"
        [hot] = json.loads(ask("GET", "/store/figures")[1])["hottest"]
        assert 0 < hot.pop("reads_per_s") < 1 and hot == {"key": "two", "tenant": "", "bytes": 1, "replicas": 2}, hot
        # Web pages of elsewhere are refused, and with a token so is whoever has none.
        assert ask("GET", "/metrics", headers={"Host": "example.com"})[0] == 403
        assert ask("GET", "/metrics", headers={"Origin": "http://example.com"})[0] == 403
        assert ask("GET", "/metrics", at=locked)[0] == 401 and ask("GET", "/health", at=locked)[0] == 200
        assert ask("GET", "/metrics", headers={"Authorization": "Bearer a-token-of-this-test"}, at=locked)[0] == 200
        world.directory.kill9()
        assert ask("GET", "/objects/two")[0] == 503 and ask("GET", "/health")[0] == 503


def test_the_page_shows_what_is_there_and_asks_for_the_token():
    from browser import Browser
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster, Browser() as browser:
        world = Store(cluster)
        store = world.client()
        assert store.put("a", bytes(1 << 20)) == 0 and store.get("a") and store.get("absent") == b""
        token = os.path.join(world.folder, "token")
        pathlib.Path(token).write_text("a-token-of-this-test\n")
        port = free_port()
        ready(world.start("http", "store", "http", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen",
                          f"127.0.0.1:{port}", "--token-file", token))
        browser.open(f"http://127.0.0.1:{port}/store")
        text = lambda part: browser.run(f"return document.querySelector('{part}').innerText")  # noqa: E731
        wait_until("it asks for the token", lambda: "token" in text("#state"), 20)
        assert "1" not in text("#tiles")
        browser.run("document.getElementById('token').value='a-token-of-this-test'")
        wait_until("it lives", lambda: text("#state") == "live", 20)
        assert "Objects\n1" in text("#tiles") and "128.0 MiB" in text("#tiles") and "50.0 %" in text("#tiles")
        segments = text("#segments")
        assert "s0" in segments and "s1" in segments and "64.0 MiB" in segments and "find" in text("#times")
        two = ReplicateConfig()
        two.replica_num = 2
        store.put("<b>" + 300 * "long ", b"x", two)
        wait_until("it follows", lambda: "Objects\n2" in text("#tiles") and "Replicas\n3" in text("#tiles"), 20)
        assert all(store.get("<b>" + 300 * "long ") == b"x" for _ in range(5))
        wait_until("it shows what is read most", lambda: "<b>long" in text("#hottest tr:nth-child(2)"), 20)
        wait_until("the lines are drawn", lambda: all(browser.run(f"return document.querySelectorAll('#{chart} polyline').length")
                                                      for chart in ("hit", "fill", "evictions", "objects", "copies")), 20)
        for width in (390, 1280, 1400):
            browser.resize(width, 900)
            wide = browser.run("return [document.documentElement.scrollWidth,document.documentElement.clientWidth]")
            assert wide[0] <= wide[1] and abs(wide[1] - width) < 20, (width, wide)
            much = "Object.fromEntries(Object.keys(counts).map(k => [k, 1234567890123]))"  # a day of a large store
            assert browser.run(f"const counts = {{objects:0,object_bytes:0,capacity_bytes:0,free_bytes:0,hits:0,misses:0,evictions:0,regretted:0,refused:0,"
                               f"expired:0,lost:0,reserved:0,resting_bytes:0,replicas:0,recovered:0,moved:0}}; show({{counts:{much},segments:[],hottest:[],times:[]}});"
                               "return [...document.querySelectorAll('.tile')].every(t => t.scrollWidth <= t.clientWidth)"), width
        world.directory.kill9()
        wait_until("it says that the directory is gone", lambda: "does not answer" in text("#state"), 20)
        store.close()


def test_a_certificate_makes_the_endpoint_https():
    import ssl
    import urllib.error
    import urllib.request

    with Cluster() as cluster:
        world = Store(cluster)
        own = lambda name: os.path.join(world.folder, name)  # noqa: E731
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", own("key"), "-out", own("cert")],
                       check=True, capture_output=True)
        pathlib.Path(own("token")).write_text("a-token-of-this-test\n")
        port, data = free_port(), noise(300_000, 7)
        endpoint = ("store", "http", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen", f"127.0.0.1:{port}")
        ready(world.start("http", *endpoint, "--token-file", own("token"), "--tls-certificate-file", own("cert"), "--tls-key-file", own("key")))
        trusts = ssl.create_default_context(cafile=own("cert"))

        def ask(method="GET", body=None, scheme="https", token="a-token-of-this-test", context=trusts):
            request = urllib.request.Request(f"{scheme}://localhost:{port}/objects/k", body, {"Authorization": "Bearer " + token}, method=method)
            try:
                with urllib.request.urlopen(request, timeout=30, context=context if scheme == "https" else None) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as e:
                return e.code, b""

        assert ask("PUT", data)[0] == 201 and ask() == (200, data) and ask(token="another")[0] == 401
        for scheme, context in (("http", None), ("https", ssl.create_default_context())):
            try:
                ask(scheme=scheme, context=context)
                raise AssertionError("neither plain HTTP nor who trusts others gets an answer")
            except (OSError, http.client.HTTPException):
                pass
        for files in (("--tls-key-file", own("key")), ("--tls-certificate-file", own("none"), "--tls-key-file", own("key"))):
            done = subprocess.run([BINARY, *endpoint, *files], capture_output=True, text=True, timeout=30)
            assert done.returncode == 8 and "--tls-certificate-file" in done.stderr, done


def test_top_shows_what_happens_to_scripts_and_to_people():
    with Cluster() as cluster:
        world = Store(cluster)
        store = world.client()
        assert store.put("cold", bytes(1 << 20)) == 0 and store.put("hot \x1b[31m", b"x") == 0
        top = [BINARY, "store", "top", "--directory", world.at, "--cluster-secret-file", world.secret, "--interval", "100ms"]
        live = subprocess.Popen([*top, "--json"], stdout=subprocess.PIPE, text=True)
        try:
            look = lambda: json.loads(live.stdout.readline())  # noqa: E731
            first = look()
            assert first["rates"] is None and first["counts"]["objects"] == 2, first
            for key in ("hot \x1b[31m", "hot \x1b[31m", "cold", "absent"):
                store.get(key)
            seen = [look()]
            while not seen[-1]["rates"]["gets_per_s"]:
                seen.append(look())
            now = look()
            assert 0 < seen[-1]["rates"]["hit_rate"] <= 1 and now["counts"]["hits"] == 3 and now["counts"]["misses"] == 1, now
            assert [h["key"] for h in now["hottest"]] == ["hot \x1b[31m", "cold"] and len(now["segments"]) == 2, now
            world.directory.kill9()
            wait_until("it says that nobody answers", lambda: "error" in look())
            world.directory.start()
            wait_until("it goes on", lambda: look().get("counts", {}).get("objects") == 2)
        finally:
            live.kill()
            live.wait()
        wait_until("the client goes on", lambda: store.get("hot \x1b[31m") == b"x")
        assert world.json("top", "--once", "--interval", "100ms")["rates"]["evictions_per_s"] == 0
        # On a terminal of 60 columns and 9 lines: nothing wider or longer, and no key that says how it is drawn.
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 60, 0, 0))
        person = subprocess.Popen(top, stdout=follower, close_fds=True)
        os.close(follower)
        shown = b""
        pictures = lambda: [p.decode().splitlines() for p in shown.split(b"\x1b[H\x1b[2J")[1:-1]]  # noqa: E731
        while not pictures() or "objects 2 (1.0 MiB), replicas 2" not in pictures()[-1][1]:
            shown += os.read(leader, 65536)
        person.kill()
        person.wait()
        os.close(leader)
        assert all(len(p) == 8 and max(map(len, p)) <= 60 for p in pictures()), pictures()
        plain = world.run("top", "--once", "--interval", "100ms").decode()
        assert "\x1b" not in plain and "hot \\x1b[31m" in plain and "READS/S" in plain, plain
        store.close()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
