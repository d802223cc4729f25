#!/usr/bin/env python3
"""That a scenario which fails is of use: a seed gives the same again, and it shrinks to what it fails by."""
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import run  # noqa: E402
import scenario as scenarios  # noqa: E402
from cluster import main  # noqa: E402


def a_seed_gives_the_same_scenario():
    for seed in range(1, 200):
        assert scenarios.make(seed) == scenarios.make(seed), seed


def a_scenario_that_fails_shrinks_to_what_it_fails_by():
    tried = 0
    for seed in range(1, 400):
        drawn = scenarios.make(seed)
        kills = lambda s: [f for f in s["faults"] if f["kind"] == "kill"]
        if len(drawn["faults"]) < 4 or not kills(drawn):
            continue
        tried += 1
        # Planted: any kill does it.
        planted = lambda s: {"violations": [("leak", "planted")] if kills(s) else []}
        small, result = run.shrink(drawn, planted)
        assert result["violations"] and small["faults"] == kills(small) and len(small["faults"]) == 1, small
        assert small["clients"] == 1 and not small["leaving"] and not small["hostile"], small
        assert not any("ssd" in n for n in small["nodes"]), small
        assert not list(x for x in scenarios.simpler(small) if planted(x)["violations"]), small
        whole = run.shrink(drawn, lambda s: {"violations": []})[0]
        assert whole == drawn, "what passes is left as it is"
    assert tried >= 20, tried


TESTS = [a_seed_gives_the_same_scenario, a_scenario_that_fails_shrinks_to_what_it_fails_by]

if __name__ == "__main__":
    main(TESTS)
