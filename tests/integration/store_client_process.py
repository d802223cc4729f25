"""A client of the store campaign: random operations, each noted before it begins and when it has ended.

Keys belong to one client each, which alone writes and removes them; everybody reads all. A value names its key, its
version and its size, and the rest follows from these, so that whoever reads it knows whether each byte is right.
"""
import ctypes
import json
import os
import random
import signal
import time

KEYS = 10  # of each client
HEAD = 64
NO_EFFECT = (-200, -400, -600, -704, -705, -706)  # what was asked for was not done, and will not be


def value_of(key, version, size):
    head = f"{key}|{version}|{size}|".encode().ljust(HEAD, b".")
    return head + random.Random(f"{key}|{version}").randbytes(size - HEAD)


def version_of(key, head):
    """(version, size) that a value's first bytes tell, or None for what no client wrote under this key."""
    words = head.split(b"|")
    if len(words) != 4 or words[0] != key.encode() or words[3].strip(b"."):
        return None
    return int(words[1]), int(words[2])


class Client:
    def __init__(self, job):
        from mooncaf.store import MooncakeDistributedStore, ReplicateConfig

        self.job, self.dice = job, random.Random(job["seed"])
        self.Config = ReplicateConfig
        self.file = os.open(job["history"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.noted = 0
        self.memory = ctypes.create_string_buffer(6 << 20)
        self.at = ctypes.addressof(self.memory)
        self.fresh = {f"{job['number']}/{n}" for n in range(KEYS)} - self.touched_before()
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = job["secret"]
        if job["user"]:  # another one's memory cannot be mapped
            os.setgroups([])
            os.setresgid(*[job["user"]] * 3)
            os.setresuid(*[job["user"]] * 3)
        while True:
            self.store = MooncakeDistributedStore()
            if self.store.setup(f"client{job['number']}", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", job["address"]) == 0:
                assert self.store.register_buffer(self.at, len(self.memory)) == 0
                return
            time.sleep(0.02)

    def touched_before(self):
        """Keys that an earlier life of this client has written: what there is under them is not certain."""
        return {json.loads(line)["key"] for path in self.job["before"] if os.path.exists(path) for line in open(path)
                if line.endswith("\n") and '"start"' in line}

    def begin(self, what, key, **more):
        self.noted += 1
        self.note(start=time.monotonic_ns(), what=what, key=key, **more)
        return self.noted

    def end(self, number, **more):
        self.note(end=time.monotonic_ns(), number=number, **more)

    def note(self, **fields):
        fields.setdefault("number", self.noted)
        os.write(self.file, json.dumps(fields).encode() + b"\n")

    # ---- what it does

    def own_key(self):
        return f"{self.job['number']}/{self.dice.randrange(KEYS)}"

    def any_key(self):
        return f"{self.dice.randrange(self.job['clients'])}/{self.dice.randrange(KEYS)}"

    def size(self):
        if self.dice.random() < 0.02:
            return self.dice.randrange(1 << 20, 6 << 20)  # in a store of little memory wider than a segment
        return self.dice.choice((HEAD + 1, 5000, 70_000, self.dice.randrange(HEAD, 700_000 if self.job["full"] else 300_000)))

    def step(self):
        do = self.dice.choices((self.write, self.write_batch, self.write_in_layers, self.remove, self.read, self.read_batch, self.read_part,
                                self.exists, self.task), (30, 5, 5, 10, 25, 5, 10, 10, 4))[0]
        do()

    def policy(self, key):
        config = self.ties([key])
        config.replica_num = self.dice.choice((1, 2))
        config.with_hard_pin = key.endswith("/0")  # nothing may take it but its owner
        return config

    def ties(self, keys):
        """Some belong to a group, some to a parent, of whatever client and shard, there or not."""
        config = self.Config()
        if self.dice.random() < 0.2:
            config.group_ids = [f"group {self.dice.randrange(4)}"] * len(keys)
        if self.dice.random() < 0.2:
            config.parents = [self.any_key() for _ in keys]
        return config

    def outcome(self, code):
        return "done" if code == 0 else "refused" if code in NO_EFFECT else "unknown"

    def wrote(self, number, key, code):
        places = None
        if code == 0:
            # By holder: while one is away so is what its SSD holds.
            places = [[name.removesuffix("/ssd") for name in r.segments] for r in self.store.get_replica_desc(key)] or None
        self.end(number, outcome=self.outcome(code), code=code, places=places)

    def write(self):
        key, version = self.own_key(), time.monotonic_ns()
        size = 20_000 if key.endswith("/0") else self.size()
        value, config = value_of(key, version, size), self.policy(key)
        number = self.begin("write", key, version=version, pinned=config.with_hard_pin)
        # To put what may be there already says nothing about what is there afterwards.
        if key in self.fresh:
            self.fresh.discard(key)
            form = self.dice.randrange(3)
            if form == 0:
                code = self.store.put(key, value, config)
            elif form == 1:
                cut = self.dice.randrange(1, size)
                code = self.store.put_parts(key, value[:cut], value[cut:], config=config)
            else:
                self.memory[:size] = value
                code = self.store.put_from(key, self.at, size, config)
        else:
            code = self.store.upsert(key, value, config)
        self.wrote(number, key, code)

    def write_batch(self):
        keys = list({self.own_key() for _ in range(3)} - {f"{self.job['number']}/0"})
        if not keys:
            return
        self.fresh.difference_update(keys)
        size, version = min(self.size(), 300_000), time.monotonic_ns()
        for i, key in enumerate(keys):
            self.memory[i * size:(i + 1) * size] = value_of(key, version, size)
        config = self.ties(keys)
        config.replica_num = self.dice.choice((1, 2))
        numbers = [self.begin("write", key, version=version, pinned=False) for key in keys]
        codes = self.store.batch_upsert_from(keys, [self.at + i * size for i in range(len(keys))], [size] * len(keys), config)
        for number, key, code in zip(numbers, keys, codes):
            self.wrote(number, key, code)

    def write_in_layers(self):
        key, version, size = self.own_key(), time.monotonic_ns(), self.size()
        if key not in self.fresh or key.endswith("/0"):
            return
        self.fresh.discard(key)
        self.memory[:size] = value_of(key, version, size)
        number = self.begin("write", key, version=version, pinned=False)
        code, cut = self.store.batch_put_session_start([key], [size])[0], size // 3
        if code == 0:
            done = [self.store.batch_put_from_multi_buffer_ranges([key], [[self.at + a]], [[b - a]], [[a]])[0]
                    for a, b in ((cut, size), (0, cut))]
            code = self.store.batch_put_session_end([key])[0] if min(done) > 0 else -900
        self.wrote(number, key, code)

    def remove(self):
        key = self.own_key()
        number = self.begin("remove", key)
        code = self.store.remove(key, self.dice.random() < 0.8)
        self.end(number, outcome=self.outcome(code), code=code)

    def saw(self, number, key, size):
        """Looks at every byte of what was read."""
        if size < 0:
            return self.end(number, saw="nothing" if size == -704 else None, code=size)
        got = ctypes.string_at(self.at, size)
        told = version_of(key, got[:HEAD])
        right = told is not None and told[1] == size and got == value_of(key, *told)
        self.end(number, saw=told[0] if right else "wrong bytes")

    def read(self):
        key = self.any_key()
        number = self.begin("read", key)
        self.saw(number, key, self.store.get_into(key, self.at, len(self.memory)))

    def read_batch(self):
        keys = list({self.any_key() for _ in range(3)})
        numbers = [self.begin("read", key) for key in keys]
        for number, key, got in zip(numbers, keys, self.store.get_batch(keys)):
            if not got:  # whyever
                self.end(number, saw=None)
                continue
            self.memory[:len(got)] = got
            self.saw(number, key, len(got))

    def read_part(self):
        key = self.any_key()
        number, begin = self.begin("read", key, part=True), self.dice.randrange(HEAD, 2 * HEAD)
        codes = self.store.get_into_ranges([self.at], [[key]], [[[0, HEAD]]], [[[0, begin]]], [[[HEAD, 3000]]])[0][0]
        told = version_of(key, ctypes.string_at(self.at, HEAD)) if codes[0] == HEAD else None
        if codes[0] != HEAD:
            self.end(number, saw="nothing" if codes[0] == -704 else None, code=codes[0])
        elif told is None:
            self.end(number, saw="wrong bytes")
        elif codes[1] != 3000:  # shorter than that, or gone by now
            self.end(number, saw=told[0])
        else:
            right = ctypes.string_at(self.at + HEAD, 3000) == value_of(key, *told)[begin:begin + 3000]
            self.end(number, saw=told[0] if right else "wrong bytes")

    def task(self):
        """Somebody is to copy an object, or to move it: nobody who reads it notices."""
        key, (source, target) = self.any_key(), self.dice.sample(self.job["segments"], 2)
        number = self.begin("task", key)
        if self.dice.random() < 0.5:
            _, code = self.store.create_copy_task(key, [target])
        else:
            _, code = self.store.create_move_task(key, source, target)
        self.end(number, code=code)

    def exists(self):
        key = self.any_key()
        number = self.begin("read", key)
        code = self.store.is_exist(key)
        self.end(number, saw="nothing" if code == 0 else "something" if code == 1 else None, code=code)


def work(job):
    """Until SIGTERM; then it closes its store and notes that."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    client = Client(job)
    while not stop:
        client.step()
    client.store.close()
    client.note(closed=True)
