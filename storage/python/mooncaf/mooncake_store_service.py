"""`mc_store_rest_server`: a process that gives the store memory, and takes calls over HTTP. Needs the package aiohttp, as Mooncake's does.

Every process that reaches its port may use it: it asks for no token, and listens at every address, as Mooncake's does. `mooncaf store door` asks.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import signal
import time

from aiohttp import web

from .mooncake_config import MooncakeConfig
from .store import MooncakeDistributedStore

__all__ = ["MooncakeConfig", "MooncakeDistributedStore", "MooncakeStoreService", "main", "parse_arguments", "sync_main"]

_BODY_MAX = 100 << 20
_RETRY_S = 1.0
_MAX_UNMOUNT_LOCAL_DISK_GRACE_PERIOD_SECONDS = 3600


class _Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status, error, **more):
        super().__init__(error)
        self.status, self.body = status, {"error": error, **more}


def _said(status, body):
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")


def _answered(handler):
    """Turns a handler's result, or its exception, into an answer: the client hears of every failure, and the service goes on."""

    @functools.wraps(handler)
    async def answer(self, request):
        try:
            made = await handler(self, request)
            return made if isinstance(made, web.Response) else _said(200, made)
        except _Refused as refused:
            return _said(refused.status, refused.body)
        except Exception as why:  # noqa: BLE001
            logging.error("%s: %s", handler.__name__, why)
            return _said(500, {"error": str(why)})

    return answer


def _timed_handler(operation_name, handler):
    async def timed(request):
        begin = time.perf_counter()
        try:
            return await handler(request)
        finally:
            logging.info("%s took %.2f ms", operation_name, (time.perf_counter() - begin) * 1e3)

    return timed


def _shm_name_to_path(name):
    """Of POSIX shared memory: "name" or "/name". None for any other name."""
    plain = name.removeprefix("/") if isinstance(name, str) else ""
    return f"/dev/shm/{plain}" if plain not in ("", ".", "..") and "/" not in plain else None


def _unblock_shutdown_signals():
    """The process that started this one may have blocked them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _install_shutdown_signal_handlers(loop, shutdown_event):
    for told in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(told, shutdown_event.set)


def _listed(data):
    ids = data.get("segment_ids", [])
    ids = [ids] if isinstance(ids, str) else ids
    if not ids:
        raise _Refused(400, "Missing segment_ids")
    return ids


class MooncakeStoreService:
    """One store of this process, and its HTTP calls. Made with the settings of a file, or of the environment; `cli_config` replaces single ones."""

    def __init__(self, config_path: str | None = None, cli_config: dict | None = None) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        self.store = None
        self.config = None
        self.current_mode = "prefill"
        self.mounted_segment_ids: list[str] = []
        self.last_mount_info: dict = {}
        self._state_lock = asyncio.Lock()
        try:
            self.config = MooncakeConfig.from_file(config_path) if config_path else MooncakeConfig.load_from_env()
        except Exception as why:
            logging.error("there is no configuration: %s", why)
            raise
        for name, value in (cli_config or {}).items():
            if hasattr(self.config, name):
                setattr(self.config, name, value)

    # ---- life

    async def start_store_service(self, max_wait_time: float = 60, shutdown_event=None) -> bool:
        """Connects to the directory, which may not be there yet. False after so many seconds, or where it shall end."""
        until, tried = time.perf_counter() + max_wait_time, 0
        stops = lambda: shutdown_event is not None and shutdown_event.is_set()  # noqa: E731
        if shutdown_event is not None:
            await asyncio.sleep(0)  # a signal that came before is heard first
        while not stops() and time.perf_counter() < until:
            tried += 1
            try:
                self.store = MooncakeDistributedStore()
                code = self.store.setup(self._settings())
                if shutdown_event is not None:
                    await asyncio.sleep(0)
                if stops():
                    await self.stop()
                    return False
                if code == 0:
                    logging.info("the store is there, as %s", self.config.local_hostname)
                    return True
                why = f"{code} {getattr(self.store, 'last_error', str)()}"
            except Exception as problem:  # noqa: BLE001
                why = str(problem)
            pause = max(min(_RETRY_S, until - time.perf_counter()), 0)
            logging.warning("no store at attempt %d: %s; the next one in %.1f s", tried, why, pause)
            await self._pause(pause, shutdown_event)
        logging.error("no store after %d attempts", tried)
        return False

    @staticmethod
    async def _pause(seconds, shutdown_event):
        if seconds > 0 and shutdown_event is not None:
            try:
                await asyncio.wait_for(shutdown_event.wait(), timeout=seconds)
            except asyncio.TimeoutError:
                pass
        elif seconds > 0:
            await asyncio.sleep(seconds)

    def _settings(self):
        c = self.config
        return {"local_hostname": c.local_hostname, "metadata_server": c.metadata_server, "global_segment_size": c.global_segment_size,
                "local_buffer_size": c.local_buffer_size, "protocol": c.protocol, "rdma_devices": c.device_name,
                "master_server_addr": c.master_server_address, "enable_ssd_offload": c.enable_ssd_offload, "ssd_offload_path": c.ssd_offload_path,
                "tenant_id": c.tenant_id, "enable_client_http_server": c.enable_client_http_server, "client_http_port": c.client_http_port}

    async def start_http_service(self, port: int = 8080) -> bool:
        calls = [("POST", "/api/" + name, getattr(self, "handle_" + name))
                 for name in ("reconfigure", "mount_shm", "unmount_shm", "mount", "unmount", "unmount_local_disk")]
        calls += [("PUT", "/api/put", self.handle_put), ("GET", "/api/get/{key}", self.handle_get), ("GET", "/api/exist/{key}", self.handle_exist),
                  ("DELETE", "/api/remove/{key}", self.handle_remove), ("DELETE", "/api/remove_all", self.handle_remove_all)]
        app = web.Application(client_max_size=_BODY_MAX)
        app.add_routes([web.route(method, path, _timed_handler(path.split("/")[2].upper(), handler)) for method, path, handler in calls])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port).start()
        logging.info("REST API started on port %d", port)
        return True

    async def stop(self) -> None:
        store, self.store = self.store, None
        if store is not None and (code := store.close()) != 0:
            logging.warning("close answered %s", code)

    # ---- memory

    @_answered
    async def handle_reconfigure(self, request):
        data = await request.json()
        mode = data.get("mode", "").lower()
        if mode not in ("decode", "prefill"):
            raise _Refused(400, "Invalid mode. Use 'decode' or 'prefill'")
        if mode == "decode":
            return await self._to_decode(data)
        async with self._state_lock:
            if self.mounted_segment_ids and (code := self.store.unmount_segment(self.mounted_segment_ids)) != 0:
                raise _Refused(500, f"Unmount failed, ret={code}")
            self._mounts_nothing()
        return {"status": "success", "mode": self.current_mode}

    def _mounts_nothing(self):
        self.current_mode = "prefill"
        self.mounted_segment_ids.clear()
        self.last_mount_info.clear()

    async def _to_decode(self, data):
        """The new segment first, and only then the old ones away: where there is no new one the old ones go on."""
        path, size = data.get("path"), data.get("size")
        if not path or size is None:
            raise _Refused(400, "Missing path or size for decode mode")
        about = {"path": path, "offset": data.get("offset", 0), "size": size, "protocol": data.get("protocol", self.config.protocol),
                 "location": data.get("location", "")}
        async with self._state_lock:
            before = list(self.mounted_segment_ids)
            made = self.store.mount_segment(path, size, about["offset"], about["protocol"], about["location"])
            if made["ret"] != 0 and not before:
                self._mounts_nothing()
            if made["ret"] != 0:
                outcome = "keeping previous decode segments" if before else "rolled back to prefill"
                raise _Refused(500, f"Mount failed, ret={made['ret']}; {outcome}", mode=self.current_mode)
            kept = [one for one in before if self.store.unmount_segment([one]) != 0]  # asked again the next time
            if kept:
                logging.warning("these segments could not be taken back: %s", kept)
            self.mounted_segment_ids = list(made["segment_ids"]) + kept
            self.current_mode, self.last_mount_info = "decode", about
            return {"status": "success", "mode": self.current_mode, "segment_ids": self.mounted_segment_ids}

    @_answered
    async def handle_mount_shm(self, request):
        data = await request.json()
        path, size = _shm_name_to_path(data.get("name")), data.get("size")
        if not path or size is None:
            raise _Refused(400, "Missing or invalid name or size")
        made = self.store.mount_segment(path, size, data.get("offset", 0), data.get("protocol", self.config.protocol), data.get("location", ""))
        if made["ret"] != 0:
            raise _Refused(500, f"Mount failed, ret={made['ret']}")
        return {"status": "success", "segment_ids": list(made["segment_ids"])}

    @_answered
    async def handle_unmount_shm(self, request):
        data = await request.json()
        ids, grace = _listed(data), data.get("grace_period_seconds", 0)
        async with self._state_lock:
            failed = [one for one in ids if self.store.unmount_segment([one], grace) != 0]
            self.mounted_segment_ids = [one for one in self.mounted_segment_ids if one not in ids or one in failed]
            if not self.mounted_segment_ids:
                self.current_mode = "prefill"
        if failed:
            raise _Refused(500, "Unmount failed for one or more segments", failed_segment_ids=failed)
        return {"status": "success"}

    @_answered
    async def handle_mount(self, request):
        data = await request.json()
        size = data.get("size")
        if type(size) is not int or size <= 0:
            raise _Refused(400, "Invalid size, must be a positive integer")
        made = self.store.allocate_and_mount_segment(size, data.get("protocol", self.config.protocol), data.get("location", ""))
        if made["ret"] != 0:
            raise _Refused(500, f"Allocate and mount failed, ret={made['ret']}")
        return {"status": "success", "segment_ids": list(made["segment_ids"]), "allocated_size": made["allocated_size"]}

    @_answered
    async def handle_unmount(self, request):
        data = await request.json()
        code = self.store.unmount_and_free_segment(_listed(data), data.get("grace_period_seconds", 0))
        if code != 0:
            raise _Refused(500, f"Unmount and free failed, ret={code}")
        return {"status": "success"}

    @_answered
    async def handle_unmount_local_disk(self, request):
        try:
            data = await request.json()
        except Exception:  # noqa: BLE001
            raise _Refused(400, "Malformed JSON body") from None
        grace = data.get("grace_period_seconds", 0) if isinstance(data, dict) else None
        most = _MAX_UNMOUNT_LOCAL_DISK_GRACE_PERIOD_SECONDS
        if not isinstance(data, dict):
            raise _Refused(400, "Request body must be a JSON object")
        if type(grace) is not int or not 0 <= grace <= most:
            raise _Refused(400, f"Invalid grace_period_seconds, must be a non-negative integer no greater than {most}")
        code = await asyncio.to_thread(self.store.unmount_local_disk_segment, grace)  # which waits for so long
        if code != 0:
            raise _Refused(500, f"Unmount local disk failed, ret={code}")
        return {"status": "success"}

    # ---- objects

    @_answered
    async def handle_put(self, request):
        data = await request.json()
        key, value = data.get("key"), data.get("value")
        if not key or value is None:
            raise _Refused(400, "Missing key or value")
        if self.store.put(key, value.encode()) != 0:
            raise _Refused(500, "PUT operation failed")
        return {"status": "success"}

    def _exists(self, key):
        code = self.store.is_exist(key)
        if code < 0:
            raise _Refused(500, "Exist check failed")
        return code > 0

    @_answered
    async def handle_get(self, request):
        key = request.match_info["key"]
        value = self.store.get(key) if self._exists(key) else b""
        if value is None:
            raise _Refused(500, "GET operation failed")
        if value == b"" and not self._exists(key):
            raise _Refused(404, "Key not found")
        return web.Response(status=200, body=value, content_type="application/octet-stream")

    @_answered
    async def handle_exist(self, request):
        return {"exists": self._exists(request.match_info["key"])}

    @_answered
    async def handle_remove(self, request):
        if self.store.remove(request.match_info["key"]) != 0:
            raise _Refused(500, "Remove operation failed")
        return {"status": "success"}

    @_answered
    async def handle_remove_all(self, request):
        removed = self.store.remove_all()
        if removed < 0:
            raise _Refused(500, "RemoveAll operation failed")
        return {"status": f"success removed {removed} keys"}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description=__doc__.split("\n")[0])
    parser.add_argument("--config", help="JSON file with the settings; by default the environment has them")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE", help="a setting in place of the configuration's")
    parser.add_argument("--port", type=int, default=8080, help="of the HTTP calls (default 8080)")
    parser.add_argument("--max-wait-time", type=float, default=60, help="seconds to wait for the directory (default 60)")
    return parser.parse_args()


async def main():
    args = parse_arguments()
    for wrong in (one for one in args.define if "=" not in one):
        logging.warning("no NAME=VALUE: %s", wrong)
    service = MooncakeStoreService(args.config, dict(one.split("=", 1) for one in args.define if "=" in one))
    shutdown_event = asyncio.Event()
    _install_shutdown_signal_handlers(asyncio.get_running_loop(), shutdown_event)
    _unblock_shutdown_signals()
    try:
        started = await service.start_store_service(max_wait_time=args.max_wait_time, shutdown_event=shutdown_event)
        if not started and not shutdown_event.is_set():
            raise RuntimeError("the store could not be set up")
        _unblock_shutdown_signals()
        await asyncio.sleep(0)
        if shutdown_event.is_set():
            return
        if not await service.start_http_service(args.port):
            raise RuntimeError("the HTTP calls could not be served")
        await shutdown_event.wait()
    finally:
        await service.stop()


def sync_main():
    return asyncio.run(main())


if __name__ == "__main__":
    sync_main()
