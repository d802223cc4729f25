"""Runs the planning commands of README.md and examples/plan as they are printed and looks at what they say."""
import os
import pathlib
import re
import subprocess
import tempfile

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["MOONCAF_BINARY"]
MODEL = os.environ.get("MOONCAF_MODEL", os.path.expanduser("~/.cache/mooncaf/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


def commands():
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Planning a cluster")[1]
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
    ("mooncaf plan", says(r"recommended +\d+ prefill \+ \d+ decode = 16 machines", r"plan for +[1-9]",
                          r"steps 20 % slower", r"one decode machine less")),
    ("mooncaf plan", says(r"recommended ", r"plan for +3.00 times", r"EUR per million tokens")),
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


def look_at(page):
    """The report in a browser, wide and narrow, by day and by night."""
    with Browser() as browser:
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            for width in (1400, 600):
                browser.resize(width, 900)
                browser.open(page.as_uri())
                where = f"{scheme}, {width} pixels"
                assert (overlaps := browser.run(OVERLAPS)) == [], f"{where}: {overlaps}"
                read = browser.run(READ)
                assert len(read) >= 7 and all(re.match(r"[\d.k]+ s: .*\d", r) for r in read), f"{where}: {read}"
                text = browser.run("return document.body.innerText")
                assert "none was rejected" in text, where
                assert browser.complaints() == [], where
    print("ok: the report in a browser")


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
    return len(blocks)


def main():
    found = commands()
    assert len(found) == len(EXPECTED), f"{len(found)} commands in README.md, {len(EXPECTED)} are checked here"
    with tempfile.TemporaryDirectory(prefix="mooncaf-planning-") as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "mooncaf").symlink_to(BINARY)
        (folder / "M.gguf").symlink_to(MODEL)
        (folder / "examples").symlink_to(ROOT / "examples")
        for command, (begin, check) in zip(found, EXPECTED):
            assert command.startswith(begin), f"{command}: {begin} expected"
            check(shell(command, folder), folder)
        look_at(folder / "out.html")
        examples = worked_examples(folder)
    print(f"{len(found) + 1 + examples} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
