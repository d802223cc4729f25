#!/usr/bin/env python3
"""The same calls to the Python package of Mooncake Store, over TCP, and to ours: every answer is the same, or stands in the
table of storage/python/README.md.

Names and signatures are compared with those that were recorded (tests/data/store/names.json, by store_names.py), and where the reference is
installed (examples/install_packages.sh --tests, or any folder that MOONCAF_REFERENCE_STORE names) these with its own. Calls that take
tensors are compared where torch is installed, too.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, Skipped, free_port, main, wait_until  # noqa: E402
from store_world import REFERENCE, ROOT, Store, package, package_path  # noqa: E402

CALLS = str(pathlib.Path(__file__).with_name("store_calls.py"))
TENSOR_CALLS = str(pathlib.Path(__file__).with_name("store_tensor_calls.py"))
OBJECT_CALLS = str(pathlib.Path(__file__).with_name("store_object_calls.py"))
NOT_THERE = {"mooncake.structured_object_store.infer_structure"}  # storage/python/README.md says why
NAMES = pathlib.Path(__file__).with_name("store_names.py")


def answers(address, path, calls=CALLS, **env):
    done = subprocess.run([sys.executable, calls, address], env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CALL ")]


def of_the_reference(calls=CALLS):
    port = free_port()
    master = subprocess.Popen([sys.executable, "-c", "import sys; from mooncake.cli import main; sys.argv[0] = 'mooncake_master'; sys.exit(main())",
                               f"--rpc_port={port}", f"--metrics_port={free_port()}"],
                              env={**os.environ, "PYTHONPATH": REFERENCE}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        import socket

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        wait_until("the reference's master listens", listens, 30)
        return answers(f"127.0.0.1:{port}", REFERENCE, calls)
    finally:
        master.kill()
        master.wait()


def table(name):
    """Rows of the README: what each of the two answers, by call."""
    text = (ROOT / "storage/python/README.md").read_text()
    rows = text.split(f"<!-- {name}: ")[1].split("<!-- end")[0].splitlines()[3:]
    cells = [re.split(r"(?<!\\) \| ", row.strip("| \n")) for row in rows if row.startswith("| ")]
    return {name: (json.loads(theirs.strip("`")), json.loads(ours.strip("`"))) for name, theirs, ours, why in cells if why}


def compare(calls, expected, at_least, also=""):
    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        ours = answers(world.at, os.pathsep.join(filter(None, (package_path(), also))), calls, MOONCAF_CLUSTER_SECRET_FILE=world.secret)
    theirs = of_the_reference(calls)
    assert [label for label, _ in theirs] == [label for label, _ in ours] and len(ours) > at_least
    found = {label: (a, b) for (label, a), (_, b) in zip(theirs, ours) if a != b}
    for label in sorted(found.keys() | expected.keys()):
        if found.get(label) != expected.get(label):
            print(f"{label}: found {json.dumps(found.get(label))}, the table has {json.dumps(expected.get(label))}", flush=True)
    assert found == expected


def test_every_answer_is_the_reference_s_or_in_the_table():
    if not REFERENCE:
        raise Skipped("the reference is not installed")
    compare(CALLS, table("differences"), 80)


def test_every_answer_about_tensors_too():
    if not REFERENCE or importlib.util.find_spec("torch") is None:
        raise Skipped("the reference or torch is not installed")
    compare(TENSOR_CALLS, table("differences with tensors"), 80)


def test_every_answer_about_structured_objects_too():
    if not REFERENCE or not (pathlib.Path(REFERENCE) / "numpy").exists():
        raise Skipped("the reference or numpy is not installed")
    compare(OBJECT_CALLS, table("differences with objects"), 95, REFERENCE)


def names_of(path):
    done = subprocess.run([sys.executable, str(NAMES)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fits(theirs, ours):
    """Whether a call that is right for them is right for us: positions, names, what may be left out, and what has to be named. We may take more."""
    if theirs is None or ours is None or any(own.startswith("*") for own, *_ in ours[:1]):  # several signatures, one that is not said, any
        return True
    for (name, left_out, *by_name), (own, own_left_out, *own_by_name) in zip(theirs, ours):
        starred = name.startswith("*") and own.startswith("*")
        if not starred and (name not in ("?", own) or left_out and not own_left_out or own_by_name and not by_name):
            return False
    return len(theirs) <= len(ours) and all(left_out for _, left_out, *_ in ours[len(theirs):])


def test_every_name_is_there_and_takes_what_the_reference_s_takes_or_is_in_the_table():
    recorded = json.loads((ROOT / "tests/data/store/names.json").read_text())
    # The reference's folder brings aiohttp and numpy along, which some modules need; its own package lies behind ours.
    ours = names_of(os.pathsep.join(filter(None, (package_path(), REFERENCE))))
    absent_here = {module for module, names in ours.items() if names is None}
    assert absent_here <= {"mooncake.structured_object_store", "mooncake.dataproto_catalog", "mooncake.mooncake_store_service"} and not (absent_here and REFERENCE)
    missing, other = [], []
    for module, names in recorded.items():
        if module in absent_here:
            continue
        for name, about in names.items():
            own = ours[module].get(name)
            if name not in ours[module]:
                missing.append(f"{module}.{name}")
            elif isinstance(about, dict):
                missing += [f"{module}.{name}.{m}" for m in about.keys() - own.keys()]
                other += [f"{name}.{m}: {about[m]}, here {own[m]}" for m in about.keys() & own.keys()
                          if isinstance(about[m], list) and not (isinstance(own[m], (list, type(None))) and fits(about[m], own[m]))]
            elif not fits(about if isinstance(about, list) else None, own if isinstance(own, list) else None):
                other.append(f"{name}: {about}, here {own}")
    assert not other and set(missing) == (set() if absent_here else NOT_THERE), (other, missing)
    if REFERENCE:
        theirs = names_of(REFERENCE)
        assert {module: names for module, names in theirs.items() if names is not None} == {module: recorded[module] for module in theirs if theirs[module] is not None}


def test_what_is_there_by_name_alone_says_so():
    import asyncio

    import mooncake.engine
    import mooncake.store
    from mooncaf import absent

    rows = (ROOT / "storage/python/README.md").read_text().split("<!-- names that do nothing")[1].split("<!-- end")[0].splitlines()
    told = {f"{row.split('|')[1].strip()}.{name}" for row in rows if row.startswith("| mooncake") for name in re.findall(r"`([\w.]+)`", row.split("|")[2])}
    assert told == {f"mooncake.{module}.{name}" for module, names in (("store", absent.OF_THE_STORE), ("engine", absent.OF_THE_ENGINE)) for name in names}

    def refused(call, how, *args):
        try:
            call(*args)
        except how as e:
            return str(e)
        raise AssertionError(f"{call} went well")

    tables = mooncake.store.EngramStore(0, mooncake.store.EngramStoreConfig(), None)
    assert tables.remove_from_store(True) == -1012 and "-1012" in refused(tables.lookup, RuntimeError, [[1]]) and "-1012" in refused(tables.populate, RuntimeError, [])
    assert tables.get_store_keys() == [] and mooncake.store.MooncakeDistributedStore().mount_segment("/tmp/file", 1 << 24) == {"ret": -1012, "segment_ids": []}
    for calls in (mooncake.engine.create_rpc_client(), mooncake.engine.CoroRPCInterface()):
        assert not calls.initialize() and not calls.start_server() and calls.send_data("127.0.0.1:1", b"x") == calls.send_tensor("127.0.0.1:1", None) == -303

    async def ask():
        return await mooncake.engine.create_rpc_server().send_data_async("127.0.0.1:1", b"x", asyncio.get_running_loop())

    assert asyncio.run(ask()) == -303
    assert mooncake.engine.SharedSegment.supported() is False and "-303" in refused(mooncake.engine.SharedSegment.create, RuntimeError, "name", 1 << 20, 1, 0)
    for made_by_calls in (mooncake.engine.ReceivedData, mooncake.engine.InnerTransferEngine, mooncake.store.BufferLeaseView):
        refused(made_by_calls, TypeError)


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
