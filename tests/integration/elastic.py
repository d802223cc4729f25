#!/usr/bin/env python3
"""Processes with both kinds of worker, of which each plays one role at a time (`--elastic-roles`): they change with the load,
with deaths and with stops, while clients ask all the time.

The devices are modelled: an answer depends on every token before it and on the KV that its worker was given, so lost, torn
or mixed-up state shows as other tokens."""
import concurrent.futures
import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, free_port, main, modelled, wait_until  # noqa: E402
from rolling import LOCAL, Crowd, answer_to, prompt_of, ready, told_to_stop  # noqa: E402


class Elastic:
    """Conductors, a gateway, and processes that prefill and decode, each by itself."""

    def __init__(self, cluster, workers, conductors=1, hold="500ms", instances=2):
        self.cluster, self.device, self.instances = cluster, modelled(cluster.folder.name), instances
        control, self.port = [free_port() for _ in range(conductors)], free_port()
        self.common = (*self.device, "--join", ",".join(f"127.0.0.1:{p}" for p in control))
        for n, port in enumerate(control):
            cluster.start(f"conductor-{n}", "--role", "conductor", *self.common, "--name", f"conductor-{n}", "--listen",
                          f"127.0.0.1:{port}", "--metrics-listen", "127.0.0.1:0", "--elastic-roles", "--elastic-hold", hold,
                          "--journal", os.path.join(cluster.folder.name, f"journal-{n}"))
        cluster.start("gateway", "--role", "gateway", *self.common, *LOCAL, "--name", "gateway", "--http", f"127.0.0.1:{self.port}")
        for n in range(workers):
            self.start(f"worker-{n}")
        cluster.wait_healthy("127.0.0.1", self.port)
        wait_until("all are members", lambda: len(self.roles()) == workers)
        wait_until("every node plays one role", lambda: all(len(r) == 1 for r in self.roles().values()))

    def start(self, name):
        self.cluster.start(name, "--role", "prefill,decode,cache", *self.common, *LOCAL, "--name", name,
                           "--prefill-instances", str(self.instances))

    def roles(self):
        """What each node plays or leaves, by its name; nothing while no conductor answers."""
        out = {}
        with contextlib.suppress(OSError, AssertionError):
            for i in self.cluster.client.cluster()["instances"]:
                out.setdefault(i["node"], set())
                if i["state"] != "resting":
                    out[i["node"]].add(i["role"] + (" ends" if i["state"] == "draining" else ""))
        return out

    def count(self, role):
        return sum(r == {role} for r in self.roles().values())

    def leaving(self, role):
        """The node that is in the middle of a change away from the role."""
        return next((n for n, r in self.roles().items() if r == {role + " ends"}), None)

    def leader(self):
        return self.cluster.client.cluster()["leader"]["node"]

    def steps(self, conductor="conductor-0"):
        """What it had nodes do about roles, in order: (node, "leaves prefill")."""
        log = self.cluster.processes[conductor].output()
        return re.findall(r'role of=(\S+) .*?"((?:plays|leaves|rests) \w+)"', log)

    def restart(self, name):
        process = self.cluster.processes[name]
        process.log.close()
        process.start()
        ready(process)

    def changes(self):
        return self.cluster.client.cluster()["counters"]["role_changes"]


class Load:
    """Clients that ask for the same kind of answer, each with prompts of its own, until they are told to end."""

    def __init__(self, port, clients, prompt):
        self.over, self.answers, self.problems, self.lock = threading.Event(), [], [], threading.Lock()
        self.port, self.prompt = port, prompt
        self.threads = [threading.Thread(target=self.ask, args=(n,)) for n in range(clients)]

    def ask(self, client):
        for turn in itertools.count(client * 1000):
            if self.over.is_set():
                return
            began = time.monotonic()
            try:
                tokens = answer_to(self.port, self.prompt(turn))
            except Exception as e:  # whatever it is, a client lost a request
                self.problems.append(f"{type(e).__name__}: {e}")
                continue
            with self.lock:
                self.answers.append((began, time.monotonic(), turn, tokens))

    def check_across(self, moment, most=24):
        """Answers that were on their way at a moment are those that the same prompts get when nothing happens."""
        across = [a for a in self.answers if a[0] < moment < a[1]][-most:]
        with concurrent.futures.ThreadPoolExecutor(most) as pool:
            again = list(pool.map(lambda a: answer_to(self.port, self.prompt(a[2])), across))
        wrong = [a[2] for a, tokens in zip(across, again) if tokens != a[3]]
        assert across and not wrong, (len(across), wrong)
        return len(across)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.problems, (len(self.problems), self.problems[:3])


def long_prompt(number):
    return [(number * 7 + i * (3 + number % 50)) % 256 for i in range(900)] + prompt_of(0, 2)


def long_answer(number):
    return [(number * 13 + i) % 256 for i in range(20)] + prompt_of(0, 300)[-1:]


def replays(cluster, conductor):
    """Its journal says the same of every decision. It is stopped first, if it runs."""
    cluster.processes[conductor].stop()
    journal = os.path.join(cluster.folder.name, f"journal-{conductor[-1]}")
    done = subprocess.run([BINARY, "replay", journal], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "all the same" in done.stdout, done


def roles_follow_the_load_and_no_answer_changes():
    with Cluster() as cluster:
        nodes = Elastic(cluster, 4)
        assert (nodes.count("prefill"), nodes.count("decode")) == (2, 2), nodes.roles()
        with Crowd([nodes.port], 2) as crowd:
            before = nodes.changes()
            with Load(nodes.port, 60, long_answer):
                wait_until("three decode", lambda: nodes.count("decode") == 3, 60)
            with Load(nodes.port, 12, long_prompt):
                wait_until("three prefill", lambda: nodes.count("prefill") == 3, 60)
            changes = nodes.changes() - before
            # A load leads each way until one node is left: none of a role is given up that nobody else plays.
            assert changes <= 2 * (4 - 2), (changes, nodes.steps())
            crowd.more(4)
        whole = crowd.end()
        print(f"     {changes} changes of roles, {whole} answers as before beside the load")
        assert nodes.roles().keys() == {f"worker-{n}" for n in range(4)}
        assert {"leaves prefill", "leaves decode"} <= {step for _, step in nodes.steps()}, nodes.steps()
        cluster.wait_idle()
        replays(cluster, "conductor-0")


def middling_answer(number):
    return long_answer(number)[:-1] + prompt_of(0, 120)[-1:]


LOADS = {"prefill": (40, middling_answer), "decode": (12, long_prompt)}  # by the role that is given up under them


def a_worker_dies_in_the_middle_of_its_change():
    with Cluster() as cluster:
        nodes = Elastic(cluster, 4)
        with Crowd([nodes.port], 4) as crowd:
            for gives, (clients, prompt) in LOADS.items():
                takes = "decode" if gives == "prefill" else "prefill"
                with Load(nodes.port, clients, prompt) as load:
                    victim = wait_until(f"one leaves {gives}", lambda: nodes.leaving(gives), 60)  # noqa: B023
                    killed = time.monotonic()
                    cluster.processes[victim].kill9()
                    wait_until("it is missed", lambda: victim not in nodes.roles())  # noqa: B023
                    steps = [step for node, step in nodes.steps() if node == victim]
                    assert steps[-1] == f"leaves {gives}", steps
                    nodes.restart(victim)
                    wait_until(f"three {takes}", lambda: nodes.count(takes) == 3, 60)  # noqa: B023
                print(f"     {victim} killed as it left {gives}: {load.check_across(killed)} answers on their way then, all as ever")
            crowd.more(4)
        crowd.end()
        cluster.wait_idle()
        replays(cluster, "conductor-0")


def a_leader_dies_in_the_middle_of_a_change():
    with Cluster() as cluster:
        nodes = Elastic(cluster, 4, conductors=2)
        wait_until("the other stands by", lambda: len(cluster.client.cluster()["leader"]["standbys"]) == 1)
        with Crowd([nodes.port], 4) as crowd:
            clients, prompt = LOADS["decode"]
            with Load(nodes.port, clients, prompt) as load:
                wait_until("one leaves decode", lambda: nodes.leaving("decode"), 60)
                leader, killed = nodes.leader(), time.monotonic()
                cluster.processes[leader].kill9()
                wait_until("another leads", lambda: nodes.roles() and nodes.leader() not in ("", leader))
                heir = nodes.leader()
                wait_until("three prefill", lambda: nodes.count("prefill") == 3 and nodes.count("decode") == 1, 60)
            print(f"     {leader} killed in a change: {load.check_across(killed)} answers on their way then, all as ever")
            crowd.more(4)
        crowd.end()
        cluster.wait_idle()
        for conductor in (heir, leader):
            replays(cluster, conductor)


def a_load_that_turns_sooner_than_is_waited_for_moves_nobody_to_and_fro():
    hold, turns, nodes_ = 1.2, 12, 4
    with Cluster() as cluster:
        nodes = Elastic(cluster, nodes_, hold=f"{hold:g}s", instances=1)
        with Crowd([nodes.port], 2) as crowd, concurrent.futures.ThreadPoolExecutor(200) as clients:
            before, began, asked = nodes.changes(), time.monotonic(), []
            for turn in range(turns):
                # Over a whole turn and back a burst keeps two nodes at work for most of the time.
                count, prompt = ((4, long_prompt), (14, middling_answer))[turn % 2]
                asked += [clients.submit(answer_to, nodes.port, prompt(turn * 100 + n)) for n in range(count)]
                time.sleep(max(0, began + (turn + 1) * hold / 2 - time.monotonic()))
            assert all(a.result() for a in asked)
            took, changes = time.monotonic() - began, nodes.changes() - before
            # The other role must have been the fuller one for the whole hold before the first node goes its way, and
            # more may follow it at once until one node is left.
            directions = [step for _, step in nodes.steps() if step.startswith("leaves")]
            turned = sum(a != b for a, b in zip(directions, directions[1:]))
            assert turned <= took / hold and changes <= (turned + 1) * (nodes_ - 2), (took, nodes.steps())
            with Load(nodes.port, *LOADS["prefill"]):
                wait_until("a load that stays is followed", lambda: nodes.count("decode") == 3, 60)
        print(f"     {turns} turns of the load in {took:.1f} s, {changes} changes of roles, {len(asked) + crowd.end()} answers")
        cluster.wait_idle()


def two_nodes_cover_for_each_other():
    with Cluster() as cluster:
        nodes = Elastic(cluster, 2)
        with Crowd([nodes.port], 8) as crowd:
            crowd.more(8)
            for victim in ("decode", "prefill"):
                name = next(n for n, r in nodes.roles().items() if r == {victim})
                other = next(n for n in nodes.roles() if n != name)
                cluster.processes[name].kill9()
                wait_until("the other plays both", lambda: nodes.roles().get(other) == {"prefill", "decode"})
                crowd.more(8)
                nodes.restart(name)
                wait_until("each plays one", lambda: sorted(map(sorted, nodes.roles().values())) == [["decode"], ["prefill"]], 60)
                crowd.more(8)
            # The same with a stop, which is announced: no request has to be placed again.
            for name in ("worker-0", "worker-1"):
                told_to_stop(cluster.processes[name])
                crowd.more(8)
                nodes.restart(name)
                wait_until("each plays one", lambda: sorted(map(sorted, nodes.roles().values())) == [["decode"], ["prefill"]], 60)
        print(f"     {crowd.end()} answers through two deaths and two stops")
        cluster.wait_idle()


def a_new_leader_keeps_the_roles():
    with Cluster() as cluster:
        nodes = Elastic(cluster, 3, conductors=2, hold="20s")
        wait_until("the other stands by", lambda: len(cluster.client.cluster()["leader"]["standbys"]) == 1)
        with Crowd([nodes.port], 8) as crowd:
            crowd.more(16)
            before = nodes.roles()
            leader = nodes.leader()
            cluster.processes[leader].kill9()
            wait_until("another leads", lambda: nodes.roles() and nodes.leader() not in ("", leader))
            crowd.more(8)
            assert nodes.roles() == before, (before, nodes.roles())
        print(f"     {crowd.end()} answers, the leader killed meanwhile")


if __name__ == "__main__":
    main([roles_follow_the_load_and_no_answer_changes, two_nodes_cover_for_each_other, a_new_leader_keeps_the_roles,
          a_worker_dies_in_the_middle_of_its_change, a_leader_dies_in_the_middle_of_a_change,
          a_load_that_turns_sooner_than_is_waited_for_moves_nobody_to_and_fro], at_once=3)
