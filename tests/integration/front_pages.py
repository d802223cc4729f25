#!/usr/bin/env python3
"""The HTTP front and browsers: which pages may ask it, and what its own page shows, in headless Chromium."""
import concurrent.futures
import http.server
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from browser import Browser  # noqa: E402
from cluster import Cluster, main, one_server, wait_until  # noqa: E402
from front_client import NAME, PROMPT, end_shared, shared  # noqa: E402

# Tables that are wider than their place: what stands at their right is not seen.
CUT_TABLES = """return [...document.querySelectorAll('.scroll')].filter(t => t.scrollWidth > t.clientWidth).map(t => t.id)"""


def other_pages_get_nothing_and_allowed_ones_all_they_need():
    client = shared().client
    ask_from = lambda origin, **more: client.request("GET", "/v1/models", headers={"Origin": origin, **more})
    status, headers, _ = ask_from("http://evil.example")
    assert status == 403 and "Access-Control-Allow-Origin" not in headers, headers
    status, headers, _ = client.request("GET", "/v1/models", headers={"Host": "evil.example:8000"})
    assert status == 403, "a name that somebody else pointed here"
    assert "Access-Control-Allow-Origin" not in client.request("GET", "/v1/models")[1]
    status, headers, _ = ask_from("http://localhost:3000")
    assert status == 200 and headers["Access-Control-Allow-Origin"] == "http://localhost:3000", headers
    assert "x-request-id" in headers["Access-Control-Expose-Headers"], headers
    wanted = "authorization,content-type,openai-organization,x-stainless-lang,x-stainless-os"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    status, headers, _ = client.request("OPTIONS", "/v1/chat/completions",
                                        headers={"Origin": "http://localhost:3000", **preflight})
    assert status == 204 and headers["Access-Control-Allow-Headers"] == wanted, headers
    status, headers, _ = client.request("OPTIONS", "/v1/chat/completions",
                                        headers={"Origin": "http://evil.example", **preflight})
    assert "Access-Control-Allow-Origin" not in headers, headers


def the_page_shows_what_the_cluster_says():
    """In a browser: every request counted once, nothing wider than the window, no complaint of the console."""
    server = shared().client
    with Browser() as browser, concurrent.futures.ThreadPoolExecutor(6) as pool:
        browser.resize(1400, 900)
        browser.open(f"http://{server.host}:{server.port}/")
        tile = lambda name: browser.run("const t=[...document.querySelectorAll('.tile')].find(t=>t.lastChild"
                                        f".textContent=='{name}');return t&&t.querySelector('b').textContent")
        wait_until("the page is live", lambda: browser.run("return document.getElementById('state').textContent") == "live")
        assert browser.run("return document.getElementById('model').textContent") == NAME
        jobs = [pool.submit(server.complete, prompt=f"{i} {PROMPT}", max_tokens=400, temperature=0, ignore_eos=True)
                for i in range(6)]

        def counts_agree():
            requests = server.cluster()["requests"]
            assert requests["running"] + requests["waiting"] <= 6, f"six clients, counted more than once: {requests}"
            return requests["running"] == 6 and tile("running") == "6" and tile("waiting") == "0"

        wait_until("the page shows six running", counts_agree)
        for job in jobs:
            job.result()
        finished = lambda: str(server.cluster()["counters"]["finished"])
        wait_until("the page counts them as finished", lambda: tile("finished") == finished() and tile("running") == "0")
        drawn = lambda plot: browser.run(f"return document.querySelectorAll('#{plot} polyline').length")
        wait_until("the tiers are drawn", lambda: (drawn("tiers"), drawn("found")) == (1, 4))
        for width in (390, 1400):
            browser.resize(width, 900)
            wide = browser.run("return [document.documentElement.scrollWidth,document.documentElement.clientWidth]")
            assert wide[0] <= wide[1] and abs(wide[1] - width) < 20, (width, wide)
        assert browser.run(CUT_TABLES) == []
        assert browser.complaints() == [], browser.complaints()


def every_tier_is_plotted():
    """Device, memory and SSD: how full each is, what was found there, what was moved between them."""
    with Cluster() as cluster, Browser() as browser:
        ssd = os.path.join(cluster.folder.name, "ssd")
        server = one_server(cluster, "--model", "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512", "--threads", "1",
                            "--device", "linked", "--ssd-path", ssd, "--ssd-size", "16MiB", "--cache-write-policy", "write_through",
                            "--block-tokens", "16", "--cache-dram", "2MiB", "--device-kv", "1MiB", "--context-length", "512")
        browser.resize(1400, 900)
        browser.open(f"http://{server.host}:{server.port}/")
        drawn = lambda plot: browser.run(f"return document.querySelectorAll('#{plot} polyline').length")
        wait_until("every tier is drawn", lambda: (drawn("tiers"), drawn("found"), drawn("moved")) == (3, 4, 5))

        def height(plot, colour):
            """Of the line's highest point, in pixels above 0 %."""
            return browser.run(f"const p=[...document.querySelectorAll('#{plot} polyline')].find(p=>p.getAttribute('stroke')"
                               f"=='var(--{colour})');return 120-Math.min(...p.getAttribute('points').split(' ').map(x=>+x.split(',')[1]))")

        assert height("moved", "good") == 0
        server.complete(prompt="the tide comes in and goes out again. " * 6, max_tokens=4, temperature=0, ignore_eos=True)
        wait_until("what was written to the SSD is seen", lambda: server.cluster()["shards"][0]["ssd_written_bytes"] > 0)
        # Accent, warm and good: memory, device and SSD; memory to device, device to memory and memory to SSD.
        for plot, colour in (("tiers", "accent"), ("tiers", "warm"), ("tiers", "good"), ("moved", "warm"), ("moved", "good")):
            wait_until(f"{plot} shows {colour}", lambda: height(plot, colour) > 0)
        server.complete(prompt="the tide comes in and goes out again. " * 6, max_tokens=4, temperature=0, ignore_eos=True)
        wait_until("what was found is seen", lambda: height("found", "accent") > 0)
        for width in (390, 1400):
            browser.resize(width, 900)
            wide = browser.run("return [document.documentElement.scrollWidth,document.documentElement.clientWidth]")
            assert wide[0] <= wide[1] and abs(wide[1] - width) < 20, (width, wide)
        assert browser.run(CUT_TABLES) == []
        assert browser.complaints() == [], browser.complaints()


# The largest figures and the longest name that a node may have, in every column of its row.
LARGE = """const done=arguments[0];fetch('/cluster').then(r=>r.json()).then(c=>{
const large=row=>Object.fromEntries(Object.entries(row).map(([k,v])=>[k,typeof v=='number'?(k.endsWith('bytes')?9.87e15:987654321):v]));
c.shards=[{...large(c.shards[0]),node:'node-'+'31554'.repeat(8)}];show(c);done(document.getElementById('shards').textContent)})"""


def the_table_of_caches_fits_whatever_is_counted():
    server = shared().client
    with Browser() as browser:
        browser.open(f"http://{server.host}:{server.port}/")
        for width in (1280, 1400):
            browser.resize(width, 900)
            assert "987.65" in browser.run_async(LARGE) and browser.run(CUT_TABLES) == [], (width, browser.run(CUT_TABLES))


def pages_of_this_machine_may_use_the_api_and_read_the_request_id():
    """As openai-js does it: a preflight with headers of its own, then the request."""
    server = shared().client

    class Blank(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>elsewhere</title><link rel=icon href=data:,>")

        def log_message(self, *_):
            pass

    elsewhere = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
    call = """const done=arguments[arguments.length-1];
fetch('http://%s:%d/v1/chat/completions',{method:'POST',headers:{'Content-Type':'application/json',Authorization:'Bearer x',
'x-stainless-lang':'js','x-stainless-runtime':'browser:chrome','OpenAI-Organization':'o'},body:JSON.stringify(
{max_tokens:3,messages:[{role:'user',content:'hi'}]})}).then(async r=>done([r.status,r.headers.get('x-request-id'),
(await r.json()).choices.length])).catch(e=>done(String(e)))""" % (server.host, server.port)
    with Browser() as browser:
        browser.open(f"http://localhost:{elsewhere.server_port}/")
        status, request_id, choices = browser.run_async(call)
        assert (status, choices) == (200, 1) and request_id.startswith("req-"), (status, request_id)
        browser.open(f"http://elsewhere.example:{elsewhere.server_port}/")
        assert "Failed to fetch" in browser.run_async(call), "a page of another place"
    elsewhere.shutdown()


if __name__ == "__main__":
    try:
        main([other_pages_get_nothing_and_allowed_ones_all_they_need, the_page_shows_what_the_cluster_says, every_tier_is_plotted,
              the_table_of_caches_fits_whatever_is_counted,
              pages_of_this_machine_may_use_the_api_and_read_the_request_id])
    finally:
        end_shared()
