"""`mooncake_client`: a process that gives the store memory, under the flags of Mooncake's. Engines of its host need no daemon between."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from .flags import Flags
from .store import MooncakeDistributedStore

__all__ = ["main"]

SERVED = {"host": "0.0.0.0", "global_segment_size": "4 GB", "local_buffer_size": "16 MB", "master_server_address": "127.0.0.1:50051", "protocol": "tcp",
          "tenant_id": "default", "enable_offload": False, "enable_http_server": False, "http_port": 9300}
OTHERS = """device_names logtostderr metadata_server minloglevel mmap_arena_pool_size port start_offload_rpc_server symbolize_stacktrace threads
use_mmap_arena_allocator v"""
_PATIENCE_S = 60


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    ends = threading.Event()
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, lambda *_: ends.set())
    try:
        flags = Flags(sys.argv[1:], SERVED, OTHERS)
    except ValueError as why:
        print(f"mooncake_client: {why}", file=sys.stderr)
        return 1
    store, code = MooncakeDistributedStore(), -900
    for _ in range(_PATIENCE_S):  # the directory may be starting, too
        code = store.setup(flags.host, "P2PHANDSHAKE", flags.global_segment_size, flags.local_buffer_size, flags.protocol, "", flags.master_server_address,
                           enable_ssd_offload=flags.enable_offload, tenant_id=flags.tenant_id, enable_client_http_server=flags.enable_http_server,
                           client_http_port=flags.http_port)
        if code not in (-900, -901) or ends.wait(1):
            break
    if code != 0:
        print(f"mooncake_client: {code} {store.last_error()}", file=sys.stderr)
        return 1
    print(f"gives {flags.global_segment_size} as {store.get_hostname()} (process {os.getpid()})", flush=True)
    ends.wait()
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
