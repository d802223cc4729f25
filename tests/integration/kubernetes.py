#!/usr/bin/env python3
"""The manifests and the container recipe, as far as they can be judged without a cluster: they satisfy the API's schemas, their
names meet, and what they start serves. A pod is a process on an address of its own with what its manifest gives it."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, MODEL, Client, Cluster, main, wait_until  # noqa: E402
from python_client import with_packages  # noqa: E402

with_packages("python-kubernetes", ["kubernetes-validate==1.37.0", "PyYAML==6.0.2"])
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = list(yaml.safe_load_all((ROOT / "examples/kubernetes/mooncaf.yaml").read_text()))
WORKLOADS = [d for d in DOCUMENTS if d["kind"] in ("StatefulSet", "Deployment")]


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def container_of(workload):
    (only,) = pod_of(workload)["containers"]
    return only


def of(kind):
    return [d for d in DOCUMENTS if d["kind"] == kind]


def selects(selector, labels):
    return all(labels.get(k) == v for k, v in selector.items())


def all_satisfy_the_schemas():
    judged = 0
    for document in DOCUMENTS:
        if document["apiVersion"].startswith("monitoring.coreos.com"):
            continue  # the operator's own kind
        kubernetes_validate.validate(document, "1.30", strict=True)
        judged += 1
    assert judged == len(DOCUMENTS) - 1 and judged > 10, judged


def what_is_named_is_there():
    pods = [w["spec"]["template"]["metadata"]["labels"] for w in WORKLOADS]
    for workload in WORKLOADS:
        assert selects(workload["spec"]["selector"]["matchLabels"], workload["spec"]["template"]["metadata"]["labels"]), workload
        ports = {p["name"] for p in container_of(workload)["ports"]}
        for probe in ("readinessProbe", "livenessProbe"):
            about = container_of(workload)[probe]
            assert (about.get("httpGet") or about["tcpSocket"])["port"] in ports, (workload["metadata"], probe)
        volumes = {v["name"] for v in pod_of(workload)["volumes"]}
        assert volumes == {m["name"] for m in container_of(workload)["volumeMounts"]}, workload["metadata"]
        if workload["kind"] == "StatefulSet":
            (service,) = [s for s in of("Service") if s["metadata"]["name"] == workload["spec"]["serviceName"]]
            assert service["spec"]["clusterIP"] == "None" and selects(service["spec"]["selector"],
                                                                      workload["spec"]["template"]["metadata"]["labels"])
    for service in of("Service"):
        assert any(selects(service["spec"]["selector"], labels) for labels in pods), service["metadata"]
    for budget in of("PodDisruptionBudget"):
        assert any(selects(budget["spec"]["selector"]["matchLabels"], labels) for labels in pods), budget["metadata"]
    assert len(of("PodDisruptionBudget")) == len(WORKLOADS)
    (monitor,) = of("ServiceMonitor")
    wanted = {e["key"]: e["values"] for e in monitor["spec"]["selector"]["matchExpressions"]}
    watched = [s for s in of("Service") if all(s["metadata"]["labels"].get(k) in v for k, v in wanted.items())]
    assert len(watched) == 2 and all(any(p["name"] == "metrics" for p in s["spec"]["ports"]) for s in watched)


class Pods:
    """Processes that stand for pods: each has an address of its own, and its volumes are files of this machine."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.folder = pathlib.Path(cluster.folder.name)
        # As the file's first lines say.
        head = (ROOT / "examples/kubernetes/mooncaf.yaml").read_text()
        make = re.search(r"^#   (openssl rand .*)$", head, re.M)[1]
        subprocess.run(["bash", "-c", make], cwd=self.folder, check=True)
        self.key = re.search('"(.*)"', (self.folder / "api-keys").read_text())[1]
        for name in ("secret", "api-keys"):
            os.chmod(self.folder / name, 0o440)  # as a secret's volume with fsGroup is
        net = f"127.{70 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.names = {}
        for workload in WORKLOADS:
            for i in range(workload["spec"]["replicas"]):
                self.names[f"{workload['metadata']['name']}-{i}"] = (workload, f"{net}.{len(self.names) + 1}")

    def arguments(self, name):
        workload, address = self.names[name]
        env = {e["name"]: e.get("value") or {"metadata.name": name, "status.podIP": address}[e["valueFrom"]["fieldRef"]["fieldPath"]]
               for e in container_of(workload)["env"]}
        out = []
        for argument in container_of(workload)["args"]:
            argument = re.sub(r"\$\((\w+)\)", lambda m: env[m[1]], argument)
            argument = re.sub(r"([a-z0-9-]+)\.mooncaf-conductor", lambda m: self.names[m[1]][1], argument)
            argument = argument.replace("0.0.0.0", address).replace("/etc/mooncaf/keys", str(self.folder))
            out.append(argument.replace("/models/model.gguf", MODEL).replace("4GiB", "256MiB"))
        return out

    def start(self, name):
        return self.cluster.start(name, *self.arguments(name), "--threads=1", "--context-length=1024")

    def probe(self, name, kind):
        workload, address = self.names[name]
        ports = {p["name"]: p["containerPort"] for p in container_of(workload)["ports"]}
        about = container_of(workload)[kind]
        if "httpGet" in about:
            with urllib.request.urlopen(f"http://{address}:{ports[about['httpGet']['port']]}{about['httpGet']['path']}", timeout=10) as answer:
                return answer.status == 200
        return subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/{address}/{ports[about['tcpSocket']['port']]}"],
                              capture_output=True).returncode == 0

    def ready(self, name):
        try:
            return self.probe(name, "readinessProbe")
        except OSError:
            return False


def ask(pods, name):
    client = Client(pods.names[name][1], 8000)
    status, body = client.json("POST", "/v1/completions", {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0},
                               headers={"Authorization": f"Bearer {pods.key}"})
    assert status == 200, (status, body)
    return body["choices"][0]["text"]


def what_they_start_serves_and_ends_within_its_grace():
    with Cluster() as cluster:
        pods = Pods(cluster)
        for name in pods.names:
            pods.start(name)
        for name in pods.names:
            wait_until(f"{name} is ready", lambda name=name: pods.ready(name), 120)
        for name in pods.names:
            assert pods.probe(name, "livenessProbe"), name
        wait_until("all workers are known", lambda: "Paris" in ask(pods, "mooncaf-gateway-0"), 60)
        assert "Paris" in ask(pods, "mooncaf-gateway-1")
        status, _ = Client(pods.names["mooncaf-gateway-0"][1], 8000).json("POST", "/v1/chat/completions", {"messages": []})
        assert status == 401, status
        # Nodes are drained, one after the other: their pods get a signal, and what is left serves. A leader first: who follows it
        # must have been heard of by a majority before so many leave that there is none.
        for name in ("mooncaf-conductor-0", "mooncaf-prefill-0", "mooncaf-decode-1", "mooncaf-gateway-1"):
            process, began = cluster.processes.pop(name), time.monotonic()
            process.process.send_signal(signal.SIGTERM)
            process.process.wait(pod_of(pods.names[name][0]).get("terminationGracePeriodSeconds", 30))
            assert process.process.returncode == 0, (name, process.process.returncode, time.monotonic() - began)
            assert "Paris" in ask(pods, "mooncaf-gateway-0"), name


def the_container_is_of_the_package_and_small():
    text = (ROOT / "examples/container/Containerfile").read_text()
    stages = re.findall(r"^FROM (\S+)", text, re.M)
    assert len(stages) == 2 and stages[1] == "debian:12-slim", stages
    user = re.search(r"^USER (\d+):(\d+)$", text, re.M)
    assert user and all(pod_of(w)["securityContext"]["runAsUser"] == int(user[1]) for w in WORKLOADS), user
    libraries = {os.path.realpath(l.split()[2]) for l in subprocess.run(["ldd", BINARY], capture_output=True, text=True).stdout.splitlines()
                 if "=> /" in l}
    # The image has apt, and so the libraries that apt needs.
    depends = subprocess.run(["dpkg-query", "-W", "-f", "${Depends} ", "apt", "libapt-pkg6.0"], capture_output=True, text=True, check=True).stdout
    of_apt = {line for package in re.findall(r"lib[\w.+-]+|zlib1g", depends) for line in subprocess.run(
        ["dpkg-query", "-L", package], capture_output=True, text=True).stdout.splitlines()}
    of_apt = {os.path.realpath(f) for f in of_apt}
    libraries -= of_apt
    stripped = pathlib.Path(os.environ.get("TMPDIR", "/tmp"), f"mooncaf-stripped-{os.getpid()}")
    subprocess.run(["strip", "-o", str(stripped), BINARY], check=True)
    own = stripped.stat().st_size
    stripped.unlink()
    slim = 75 << 20  # debian:12-slim, unpacked
    assert own + sum(os.path.getsize(l) for l in libraries) + slim < 150 << 20, (own, len(libraries))


if __name__ == "__main__":
    main([all_satisfy_the_schemas, what_is_named_is_there, what_they_start_serves_and_ends_within_its_grace,
          the_container_is_of_the_package_and_small])
