#!/usr/bin/env python3
"""Traces of requests as an OpenTelemetry collector gets them (`--otlp`). What arrives is read by OpenTelemetry's own schema
(PyPI's opentelemetry-proto). The devices are modelled: an answer depends on every token before it."""
import base64
import contextlib
import http.client
import http.server
import json
import os
import re
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, free_port, main, modelled, wait_until  # noqa: E402
from python_client import with_packages  # noqa: E402
from rolling import LOCAL, prompt_of, ready  # noqa: E402

with_packages("python-otlp", ["opentelemetry-proto==1.45.2"])
from google.protobuf import json_format  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: E402
from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STEPS_OF_ONE = ["compute", "decode", "place", "prefill", "request", "wait"]


def read(body):
    """OTLP's JSON is that of its schema, but for ids, which are hexadecimal there."""
    def ids(value):
        if isinstance(value, list):
            return [ids(v) for v in value]
        if not isinstance(value, dict):
            return value
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ("traceId", "spanId", "parentSpanId") else ids(v)
                for k, v in value.items()}
    return json_format.ParseDict(ids(json.loads(body)), trace_service_pb2.ExportTraceServiceRequest())


class Collector:
    """Keeps the spans that it gets, by trace."""

    def __init__(self, port=0):
        self.traces, self.resources, self.lock = {}, [], threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json", self.headers
                collector.take(read(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        with self.lock:
            for resource in request.resource_spans:
                self.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
                for span in (s for scope in resource.scope_spans for s in scope.spans):
                    self.traces.setdefault(span.trace_id.hex(), []).append(span)

    def trace(self, of):
        """Waits for the trace of which one span's attributes have these values."""
        def there():
            with self.lock:
                return next((list(spans) for spans in self.traces.values() if any(of.items() <= said(s).items() for s in spans)), None)
        return wait_until(f"a trace with {of}", there, 30)

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def said(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


class Traced(Cluster):
    """A conductor with a gateway, two prefill and two decode processes."""

    def __init__(self, collector_port, *gateway):
        super().__init__()
        self.http, control = free_port(), free_port()
        device = modelled(self.folder.name)
        self.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{self.http}", "--listen", f"127.0.0.1:{control}",
                   "--metrics-listen", "127.0.0.1:0", "--otlp", f"127.0.0.1:{collector_port}", *gateway, *device)
        for name, role in (("prefill-a", "prefill"), ("prefill-b", "prefill"), ("decode-a", "decode"), ("decode-b", "decode")):
            self.start(name, "--role", role, "--join", f"127.0.0.1:{control}", *LOCAL, *device)
        for process in self.processes.values():
            ready(process)
        self.wait_healthy("127.0.0.1", self.http)

    def answer(self, tokens, **headers):
        body = {"prompt": prompt_of(20, tokens), "max_tokens": 2000, "temperature": 0, "return_token_ids": True}
        status, answer = self.client.json("POST", "/v1/completions", body, headers)
        assert status == 200, answer
        return answer["choices"][0]["token_ids"]

    def figures(self):
        port = int(re.search(r" metrics at=127.0.0.1:(\d+)", self.processes["front"].output())[1])
        text = Client("127.0.0.1", port).request("GET", "/metrics")[2].decode()
        return {what: int(n) for what, n in re.findall(r'^mooncaf_traces_total\{.*outcome="(\w+)".*\} (\d+)', text, re.M)}


def a_request_is_one_trace_below_its_clients():
    with Collector() as collector, Traced(collector.port) as cluster:
        answer = cluster.answer(40, traceparent=f"00-{TRACE}-{PARENT}-01", **{"x-request-id": "mine"})
        spans = collector.trace({"mooncaf.x_request_id": "mine"})
        assert sorted(s.name for s in spans) == STEPS_OF_ONE, spans
        by_name = {s.name: s for s in spans}
        request, prefill, decode = by_name["request"], by_name["prefill"], by_name["decode"]
        assert request.trace_id.hex() == TRACE and request.parent_span_id.hex() == PARENT
        assert request.kind == trace_pb2.Span.SPAN_KIND_SERVER
        facts = said(request)
        assert facts["gen_ai.usage.output_tokens"] == len(answer) and facts["gen_ai.usage.input_tokens"] == len(prompt_of(20, 40))
        assert facts["mooncaf.outcome"] == "finished" and facts["mooncaf.cached_tokens"] == 0, facts
        for span in spans:
            parent = prefill if span.name in ("wait", "compute") else None if span is request else request
            if parent is not None:
                assert span.parent_span_id == parent.span_id
                assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= parent.end_time_unix_nano, spans
        assert by_name["place"].end_time_unix_nano == prefill.start_time_unix_nano
        assert prefill.end_time_unix_nano == decode.start_time_unix_nano and decode.end_time_unix_nano == request.end_time_unix_nano
        # The model's device takes 12 ms and more for each token behind the first.
        assert decode.end_time_unix_nano - decode.start_time_unix_nano >= 12e6 * (len(answer) - 1)
        nodes = {n["name"] for n in cluster.client.cluster()["nodes"]}
        assert len(nodes) == 5 and collector.resources[0]["service.instance.id"] in nodes, (nodes, collector.resources)
        assert collector.resources[0]["service.name"] == "mooncaf"
        cluster.answer(40, traceparent=f"00-{TRACE[::-1]}-{PARENT}-00")  # its client does not keep it
        again = cluster.answer(40, **{"x-request-id": "second"})
        assert again == answer
        known = collector.trace({"mooncaf.x_request_id": "second"})
        cached = next(said(s)["mooncaf.cached_tokens"] for s in known if s.name == "request")
        assert cached > 0 and known[0].trace_id.hex() != TRACE
        with collector.lock:
            assert TRACE[::-1] not in collector.traces
        cluster.answer(5, **{"x-request-id": "last"})
        cluster.processes["front"].stop()
        collector.trace({"mooncaf.x_request_id": "last"})


def a_worker_that_dies_is_a_second_attempt_of_the_same_trace():
    with Collector() as collector, Traced(collector.port) as cluster:
        expected = cluster.answer(250)
        asked = {"prompt": prompt_of(20, 250), "max_tokens": 2000, "temperature": 0, "return_token_ids": True, "stream": True}
        got = []
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", cluster.http, timeout=60)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                before = len(got)
                got += json.loads(line[6:])["choices"][0].get("token_ids") or []
                if before < 10 <= len(got):
                    node = wait_until("a decode worker has it", lambda: next(
                        (i["node"] for i in cluster.client.cluster()["instances"] if i["role"] == "decode" and i["running"] > 0), None))
                    next(p for p in cluster.processes.values() if p.node() == node).kill9()
        assert got == expected
        spans = collector.trace({"mooncaf.attempt": 1})
        assert [s.name for s in spans].count("decode") == 2, [s.name for s in spans]
        failed = [s for s in spans if s.status.code == trace_pb2.Status.STATUS_CODE_ERROR]
        assert [s.name for s in failed] == ["decode"] and "gone" in failed[0].status.message, failed
        first, second = sorted((s for s in spans if s.name == "place"), key=lambda s: s.start_time_unix_nano)
        assert first.end_time_unix_nano < failed[0].end_time_unix_nano <= second.start_time_unix_nano


def a_collector_that_is_gone_holds_nobody_up_and_gets_what_waited():
    collector = Collector()
    port = collector.port
    with Traced(port) as cluster:
        cluster.answer(5, **{"x-request-id": "before"})
        collector.trace({"mooncaf.x_request_id": "before"})
        collector.close()
        for n in range(5):
            cluster.answer(5, **{"x-request-id": f"meanwhile-{n}"})
        wait_until("it is missed", lambda: " traces collector=" in cluster.processes["front"].output())
        with Collector(port) as back:
            for n in range(5):
                back.trace({"mooncaf.x_request_id": f"meanwhile-{n}"})
            wait_until("all are counted", lambda: cluster.figures() == {"sent": 6, "dropped": 0})


if __name__ == "__main__":
    main([a_request_is_one_trace_below_its_clients, a_worker_that_dies_is_a_second_attempt_of_the_same_trace,
          a_collector_that_is_gone_holds_nobody_up_and_gets_what_waited], at_once=3)
