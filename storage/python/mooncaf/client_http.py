"""A client of the store tells about itself over HTTP, for `setup(…, enable_client_http_server=True)`: /health, /metrics, /metrics/summary.

The names, the bounds of the histograms and the unit (microseconds) are those of Mooncake's client, whose dashboards look for them.
"""

import bisect
import http.server
import json
import threading
import time

__all__ = ["CountedClient", "ClientHttp"]

_BOUNDS = (50, 75, 125, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 5000, 7000, 15000, 20000, 50000, 100000, 200000, 500000,
           1000000, 2000000, 5000000, 10000000, 20000000)


class _Times:
    def __init__(self):
        self.counts, self.total_us = [0] * (len(_BOUNDS) + 1), 0.0

    def note(self, us):
        self.counts[bisect.bisect_left(_BOUNDS, us)] += 1
        self.total_us += us

    def at_most(self, share):
        """The bound under which so much of it is; None where that is beyond the last."""
        wanted, seen = share * sum(self.counts), 0
        for bound, n in zip(_BOUNDS, self.counts):
            seen += n
            if seen >= wanted:
                return bound
        return None


class CountedClient:
    """An extension's client that counts the bytes of whole objects, and how long calls took. Thread-safe, as that is."""

    def __init__(self, client):
        self._client, self._lock, self._begin = client, threading.Lock(), time.monotonic()
        self.times = {name: _Times() for name in ("get", "put", "batch_get", "batch_put")}
        self.bytes = {"read": 0, "write": 0}

    def __getattr__(self, name):
        return getattr(self._client, name)

    def _note(self, what, how_many, begin, way, moved):
        us = (time.perf_counter() - begin) * 1e6
        with self._lock:
            self.times[what if how_many == 1 else "batch_" + what].note(us)
            self.bytes[way] += moved

    def put_bytes(self, key, value):
        begin = time.perf_counter()
        code = self._client.put_bytes(key, value)
        self._note("put", 1, begin, "write", len(value) if code == 0 else 0)
        return code

    def put(self, keys, parts, policy, replace):
        begin = time.perf_counter()
        codes = self._client.put(keys, parts, policy, replace)
        sizes = (sum(p[1] if isinstance(p, tuple) else memoryview(p).nbytes for p in of) for code, of in zip(codes, parts) if code == 0)
        self._note("put", len(keys), begin, "write", sum(sizes))
        return codes

    def get(self, keys):
        begin = time.perf_counter()
        found = self._client.get(keys)
        self._note("get", len(keys), begin, "read", sum(len(data) for data in found if data is not None))
        return found

    def get_into(self, keys, parts):
        begin = time.perf_counter()
        codes = self._client.get_into(keys, parts)
        self._note("get", len(keys), begin, "read", sum(code for code in codes if code > 0))
        return codes

    def put_from(self, key, address, size):
        begin = time.perf_counter()
        code = self._client.put_from(key, address, size)
        self._note("put", 1, begin, "write", size if code == 0 else 0)
        return code

    def put_runs(self, keys, addresses, sizes):
        begin = time.perf_counter()
        codes = self._client.put_runs(keys, addresses, sizes)
        self._note("put", len(codes), begin, "write", sum(size for code, size in zip(codes, sizes) if code == 0))
        return codes

    def get_one(self, key):
        begin = time.perf_counter()
        data = self._client.get_one(key)
        self._note("get", 1, begin, "read", len(data or b""))
        return data

    def get_into_one(self, key, address, size):
        begin = time.perf_counter()
        code = self._client.get_into_one(key, address, size)
        self._note("get", 1, begin, "read", max(code, 0))
        return code

    def get_runs(self, keys, addresses, sizes):
        begin = time.perf_counter()
        codes = self._client.get_runs(keys, addresses, sizes)
        self._note("get", len(codes), begin, "read", sum(code for code in codes if code > 0))
        return codes

    def metrics(self):
        """Prometheus's text."""
        lines = []
        with self._lock:
            for way, moved in self.bytes.items():
                name = f"mooncake_transfer_{way}_bytes"
                lines += [f"# HELP {name} Bytes of whole objects, {way}.", f"# TYPE {name} counter", f'{name}{{client_mode="real"}} {moved}']
            for what, times in self.times.items():
                name, seen = f"mooncake_transfer_{what}_latency", 0
                lines += [f"# HELP {name} How long calls took, in microseconds.", f"# TYPE {name} histogram"]
                for bound, n in zip((*_BOUNDS, None), times.counts):
                    seen += n
                    end = "+Inf" if bound is None else f"{bound:.6f}"
                    lines.append(f'{name}_bucket{{client_mode="real",le="{end}"}} {seen}')
                lines += [f'{name}_sum{{client_mode="real"}} {times.total_us:.3f}', f'{name}_count{{client_mode="real"}} {seen}']
        return "\n".join(lines) + "\n"

    def summary(self):
        """The same for people."""
        with self._lock:
            since = time.monotonic() - self._begin
            lines = [f"{way}: {moved} bytes, {moved / since:.0f} bytes/s" for way, moved in self.bytes.items()]
            for what, times in self.times.items():
                count = sum(times.counts)
                bounds = [times.at_most(share) for share in (0.95, 1)] if count else []
                lines.append(f"{what}: {count}" + "".join(f", {name} {'<= ' + str(b) if b else '> ' + str(_BOUNDS[-1])} us"
                                                         for name, b in zip(("p95", "max"), bounds)))
        return "\n".join(lines) + "\n"


class ClientHttp:
    """Answers on a thread of its own until `close`. OSError where the port is not to be had."""

    def __init__(self, client, host, port):
        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                healthy = client.reachable() if self.path == "/health" else True
                found = {"/health": lambda: ("application/json", json.dumps({"status": "healthy" if healthy else "unhealthy", "code": 0 if healthy else 2})),
                         "/metrics": lambda: ("text/plain; version=0.0.4", client.metrics()),
                         "/metrics/summary": lambda: ("text/plain", client.summary())}.get(self.path)
                kind, text = found() if found else ("text/plain", "see /health, /metrics, /metrics/summary\n")
                self.send_response(404 if not found else 200 if healthy else 503)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *about):  # the standard error belongs to the program around us
                pass

        self._server = http.server.ThreadingHTTPServer((host, port), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="mooncaf-http", daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
