"""Runs the commands of examples/plan/README.md as they are printed and looks at what they say."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

from browser import Browser
from cluster import Client, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["MOONCAF_BINARY"]
MODEL = os.environ.get("MOONCAF_MODEL", os.path.expanduser("~/.cache/mooncaf/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


def commands():
    section = (ROOT / "examples/plan/README.md").read_text(encoding="utf-8").split("## Every command once")[1]
    lines = re.search(r"```sh\n(.*?)```", section, re.S).group(1).splitlines()
    return [line.split("   #")[0].strip() for line in lines]


def says(*parts):
    """A check: the output has all of these, as regular expressions."""
    def check(output, _folder):
        for part in parts:
            assert re.search(part, output), f"no {part!r} in\n{output[:1500]}"
    return check


def wrote(name, *parts):
    def check(_output, folder):
        says(*parts)((folder / name).read_text(encoding="utf-8"), folder)
    return check


# One for every command, in order: what it begins with, and what its result must be.
EXPECTED = [
    ("mooncaf trace generate", wrote("trace.jsonl", r'^(\{"timestamp":.*\n){3000}$')),
    ("mooncaf trace stats", says(r"requests +3000 in", r"of 512 tokens")),
    ("mooncaf simulate", lambda out, folder: (says(r"arrived +3000  100.0 %", r"plots: out.html")(out, folder),
                                              wrote("out.html", r"^<!doctype html>", r"const data=")(out, folder))),
    ("mooncaf plan", lambda out, folder: (
        says(r"recommended +\d+ prefill \+ \d+ decode = 16 machines; \w+, \w+ admission", r"each of them +\d+ GB of memory.*Gbit/s",
             r"plan for +[1-9]", r"steps 20 % slower", r"one decode machine less", r"page: plan.html")(out, folder),
        wrote("plan.html", r"<td>Buy</td><td>16 machines")(out, folder))),
    ("mooncaf plan", says(r"recommended ", r"plan for +2.00 times", r"costs .*EUR per million tokens", r"around it.*EUR per million",
                          r"memory for KV +carries", r"SSD for KV +carries", r"network +carries",
                          r"what other loads need.*(\n +\d+\.\d\d x .* = \d+ +\d+\.\d\d +\d\.\d{3}( <)?){4,5}\n")),
    ("mooncaf plan", lambda out, folder: (says(r"2 prefill \+ 2 decode = 4 machines", r"started by mooncaf up cluster/cluster.toml")(out, folder),
                                          wrote("cluster/cluster.toml", r"\[front\]\naddress(.|\n)*(\[machine-\d\](.|\n)*){4}$")(out, folder))),
    ("mooncaf plan", lambda out, folder: (says(r"recommended +3 coupled, chunks of \d+ = 3 machines", r"started by mooncaf up coupled/cluster.toml")(out, folder),
                                          wrote("coupled/cluster.toml", r"(\[machine-\d\]\naddress.*\ncoupled = 1(.|\n)*){3}$")(out, folder))),
    ("mooncaf simulate", wrote("even.json", r'^\{"options"')),
    ("mooncaf simulate", wrote("uneven.json", r'^\{"options"')),
    ("mooncaf simulate --compare", lambda out, folder: (says(r"prefill +8 +12", r"plots: both.html")(out, folder),
                                                        wrote("both.html", r"2 runs side by side")(out, folder))),
    ("mooncaf simulate examples/plan/chat.toml", lambda out, folder: (
        says(r"completed +3000  100.0 %", r"(away +prefill \d from .*\n){6}", r"plots: afternoon.html")(out, folder),
        wrote("afternoon.html", r'"marks":\[60,180,')(out, folder))),
    ("mooncaf simulate examples/plan/chat.toml", lambda out, folder: (
        says(r"completed +3000  100.0 %", r"died +prefill 1 from 240.0 to 360.0 s", r"died +decode 0 from 480.0",
             r"died with machines +\d+ attempts.* answers went on after a pause", r"plots: outage.html")(out, folder),
        wrote("outage.html", r'"deaths":\[(\[[\d.]+,"(prefill|decode) \d"\],?){3,}\]')(out, folder))),
    ("mooncaf simulate examples/plan/day.toml", says(
        r"completed +172800  100.0 %", r"inside both SLOs +1[67]\d+ +9[5-9]\.", r"machines +2\.\d+ prefill and 1\.\d+ decode",
        r"paid +\d+\.\d+ machine-hours, \d+\.\d+ EUR: ", r"the peak's, always +\d+\.\d+ machine-hours, .*: [2-9]\d % more")),
    ("mooncaf trace fit", wrote("like.toml", r"^# Fitted to trace.jsonl: \d+ conversations of 3000", r"requests = 3000\n")),
    ("mooncaf simulate", says(r"arrived +3000  100.0 %", r"h100x4-llama3-70b-fp8")),
    ("mooncaf simulate", says(r"arrived +3000  100.0 %", r"device memory +held [1-9]\d?\.\d % of the KV .* GB: [1-9][\d.]* loaded")),
    ("mooncaf calibrate", wrote("here.toml", r"off by", r"prefill passes \(\d+ shapes\) +\d", r"block_tokens = 64")),
    ("mooncaf simulate", says(r"arrived +3000  100.0 %")),
]


# Texts of a plot that lie on each other, and anything wider than the window.
OVERLAPS = """
const bad = [];
for (const svg of document.querySelectorAll('svg')) {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2 && q.top < p.bottom - 2)
      bad.push(svg.getAttribute('aria-label') + ': ' + a + ' / ' + b);
  }));
}
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) bad.push('wider than the window');
for (const pre of document.querySelectorAll('pre')) if (pre.scrollWidth > pre.clientWidth) bad.push('text is cut');
return bad;
"""
# Text too small or too pale to be read, lines too pale to be seen (the contrast that WCAG 2 asks for: 4.5, and 3 of lines).
LEGIBLE = """
const bad = [];
const parts = colour => colour.match(/[0-9.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const paper = light(parts(getComputedStyle(document.body).backgroundColor));
const contrast = colour => { const l = light(parts(colour)); return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05); };
for (const svg of document.querySelectorAll('svg')) {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  for (const t of svg.querySelectorAll('text')) {
    const style = getComputedStyle(t);
    if (parseFloat(style.fontSize) * scale < 10) bad.push('small: ' + t.textContent);
    if (contrast(style.fill) < 4.5) bad.push('pale: ' + t.textContent + ' ' + style.fill);
  }
  for (const l of svg.querySelectorAll('.line'))
    if (contrast(getComputedStyle(l).stroke) < 3) bad.push('pale line: ' + svg.getAttribute('aria-label'));
}
for (const e of document.querySelectorAll('pre,h1,h2,td,th,.key,.read'))
  if (e.textContent && contrast(getComputedStyle(e).color) < 4.5) bad.push('pale: ' + e.textContent.slice(0, 40));
return bad;
"""
# What is said with the cursor in the middle of every plot.
READ = """
return [...document.querySelectorAll('svg')].map(svg => {
  const r = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}));
  return svg.previousSibling.textContent;
});
"""


OF_A_RUN, OF_A_PLAN = r"[\d.k]+ s: .*\d", r".+: .*\d"  # what stands under the cursor


def look_at(page, plots, *texts, cursor=OF_A_RUN):
    """A report in a browser, wide and narrow, by day and by night."""
    with Browser() as browser:
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            for width in (1400, 600, 390):
                browser.resize(width, 900)
                browser.open(page.as_uri())
                where = f"{page.name}, {scheme}, {width} pixels"
                assert (overlaps := browser.run(OVERLAPS)) == [], f"{where}: {overlaps}"
                if width == 390:
                    continue  # a phone shows whole plots, so small that their labels want zooming
                assert (unread := browser.run(LEGIBLE)) == [], f"{where}: {unread}"
                read = browser.run(READ)
                assert len(read) >= plots and all(re.match(cursor, r) for r in read), f"{where}: {read}"
                shown = browser.run("return document.body.innerText")
                assert all(t in shown for t in texts), where
                assert browser.complaints() == [], where
    print(f"ok: {page.name} in a browser")


def serve_planned(folder, *nodes):
    """The planned cluster runs from its own file, each node as planned, and answers; nothing is computed.
    Returns where the requests were."""
    http, control, file = free_port(), free_port(), folder / "cluster.toml"
    text = file.read_text().replace("time_scale = 10\n", "time_scale = 50\n")
    file.write_text(f"[launch]\nport = {control}\n[gateway]\nhttp = \"127.0.0.1:{http}\"\n"
                    f"[metrics]\nlisten = \"127.0.0.1:0\"\n{text}")
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    mooncaf = lambda word: subprocess.run([BINARY, word, str(file)], env=env, capture_output=True, text=True, timeout=120)
    try:
        up = mooncaf("up")
        assert up.returncode == 0, up
        client = Client("127.0.0.1", http)
        # A member's instances are shown from its first report on.
        wait_until("all are shown", lambda: {i["node"].split("/")[0] for i in client.cluster()["instances"]} == set(nodes))
        ask = lambda i: client.complete(prompt=[1 + i, 2, 3] * 400, max_tokens=400, ignore_eos=True)
        with concurrent.futures.ThreadPoolExecutor(12) as all_at_once:
            for answer in all_at_once.map(ask, range(12)):
                assert answer["usage"]["completion_tokens"] == 400, answer
        placed = [(r["prefill"], r["decode"]) for r in client.cluster()["recent"]]
    except BaseException:
        for log in folder.rglob("*.log"):
            print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        stop = mooncaf("stop")
    assert stop.returncode == 0, stop
    print(f"ok: the planned cluster of {folder.name}, served")
    return placed


def serve_coupled(folder):
    """Coupled nodes: a request is prefilled and decoded on one of them, and several of them have some."""
    placed = serve_planned(folder, *(f"machine-{n}-coupled-0" for n in range(3)))
    nodes = [(p.split("/")[0], d.split("/")[0]) for p, d in placed]
    assert all(p == d for p, d in nodes), nodes
    assert len(set(nodes)) > 1, nodes


def shell(command, folder):
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True,
                          text=True, timeout=400)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stderr}"
    print(f"ok: {command}")
    return done.stdout


def worked_examples(folder):
    """Every block of commands in examples/plan prints the lines that follow it."""
    page = (ROOT / "examples" / "plan" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", page, re.S)
    assert len(blocks) == 3, f"{len(blocks)} worked examples"
    for commands_of_block, lines in blocks:
        said = "".join(shell(c, folder) for c in commands_of_block.splitlines())
        for line in lines.splitlines():
            assert line in said, f"examples/plan/README.md: not printed any more:\n{line}\n{said}"
        remade(folder, re.search(r"--report (\w+\.html)", commands_of_block).group(1))
    return 2 * len(blocks)


def remade(folder, name):
    """The page of a worked example is what its command writes: what a person reads of it, to the letter."""
    pages = [(at / name).read_text(encoding="utf-8").split("const data=")[0] for at in (folder, ROOT / "examples" / "plan")]
    assert pages[0] == pages[1], f"examples/plan/{name} is not what its command writes any more: copy {folder / name} there"
    look_at(folder / name, 9, "Would break it", "Inside both SLOs, by load", cursor=OF_A_PLAN)


def main():
    found = commands()
    assert len(found) == len(EXPECTED), f"{len(found)} commands in examples/plan/README.md, {len(EXPECTED)} are checked here"
    with tempfile.TemporaryDirectory(prefix="mooncaf-planning-") as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "mooncaf").symlink_to(BINARY)
        (folder / "M.gguf").symlink_to(MODEL)
        (folder / "examples").symlink_to(ROOT / "examples")
        for command, (begin, check) in zip(found, EXPECTED):
            assert command.startswith(begin), f"{command}: {begin} expected"
            check(shell(command, folder), folder)
        look_at(folder / "out.html", 7, "none was rejected")
        look_at(folder / "afternoon.html", 7, "restart one_by_one prefill all")
        look_at(folder / "outage.html", 8, "died                 prefill 1")
        look_at(folder / "day.html", 8, "machine-hours")
        look_at(folder / "both.html", 7, "inside both SLOs", "uneven")
        look_at(folder / "plan.html", 9, "Would break it", "16 machines", cursor=OF_A_PLAN)
        serve_planned(folder / "cluster", "machine-0-prefill-0", "machine-1-prefill-0", "machine-2-decode-0", "machine-3-decode-0")
        serve_coupled(folder / "coupled")
        examples = worked_examples(folder)
    print(f"{len(found) + 8 + examples} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
