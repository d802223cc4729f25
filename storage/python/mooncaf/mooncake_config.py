"""Mooncake's settings, from a JSON file or the environment."""

from __future__ import annotations

import dataclasses
import json
import logging
import os

__all__ = ["DEFAULT_GLOBAL_SEGMENT_SIZE", "DEFAULT_LOCAL_BUFFER_SIZE", "MooncakeConfig"]

DEFAULT_GLOBAL_SEGMENT_SIZE, DEFAULT_LOCAL_BUFFER_SIZE = 3200 << 20, 1 << 30

_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")
_VARIABLES = {"local_hostname": "MOONCAKE_LOCAL_HOSTNAME", "metadata_server": "MOONCAKE_TE_META_DATA_SERVER", "master_server_address": "MOONCAKE_MASTER",
              "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE", "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
              "protocol": "MOONCAKE_PROTOCOL", "device_name": "MOONCAKE_DEVICE", "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
              "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "tenant_id": "MOONCAKE_TENANT_ID",
              "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT"}
_TRUE, _FALSE = ("true", "1", "yes", "on", "enable"), ("", "false", "0", "no", "off", "disable")
_KNOWN_PROTOCOLS = frozenset("ascend barex cxl efa hip maca musa nvlink nvlink_intra nvmeof rdma rpc_only sunrise_link tcp ub ubshmem".split())
_log = logging.getLogger(__name__)


def _parse_bool(value) -> bool:
    """Of JSON, or a word. ValueError for any other."""
    if isinstance(value, (bool, int, float)):
        return bool(value)
    word = "" if value is None else str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{value!r} is neither true nor false")
    return word in _TRUE


def _parse_segment_size(value) -> int:
    """Bytes, as a number, or as text such as "3 GB", "512m" or "1.5g". ValueError for any other."""
    if not isinstance(value, str):
        return int(value)
    text = value.strip().lower()
    digits = text.rstrip("bkmgt").strip()
    unit = text[len(digits):].strip().removesuffix("b") if text.endswith("b") else text[len(digits):].strip()
    powers = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    if not digits or unit not in powers:
        raise ValueError(f"{value!r} is no size: a number is missing, or its unit is none of B, KB, MB, GB, TB")
    return int(float(digits) * 1024 ** powers[unit])


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
        for name in ("protocol", *_REQUIRED):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ValueError(f"{name} must be a non-empty string, and is {getattr(self, name)!r}")
        self.protocol = self.protocol.strip().lower()
        if self.protocol not in _KNOWN_PROTOCOLS:
            _log.warning("%r is an unknown protocol; the store and the engine find their own ways", self.protocol)
        for name in ("global_segment_size", "local_buffer_size"):
            size = _parse_segment_size(getattr(self, name))
            if size < 0:
                raise ValueError(f"{name} must be non-negative, and is {size}")
            setattr(self, name, size)
        self.enable_ssd_offload, self.enable_client_http_server = _parse_bool(self.enable_ssd_offload), _parse_bool(self.enable_client_http_server)
        self.client_http_port = int(self.client_http_port)

    @classmethod
    def _of(cls, given):
        settings = {"global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE, "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE, "protocol": "tcp", "device_name": ""}
        text = ("ssd_offload_path", "tenant_id")
        settings.update((name, str(value) if name in text else value) for name, value in given.items() if name in _VARIABLES and value is not None)
        missing = [name for name in _REQUIRED if name not in given]
        if missing:
            raise ValueError(f"Missing required config field: {missing[0]}")  # by these words callers know it
        for name in _REQUIRED:  # null in the file
            settings.setdefault(name, None)
        return cls(**settings)

    @staticmethod
    def from_file(file_path: str) -> MooncakeConfig:
        with open(file_path) as file:
            return MooncakeConfig._of(json.load(file))

    @staticmethod
    def load_from_env() -> MooncakeConfig:
        """MOONCAKE_CONFIG_PATH names a file; without it MOONCAKE_MASTER and its like are read."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path is not None:
            return MooncakeConfig.from_file(path)
        if not os.environ.get("MOONCAKE_MASTER"):
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set")
        given = {name: os.environ.get(variable) for name, variable in _VARIABLES.items()}
        return MooncakeConfig._of({"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", **{k: v for k, v in given.items() if v is not None}})
