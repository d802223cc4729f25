"""What the benches of time to the first token have in common."""
import time


def ttft(client, ids):
    """Milliseconds to the first token, and prompt tokens that were cached."""
    began, first, cached = time.perf_counter(), None, 0
    for event in client.stream("/v1/completions", {"prompt": ids, "max_tokens": 2, "ignore_eos": True, "temperature": 0,
                                                   "stream_options": {"include_usage": True}}):
        if event and event["choices"] and first is None:
            first = (time.perf_counter() - began) * 1e3
        if event and event.get("usage"):
            cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, cached
