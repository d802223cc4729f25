"""A headless Chromium, driven by Debian's chromedriver over its HTTP protocol (WebDriver). Standard library only."""
import json
import subprocess
import tempfile
import urllib.request

from cluster import PATIENCE, free_port, wait_until

SWITCHES = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--hide-scrollbars",
            # A name that is not this machine's, without asking anybody.
            "--host-resolver-rules=MAP elsewhere.example 127.0.0.1"]


class Browser:
    """One window; a context manager that ends it."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mooncaf-browser-")
        port = free_port()
        self.at = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        try:
            wait_until("chromedriver answers", self._ready)
            options = {"args": [*SWITCHES, f"--user-data-dir={self.folder.name}"]}
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.session = "/session/" + made["sessionId"]
            self._call("POST", self.session + "/timeouts", {"script": 60000 * PATIENCE})
        except BaseException:
            self.driver.kill()
            raise
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            self.folder.cleanup()

    def _ready(self):
        try:
            return self._call("GET", "/status")["ready"]
        except OSError:
            return False

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.at + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120 * PATIENCE) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._call("POST", self.session + "/url", {"url": url})

    def resize(self, width, height):
        """Sets what a page sees of the window, also below the least width of a window with a frame."""
        self._call("POST", self.session + "/goog/cdp/execute", {
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}})

    def prefer(self, scheme):
        """The colours that a page is asked for: "light" or "dark"."""
        self._call("POST", self.session + "/goog/cdp/execute", {
            "cmd": "Emulation.setEmulatedMedia",
            "params": {"features": [{"name": "prefers-color-scheme", "value": scheme}]}})

    def run(self, script):
        """Runs a function's body in the page; returns what it returns."""
        return self._call("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def run_async(self, script):
        """The same for a body that calls its last argument with what it has to say."""
        return self._call("POST", self.session + "/execute/async", {"script": script, "args": []})

    def complaints(self):
        """What the console was told in earnest since the last time."""
        entries = self._call("POST", self.session + "/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]
