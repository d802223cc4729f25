#!/usr/bin/env python3
"""Debian's Prometheus finds the processes of a cluster at its conductor and scrapes them with our configuration; every query of the
dashboard answers, and every alarm is about what is scraped."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, free_port, main, wait_until  # noqa: E402

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "config"
PROMPT = "A list of measurements, each with its unit and its reason. " * 12
# Words of the query language; any other word outside of braces and quotes is the name of a metric.
LANGUAGE = {"sum", "rate", "avg", "by", "histogram_quantile", "max_over_time", "min_over_time"}


def dashboard_queries():
    board = json.loads((CONFIG / "grafana" / "mooncaf.json").read_text())
    assert board["title"] == "mooncaf" and board["uid"] and board["panels"], "the dashboard has its parts"
    queries = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) >= 15, len(queries)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            queries.append((variable["name"], re.match(r"label_values\((.*), \w+\)", variable["query"]["query"])[1]))
    return queries


def metrics_in(expression):
    bare = re.sub(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|by \([^)]*\)', " ", expression)
    return {word for word in re.findall(r"[a-zA-Z_][\w:]*", bare) if word not in LANGUAGE}


class Prometheus:
    """The real server, on our configuration, told where the conductors are and what to make of the rules."""

    def __init__(self, folder, *conductors, rules=lambda text: text):
        self.folder = pathlib.Path(folder) / "prometheus"
        self.folder.mkdir()
        (self.folder / "alerts.yml").write_text(rules((CONFIG / "alerts.yml").read_text()))
        text = (CONFIG / "prometheus.yml").read_text()
        listed = "      - url: http://127.0.0.1:9400/targets\n        refresh_interval: 15s\n"
        assert "scrape_interval: 5s" in text and listed in text
        text = text.replace(listed, "".join(f"      - url: http://{at}/targets\n        refresh_interval: 1s\n" for at in conductors))
        self.config = self.folder / "prometheus.yml"
        self.config.write_text(text.replace("scrape_interval: 5s", "scrape_interval: 1s"))
        self.port = free_port()
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={self.folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)
        self.client = Client("127.0.0.1", self.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()

    def api(self, path, **parameters):
        try:
            status, body = self.client.json("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        except OSError:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-3000:]
            return None
        except json.JSONDecodeError:
            return None  # it is starting
        assert status == 200 and body["status"] == "success", body
        return body["data"]

    def query(self, expression):
        data = self.api("query", query=expression)
        return data["result"] if data else []


def our_configuration_passes_promtool():
    done = subprocess.run(["promtool", "check", "config", str(CONFIG / "prometheus.yml")], capture_output=True, text=True)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def every_alarm_fires_for_what_it_says_and_for_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        for file in (CONFIG / "alerts.yml", pathlib.Path(__file__).with_name("alert_tests.yml")):
            shutil.copy(file, folder)
        tests = pathlib.Path(folder) / "alert_tests.yml"
        rules = re.findall(r"alert: (\w+)", (CONFIG / "alerts.yml").read_text())
        tested = set(re.findall(r"- alertname: (\w+)", tests.read_text()))
        assert len(rules) >= 11 and set(rules) == tested, set(rules) ^ tested
        explained = (CONFIG / "OPERATIONS.md").read_text()
        assert all(f"`{rule}`" in explained for rule in rules), [rule for rule in rules if f"`{rule}`" not in explained]
        done = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def exposition_passes_promtool(client):
    status, _, text = client.request("GET", "/metrics")
    assert status == 200
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    said = (done.stdout + done.stderr).decode()
    # It dislikes colons, which vLLM's names have; there is nothing else to dislike.
    other = [line for line in said.splitlines() if line and "should not contain ':'" not in line]
    assert not other, said


def processes_of_every_role_are_scraped_and_every_dashboard_query_answers():
    with Cluster() as cluster:
        control, http = free_port(), free_port()
        ports = {name: free_port() for name in ("front", "prefill", "decode")}
        for name, role in (("front", "conductor,gateway"), ("prefill", "prefill,cache"), ("decode", "decode")):
            place = ["--listen", f"127.0.0.1:{control if name == 'front' else 0}"]
            place += ["--http", f"127.0.0.1:{http}"] if name == "front" else ["--join", f"127.0.0.1:{control}"]
            cluster.start(name, "--role", role, "--name", name, "--metrics-listen", f"127.0.0.1:{ports[name]}",
                          "--prefill-instances", "1", *place, *(["--ssd-path", f"{cluster.folder.name}/ssd"] if name == "prefill" else []))
        client = cluster.wait_healthy("127.0.0.1", http)
        targets = [f"127.0.0.1:{port}" for port in ports.values()]
        with Prometheus(cluster.folder.name, targets[0]) as prometheus:
            def all_up():
                data = prometheus.api("targets", state="active")
                return data and {(t["labels"]["process"], t["labels"]["instance"]) for t in data["activeTargets"] if t["health"] == "up"} \
                    == set(zip(ports, targets))

            status, headers, body = Client("127.0.0.1", ports["front"]).request("GET", "/targets")
            assert (status, headers["Content-Type"]) == (200, "application/json")
            assert {entry["labels"]["roles"] for entry in json.loads(body)} == {"conductor,gateway", "prefill,cache", "decode"}, body
            assert Client("127.0.0.1", ports["decode"]).request("GET", "/targets")[0] == 404
            wait_until("all three processes are scraped", all_up, 30)
            for i in range(3):
                client.complete(prompt=PROMPT, max_tokens=12, ignore_eos=True)
            for port in ports.values():
                exposition_passes_promtool(Client("127.0.0.1", port))

            model = client.cluster()["model"]
            seen = lambda name: sum(float(r["value"][1]) for r in prometheus.query(f'sum({name}{{model_name="{model}"}})'))
            wait_until("the requests were scraped", lambda: seen("vllm:e2e_request_latency_seconds_count") == 3, 20)
            assert seen("mooncaf_placement_seconds_count") == 3
            assert seen("vllm:generation_tokens_total") == 36
            assert seen("vllm:prompt_tokens_total") > 100
            assert seen("vllm:prefix_cache_hits_total") > 100, "the second and third request hit"
            wait_until("bytes moved were scraped", lambda: seen("mooncaf_transfer_bytes_total") > 0, 20)

            names = set(prometheus.api("label/__name__/values"))
            alarms = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
            for alarm in alarms:
                used = metrics_in(alarm["query"])
                assert used and used <= names, (alarm["name"], used - names)
                wait_until(f"{alarm['name']} is judged", lambda: next(
                    rule["health"] for group in prometheus.api("rules")["groups"] for rule in group["rules"]
                    if rule["name"] == alarm["name"]) == "ok", 20)
            assert len(alarms) >= 11 and not any(alarm["alerts"] for alarm in alarms), alarms

            for title, expression in dashboard_queries():
                used = metrics_in(expression)
                assert used and used <= names, (title, used - names)
                ready = expression.replace("$__rate_interval", "1m").replace("$model", ".*")
                wait_until(f"'{title}' has values: {ready}", lambda: prometheus.query(ready), 20)


TESTS = [our_configuration_passes_promtool, every_alarm_fires_for_what_it_says_and_for_nothing_else, processes_of_every_role_are_scraped_and_every_dashboard_query_answers]

if __name__ == "__main__":
    missing = [tool for tool in ("prometheus", "promtool") if not shutil.which(tool)]
    if missing:
        for test in TESTS:
            print(f"SKIPPED: {test.__name__}: {' and '.join(missing)} not found; install Debian's package prometheus")
        print(f"0 passed, 0 failed, {len(TESTS)} skipped")
        sys.exit(0)
    main(TESTS)
