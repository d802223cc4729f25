#!/usr/bin/env python3
"""examples/quickstart.sh --once, as a newcomer runs it: it builds, serves, chats twice, and leaves nothing behind."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, free_port, main  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def the_second_turn_of_the_quickstart_comes_out_of_the_cache():
    at = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "MOONCAF_HTTP": at, "MOONCAF_STATE": state, "XDG_CONFIG_HOME": state}
        run = subprocess.run(["examples/quickstart.sh", "--once"], cwd=ROOT, env=env, capture_output=True, text=True,
                             timeout=500 * PATIENCE)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
        turns = re.findall(r"^ +(\d) +\S+/prefill-\d +\S+/decode-\d +(\d+) +(\d+) +(\d+) ", run.stdout, re.M)
        assert [t[0] for t in turns] == ["1", "2"], run.stdout
        prompt, cached = int(turns[1][1]), int(turns[1][2])
        assert int(turns[0][2]) == 0 and 0 < cached < prompt, turns
        left = subprocess.run(["curl", "-s", "-m", "2", f"http://{at}/health"], capture_output=True)
        assert left.returncode != 0, "the server still runs"
        log = pathlib.Path(state, "quickstart.log").read_text()
        assert "stopping signal=15" in log, log[-2000:]


TESTS = [the_second_turn_of_the_quickstart_comes_out_of_the_cache]

if __name__ == "__main__":
    main(TESTS)
