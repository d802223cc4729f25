"""What engines read Mooncake's settings from: a JSON file, or the environment."""

from __future__ import annotations

import dataclasses
import json
import os

from .store import _size

__all__ = ["DEFAULT_GLOBAL_SEGMENT_SIZE", "DEFAULT_LOCAL_BUFFER_SIZE", "MooncakeConfig"]

DEFAULT_GLOBAL_SEGMENT_SIZE, DEFAULT_LOCAL_BUFFER_SIZE = 3200 << 20, 1 << 30

_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")
_VARIABLES = {"local_hostname": "MOONCAKE_LOCAL_HOSTNAME", "metadata_server": "MOONCAKE_TE_META_DATA_SERVER", "master_server_address": "MOONCAKE_MASTER",
              "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE", "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
              "protocol": "MOONCAKE_PROTOCOL", "device_name": "MOONCAKE_DEVICE", "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
              "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "tenant_id": "MOONCAKE_TENANT_ID",
              "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT"}
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "enable": True, "": False, "false": False, "0": False, "no": False, "off": False,
          "disable": False}


def _truth(value):
    word = "" if value is None else str(value).strip().lower()
    if word not in _WORDS:
        raise ValueError(f"{value!r} is neither true nor false")
    return _WORDS[word]


def _bytes(value):
    """As a number, or as text such as "3 GB" or "512m"."""
    text = str(value).strip()
    try:
        size = _size(value if isinstance(value, int) else text + "B" if text[-1:].lower() in "kmgt" else text)
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{value!r} is no size") from None
    if size < 0:
        raise ValueError(f"{value!r} is less than nothing")
    return size


@dataclasses.dataclass
class MooncakeConfig:
    """With the names, defaults and refusals (ValueError) of the reference; the sizes are in bytes."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str | None
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    def __post_init__(self):
        for name in (*_REQUIRED, "protocol"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ValueError(f"{name} is missing")
        self.protocol = self.protocol.strip().lower()
        self.global_segment_size, self.local_buffer_size = _bytes(self.global_segment_size), _bytes(self.local_buffer_size)
        self.enable_ssd_offload, self.enable_client_http_server = _truth(self.enable_ssd_offload), _truth(self.enable_client_http_server)
        self.client_http_port = int(self.client_http_port)

    @classmethod
    def _of(cls, given):
        settings = {"global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE, "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE, "protocol": "tcp", "device_name": ""}
        settings.update((name, value) for name, value in given.items() if name in _VARIABLES and value is not None)
        missing = [name for name in _REQUIRED if name not in settings]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return cls(**settings)

    @staticmethod
    def from_file(file_path):
        with open(file_path) as file:
            return MooncakeConfig._of(json.load(file))

    @staticmethod
    def load_from_env():
        """MOONCAKE_CONFIG_PATH names a file; without it MOONCAKE_MASTER and its like are read."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path is not None:
            return MooncakeConfig.from_file(path)
        if not os.environ.get("MOONCAKE_MASTER"):
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set")
        given = {name: os.environ.get(variable) for name, variable in _VARIABLES.items()}
        return MooncakeConfig._of({"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", **{k: v for k, v in given.items() if v is not None}})
