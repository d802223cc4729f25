"""The server that transfer engines find each other by, for `initialize` with "http://HOST:PORT/metadata": keys and their values, in memory."""

from __future__ import annotations

import argparse
import enum
import http.server
import logging
import signal
import socket
import sys
import threading
import urllib.parse

__all__ = ["KVBootstrapServer", "KVPoll", "main", "parse_args"]

_VALUE_MAX = 16 << 20
_log = logging.getLogger("mooncaf")


class KVPoll(enum.Enum):
    Failed, Bootstrapping, WaitingForInput, Transferring, Success = range(5)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, at, handler, of):
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self.of = of
        super().__init__(at, handler)

    def handle_error(self, request, client_address):
        """A client that goes away is none of ours."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def _say(self, status, body):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _take(self):
        parts = urllib.parse.urlsplit(self.path)
        if parts.path != "/metadata":
            return self._say(404, "see /metadata?key=")
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _VALUE_MAX:
            self.close_connection = True
            return self._say(413, "this value is too large")
        value = self.rfile.read(int(length))
        key = urllib.parse.parse_qs(parts.query).get("key", [""])[0].strip()
        self._say(*(self.server.of.answer(self.command, key, value) if key else (400, "which key?")))

    do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = do_PATCH = do_OPTIONS = _take

    def log_message(self, format, *args):
        _log.debug("%s %s", self.address_string(), format % args)


class KVBootstrapServer:
    """Serves from `run` to `close`, on threads of its own."""

    def __init__(self, port: int, host: str = "0.0.0.0") -> None:
        self.port, self.host, self.app = port, host, _Handler
        self.store: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self._server: _Server | None = None

    def run(self) -> threading.Thread:
        """@raises OSError where the address cannot be had."""
        self._server = _Server((self.host, self.port), self.app, self)
        self.port = self._server.server_address[1]
        self.thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self.thread.start()
        return self.thread

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self.thread is not None:
            self.thread.join(timeout=2)

    def poll(self) -> KVPoll:
        return KVPoll.Success if self.thread is not None and self.thread.is_alive() else KVPoll.Failed

    def answer(self, method: str, key: str, value: bytes) -> tuple[int, str | bytes]:
        """Status and body. The address of an engine is not replaced: two of one name would take each other's bytes."""
        with self.lock:
            if method in ("GET", "HEAD"):
                return (200, self.store[key]) if key in self.store else (404, "metadata not found")
            if method == "PUT":
                if "rpc_meta" in key and key in self.store:
                    return 400, "an engine of this name is there already"
                self.store[key] = value
                return 200, "metadata updated"
            if method == "DELETE":
                return (200, "metadata deleted") if self.store.pop(key, None) is not None else (404, "metadata not found")
        return 405, "GET, PUT or DELETE it"


def parse_args(args=None):
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="where it listens (default 8080)")
    parser.add_argument("--host", default="0.0.0.0", help="at which address (default: at each)")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
    return parser.parse_args(args)


def main() -> int:
    args = parse_args()
    logging.basicConfig(level=args.log_level)
    ends = threading.Event()
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, lambda *_: ends.set())
    server = KVBootstrapServer(args.port, args.host)
    try:
        server.run()
    except OSError as why:
        print(f"mooncake_http_metadata_server: {args.host}:{args.port}: {why}", file=sys.stderr)
        return 1
    print(f"listening at {server.host}:{server.port}", flush=True)
    ends.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
