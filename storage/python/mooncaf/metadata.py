"""Where transfer engines are found by name: an HTTP server that all of them know, as Mooncake's engines have it beside "P2PHANDSHAKE"."""

from __future__ import annotations

import http.client
import json
import urllib.parse

__all__ = ["MetadataServer"]

_LIMIT_S = 3.0


class MetadataServer:
    """One such server. Every call asks it anew, and takes three seconds at most. Thread-safe."""

    def __init__(self, url: str) -> None:
        """ValueError for anything but `http://HOST:PORT/PATH`."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url} is no address of an HTTP metadata server")
        self._host, self._port, self._path = parts.hostname, parts.port or 80, parts.path or "/metadata"

    def enter(self, name: str, host: str, port: int) -> bool:
        """Whether the name leads to HOST:PORT from now on; not where another engine has it."""
        return self._ask("PUT", name, json.dumps({"ip_or_host_name": host, "rpc_port": port}))[0] == 200

    def strike(self, name: str) -> None:
        self._ask("DELETE", name)

    def find(self, name: str) -> str | None:
        """HOST:PORT of the engine of that name; None where there is none, or the server does not answer."""
        status, text = self._ask("GET", name)
        try:
            told = json.loads(text) if status == 200 else {}
            host, port = str(told["ip_or_host_name"]), int(told["rpc_port"])
        except (ValueError, KeyError, TypeError):
            return None
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _ask(self, method: str, name: str, body: str | None = None) -> tuple[int, bytes]:
        key = urllib.parse.quote("mooncake/rpc_meta/" + name, safe="")
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_LIMIT_S)
        try:
            connection.request(method, f"{self._path}?key={key}", body)
            answer = connection.getresponse()
            return answer.status, answer.read(1 << 16)
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()
