#!/usr/bin/env python3
"""Draws the plots of tests/bench/SIMULATION.md, each a self-contained SVG beside this script.

usage: figures/make.py MOONCAF TRACE BENCH_OUTPUT
       MOONCAF       the binary; TRACE  the conversation trace
       BENCH_OUTPUT  what `mooncaf_sim_bench TRACE overload` printed
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
COLOURS = ["#2563c9", "#d1571b", "#2a8f4f", "#8b3fb3"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 240, 48, 12, 30, 34


class Panel:
    """One plot: axes with a grid, lines on it."""

    def __init__(self, title, x, y, unit):
        self.x, self.y = x, y
        self.parts = [f'<text x="{LEFT}" y="18" class="title">{title}</text>']
        for v in ticks(*x):
            self.parts.append(
                f'<line class="grid" x1="{self.sx(v):.1f}" x2="{self.sx(v):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                f'<text x="{self.sx(v):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{v:g}</text>')
        for v in ticks(*y):
            self.parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.sy(v):.1f}" y2="{self.sy(v):.1f}"/>'
                f'<text x="{LEFT - 5}" y="{self.sy(v) + 4:.1f}" text-anchor="end">{v:g}</text>')
        self.parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">{unit}</text>')

    def sx(self, v):
        return LEFT + (WIDTH - LEFT - RIGHT) * (v - self.x[0]) / (self.x[1] - self.x[0])

    def sy(self, v):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (v - self.y[0]) / (self.y[1] - self.y[0])

    def line(self, xs, ys, colour):
        points = " ".join(f"{self.sx(a):.1f},{self.sy(b):.1f}" for a, b in zip(xs, ys))
        self.parts.append(f'<polyline points="{points}" stroke="{colour}"/>')


def ticks(low, high):
    step = next(s for s in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / s <= 8)
    first = round(low / step)
    return [round(i * step, 9) for i in range(first, round(high / step) + 1)]


def page(name, panels, keys, columns):
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
           "<style>text{font:11px system-ui,sans-serif;fill:#556}.title{font-size:12px;fill:#1b2330;font-weight:600}"
           ".grid{stroke:#e3e7ec}polyline{fill:none;stroke-width:1.5}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for i, p in enumerate(panels):
        out.append(f'<g transform="translate({i % columns * WIDTH},{i // columns * HEIGHT})">{"".join(p.parts)}</g>')
    at = LEFT
    for label, colour in zip(keys, COLOURS):
        out.append(f'<rect x="{at}" y="{height - 19}" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{at + 15}" y="{height - 10}">{label}</text>')
        at += 40 + 7 * len(label)
    (HERE / name).write_text("\n".join(out) + "\n</svg>\n", encoding="utf-8")


def oscillation(binary, trace):
    """Deviation of both pools' loads from their means, from the report's own rows."""
    panels = []
    for admission in ("early_running", "early", "predictive"):
        with tempfile.NamedTemporaryFile(suffix=".html") as report:
            subprocess.run([binary, "simulate", "--trace", trace, "--prefill", "6", "--decode", "2", "--slo-tbt",
                            "60ms", "--threshold", "4", "--decode-span", "20s", "--speed", "3.67", "--admission", admission, "--report", report.name],
                           check=True, stdout=subprocess.DEVNULL)
            data = json.loads(re.search(r"const data=(\{.*?\});\n", pathlib.Path(report.name).read_text()).group(1))
        rows = [r for r in zip(data["at"], data["prefill_load"], data["decode_load"]) if 97 <= r[0] <= 970]
        at, prefill, decode = zip(*rows)
        title = (f"{admission}: correlation {statistics.correlation(prefill, decode):+.2f}, "
                 f"sd {statistics.pstdev(prefill):.3f} and {statistics.pstdev(decode):.3f}")
        p = Panel(title, (2, 16), (-0.5, 0.6), "minutes")
        for i, values in enumerate((prefill, decode)):
            mean = statistics.mean(values)
            shown = [(t / 60, v - mean) for t, v in zip(at, values) if t <= 960]
            p.line(*zip(*shown), COLOURS[i])
        panels.append(p)
    page("oscillation.svg", panels, ["prefill load less its mean (1 = TTFT SLO)", "decode load less its mean (1 = TBT SLO)"], 3)


def overload(bench):
    """Requests inside both SLOs against load, one panel per trace."""
    panels = []
    for section in bench.split("\n## "):
        if not section.lstrip("# \n").startswith("overload"):
            continue
        for title, table in re.findall(r"\n([^\n|]+): 1x is speed[^\n]*\n\n((?:\|[^\n]*\n)+)", section):
            curves = {}
            for row in table.splitlines()[2:]:
                load, admission, _, share = [c.strip() for c in row.strip("|").split("|")][:4]
                name = "best of the paper's three" if re.match("baseline|early|predictive", admission) else admission
                points = curves.setdefault(name, {})
                points[float(load)] = max(points.get(float(load), 0), float(share.rstrip("% ")))
            p = Panel(title.removesuffix(" (decode-bound)"), (1, 3), (0, 100), "load")
            for i, name in enumerate(("best of the paper's three", "per_request", "priced")):
                p.line(list(curves[name]), list(curves[name].values()), COLOURS[i])
            panels.append(p)
    page("overload.svg", panels, ["best of the paper's three", "per_request", "priced; all in % inside both SLOs"], 3)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    oscillation(sys.argv[1], sys.argv[2])
    overload(pathlib.Path(sys.argv[3]).read_text())
