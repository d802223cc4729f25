"""`mooncake_master`: the directory of the store, its HTTP door, and a metadata server where one is asked for, under the flags of Mooncake's master."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

from .flags import Flags
from .http_metadata_server import KVBootstrapServer

__all__ = ["main"]

SERVED = {"port": 50051, "rpc_port": 0, "rpc_address": "0.0.0.0", "enable_metric_reporting": True, "metrics_port": 9003, "metrics_host": "0.0.0.0",
          "enable_http_metadata_server": False, "http_metadata_server_port": 8080, "http_metadata_server_host": "0.0.0.0",
          "default_kv_lease_ttl": "5000", "config_path": ""}
OTHERS = """allocation_strategy allow_evict_soft_pinned_objects batch_oplog_retry_timeout_sec client_ttl cluster_id cxl_path cxl_size default_kv_soft_pin_ttl
dynamic_replication_admission_qps_threshold dynamic_replication_heat_window_seconds dynamic_replication_max_memory_replicas dynamic_replication_mode enable_cxl
enable_disk_eviction enable_ha enable_kv_events enable_metadata_cleanup_on_timeout enable_multi_tenants enable_offload enable_oplog enable_snapshot
enable_snapshot_restore etcd_endpoints eviction_high_watermark_ratio eviction_ratio global_file_segment_size ha_backend_connstring ha_backend_type
kv_events_additional_salt kv_events_backend_id kv_events_bind_endpoint kv_events_block_size kv_events_dp_rank kv_events_emit_legacy_compat
kv_events_emit_object_key kv_events_lora_name kv_events_model_name kv_events_queue_capacity kv_events_tenant_id logtostderr max_kv_soft_pin_ttl
max_retry_attempts max_threads max_total_finished_tasks max_total_pending_tasks max_total_processing_tasks memory_allocator minloglevel mmap_arena_pool_size
nof_eviction_high_watermark_ratio nof_eviction_ratio nof_heartbeat_failures_threshold nof_heartbeat_interval_sec nof_heartbeat_probe_timeout_ms
offload_cap_ratio offload_force_evict offload_on_evict offloading_queue_limit oplog_batch_max_entries oplog_poll_interval_ms pending_task_timeout_sec pod_name
pod_namespace processing_task_timeout_sec promotion_admission_threshold promotion_max_per_heartbeat promotion_on_hit promotion_queue_limit
put_start_discard_timeout_sec put_start_release_timeout_sec quota_bytes root_fs_dir rpc_conn_timeout_seconds rpc_enable_tcp_no_delay rpc_interface
rpc_thread_num snapshot_backup_dir snapshot_catalog_backend_connstring snapshot_catalog_backend_type snapshot_catalog_store_connstring
snapshot_catalog_store_type snapshot_child_timeout_seconds snapshot_interval_seconds snapshot_object_store_type snapshot_payload_backend_type
snapshot_payload_store_type snapshot_retention_count symbolize_stacktrace tenant_quota_connector_type tenant_quota_connector_uri use_mmap_arena_allocator v"""
_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_log = logging.getLogger("mooncaf")


def _lease_ms(text):
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in _UNITS:
        raise ValueError(f"--default_kv_lease_ttl={text} is no time")
    return max(int(found[1]) * _UNITS[found[2]], 1)


def _asked(arguments):
    """The flags: a file's where `config_path` names one, and the command line's, which win."""
    flags = Flags(arguments, SERVED, OTHERS)
    if not flags.config_path:
        return flags
    text = pathlib.Path(flags.config_path).read_text()
    try:
        told = json.loads(text)
    except ValueError:  # lines of "name: value", as YAML has them
        told = dict(re.findall(r"^\s*(\w+)\s*:\s*\"?([^\"#\n]*?)\"?\s*(?:#.*)?$", text, re.MULTILINE))
    return Flags([f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in told.items()] + arguments, SERVED, OTHERS)


def _host(host, secret):
    """Where it listens: without a secret of the cluster's at this machine alone."""
    address = ipaddress.ip_address(host)
    if secret or address.is_loopback:
        return host
    _log.warning("only this machine is served at %s: MOONCAF_CLUSTER_SECRET_FILE names the secret that other machines have to know", host)
    return "::1" if address.version == 6 else "127.0.0.1"


def _listens(host, port):
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _start(flags, binary, secret, ends, started):
    """Adds to `started` as it goes: who ends this in the middle has what to end. A door without a directory gives up, so it starts second."""
    at = lambda host, port: f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # noqa: E731
    known = ["--cluster-secret-file", secret] if secret else []
    host, port = _host(flags.rpc_address, secret), flags.rpc_port or flags.port
    started.append(subprocess.Popen([binary, "store", "directory", "--listen", at(host, port), "--lease", f"{_lease_ms(flags.default_kv_lease_ttl)}ms", *known]))
    if flags.enable_metric_reporting:
        near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        while not _listens(near, port):
            if started[0].poll() is not None or ends.wait(0.05):
                return
        # The door asks everybody off this machine for a token.
        started.append(subprocess.Popen([binary, "store", "http", "--directory", at(near, port),
                                         "--listen", at(_host(flags.metrics_host, ""), flags.metrics_port), *known]))


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    binary, secret = os.environ.get("MOONCAF_BINARY") or shutil.which("mooncaf"), os.environ.get("MOONCAF_CLUSTER_SECRET_FILE", "")
    if binary is None:
        print("mooncake_master: mooncaf is not on the path; MOONCAF_BINARY may name it", file=sys.stderr)
        return 1
    ends, started, names = threading.Event(), [], None
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, lambda *_: ends.set())
    try:
        flags = _asked(sys.argv[1:])
        if flags.enable_http_metadata_server:
            names = KVBootstrapServer(flags.http_metadata_server_port, _host(flags.http_metadata_server_host, ""))
            names.run()
        _start(flags, binary, secret, ends, started)
        while not ends.wait(0.2) and all(program.poll() is None for program in started):
            pass
    except (OSError, ValueError) as why:
        print(f"mooncake_master: {why}", file=sys.stderr)
        return 1
    finally:
        for program in started:
            program.terminate()
        codes = [program.wait() for program in started]
        if names is not None:
            names.close()
    return 0 if ends.is_set() else next((code for code in codes if code), 1)


if __name__ == "__main__":
    sys.exit(main())
