"""OpenAI's own Python client, and what the scripts about the HTTP front ask with it."""
import os

from cluster import PATIENCE, Cluster, one_server
from python_client import with_openai_client

with_openai_client()
import openai  # noqa: E402

PROMPT = "The sea is"
LONG = "In the beginning there was a list of measurements, and each of them had a unit and a reason. " * 20
NAME = os.path.basename(os.environ.get("MOONCAF_MODEL", ""))  # of the model, as the server calls it
END = 2  # <|im_end|>; front.py checks it
_shared = []


def shared():
    """One server for all tests of a script that leave nothing behind."""
    if not _shared:
        started = Cluster()
        one_server(started)
        _shared.append(started)
    return _shared[0]


def end_shared():
    if _shared:
        _shared.pop().__exit__(None, None, None)


def client_of(server, key="none"):
    return openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key=key, max_retries=0,
                         timeout=60 * PATIENCE)


def refused(kind, call, *words):
    """The call fails with this error of the client, whose message has the words."""
    try:
        call()
    except kind as e:
        for word in words:
            assert word in str(e), (word, str(e))
        return e
    raise AssertionError(f"not refused with {kind.__name__}")
