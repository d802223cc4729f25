"""What a store may answer, and what it cannot have: a register of one writer for each key.

A write or a removal whose outcome its client never learned may have happened at any time since, or never.
"""
import json


def read_history(path):
    """Operations of one client's life, in the order in which they began. The last may be without an end."""
    operations = {}
    for line in open(path):
        if not line.endswith("\n"):
            break  # it was killed in the middle of the line
        fields = json.loads(line)
        if "closed" not in fields:
            operations.setdefault(fields["number"], {}).update(fields)
    return [op for op in operations.values() if op["what"] != "read" or "end" in op]


def notices_what_is_wrong():
    """Small histories with their judgement: a judge that never objects would pass everything."""
    def write(start, version, outcome="done", places=(("s0",),)):
        return {"start": start, "end": start + 1, "what": "write", "key": "k", "version": version, "outcome": outcome, "places": places}

    def read(start, saw):
        return {"start": start, "end": start + 1, "what": "read", "key": "k", "saw": saw}

    gone = {"start": 30, "end": 31, "what": "remove", "key": "k", "outcome": "done"}
    killed, flipped, rotten = [(20, "kill holder", "s0")], [(20, "flip", "s0")], [(20, "rot", "s0")]
    task = {"start": 12, "end": 13, "what": "task", "key": "k", "code": 0}
    for history, faults, evicts, wrong in (
            ([write(10, 1), read(40, 1)], [], False, False), ([write(10, 1), read(40, "wrong bytes")], [], True, True),
            ([write(10, 1), read(40, "nothing")], [], False, True), ([write(10, 1), read(40, "nothing")], [], True, False),
            ([write(10, 1), read(40, "nothing")], killed, False, False), ([write(10, 1), read(40, "nothing")], rotten, False, False),
            ([write(10, 1), read(40, "wrong bytes")], rotten, False, True),
            ([write(10, 1, places=(("s0",), ("s1",))), read(40, "nothing")], killed, False, True),
            ([write(10, 1, places=(("s0", "s1"),)), read(40, "nothing")], killed, False, False),  # a stripe of it
            ([write(10, 1, places=(("s1",),)), read(40, "nothing")], killed, False, True),
            ([write(10, 1, places=(("s1",),)), task, read(40, "nothing")], killed, False, False),  # moved there, perhaps
            ([write(10, 1), task, read(40, "nothing")], [], False, True), ([write(10, 1), read(40, "wrong bytes")], flipped, True, True),
            ([write(10, 1), {**read(40, "wrong bytes"), "part": True}], flipped, False, False),
            ([write(10, 1), write(20, 2), read(40, 1)], [], False, True), ([write(10, 1), write(40, 2), read(40, 1)], [], False, False),
            ([write(10, 1), write(20, 2, "unknown", None), read(40, 1)], [], False, False),
            ([write(10, 1), write(20, 2, "unknown", None), read(40, "nothing")], [], False, True),
            ([write(10, 1), write(20, 2, "unknown", None), read(40, "nothing")], killed, False, False),
            ([write(10, 1), write(20, 2, "refused"), read(40, 2)], [], False, True),
            ([write(10, 1), gone, read(40, 1)], [], False, True), ([write(10, 1), gone, read(40, "something")], [], False, True),
            ([read(40, 7)], [], False, True)):
        assert bool(judge([dict(op) for op in history], faults, evicts)) == wrong, (history, faults, evicts)


def judge(operations, faults, evicts):
    """@param faults  (time, what, whom). @param evicts  objects that are not pinned may make way for others.
    @returns what is wrong, a sentence each."""
    kills = {}
    for when, what, whom in faults:
        if what in ("kill holder", "rot"):  # either takes what is there and nowhere else
            kills.setdefault(whom, []).append(when)
    flips = any(what == "flip" for _, what, _ in faults)
    problems = []
    for key in {op["key"] for op in operations}:
        ours = [op for op in operations if op["key"] == key]
        changes = sorted((op for op in ours if op["what"] in ("write", "remove")), key=lambda op: op["start"])
        moved = any(op["what"] == "task" and op.get("code", 0) == 0 for op in ours)
        for op in changes:
            op.setdefault("outcome", "unknown")
            op.setdefault("end", float("inf"))
        changes = [op for op in changes if op["outcome"] != "refused"]
        for read in (op for op in ours if op["what"] == "read"):
            if flips and read.get("part") and read.get("saw") not in ("nothing", None):
                continue  # the whole was looked at before the first part; what flips between that and a later one is not seen
            problem = wrong_with(read, changes, lambda w: can_be_gone(w, kills, evicts, moved))
            if problem:
                problems.append(f"{key}: {problem}: {read}")
    return problems


def can_be_gone(write, kills, evicts, moved):
    """Whether an object may have been lost: it made way, or of every replica a holder was killed after it was written. Where it is,
    if it is, is not known of what had no answer, or was moved since: then any holder's end may have taken it."""
    if evicts and not write.get("pinned"):
        return True
    killed = {whom for whom, times in kills.items() if max(times) >= write["start"]}
    places = write.get("places")
    return all(killed.intersection(replica) for replica in places) if places and not moved else bool(killed)


def wrong_with(read, changes, may_be_gone):
    seen = read.get("saw")
    if seen is None:
        return None
    if seen == "wrong bytes":
        return "wrong bytes"
    # The last change that is certain to have happened before this read began, and what may have come after it.
    certain = [i for i, op in enumerate(changes) if op["outcome"] == "done" and op["end"] < read["start"]]
    since = certain[-1] if certain else None
    begun = [op for op in changes if op["start"] < read["end"]]
    unknown = [op for op in begun if op["outcome"] == "unknown"]
    possible = ([changes[since]] if since is not None else []) + [
        op for i, op in enumerate(changes) if op in begun and (since is None or i > since)] + unknown
    if seen == "something":
        return None if any(op["what"] == "write" for op in possible) else "an object that cannot be there"
    if seen == "nothing":
        if since is None or any(op["what"] == "remove" for op in possible) or may_be_gone(changes[since]):
            return None
        if any(may_be_gone(op) for op in possible):  # it took the place of the other, and went
            return None
        return f"lost, though {changes[since]} was done"
    if any(op["what"] == "write" and op["version"] == seen for op in possible):
        return None
    return "an older value than the last that was written"
