#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs scenarios/spinning-guests.toml and writes its table into docs/performance.md. Five minutes of two quiet cores.

Usage, from the project's root: script/spinning-guests.py DROVER [RESULTS.json of an earlier run]
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

PAGE = pathlib.Path("docs/performance.md")
BEGIN, END = "<!-- begin: written by script/spinning-guests.py -->\n", "<!-- end: written by script/spinning-guests.py -->\n"
# A column: its title, and scheduler and case it is of.
COLUMNS = [
    ("EEVDF, exits", "eevdf", "off PLE"),
    ("off", "drover", "off"),
    ("off, exits", "drover", "off PLE"),
    ("gang", "drover", "gang"),
    ("auto", "drover", "auto"),
    ("auto, exits", "drover", "auto PLE"),
]


def run(drover):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results.json"
        subprocess.run([drover, "run", "scenarios/spinning-guests.toml", "--on", "sim", "--json", out], check=True)
        return json.loads(out.read_text())


def totals(results):
    """Work of all VMs, by load, vCPUs, ratio, case and scheduler: a list over the repeats."""
    found = {}
    for one in results["runs"]:
        load, vcpus, ratio, how = one["case"].split(" ", 3)
        progress = sum(vm["progress"] for vm in one["vms"])
        found.setdefault((load, int(vcpus), ratio), {}).setdefault((one["scheduler"], how), []).append(progress)
    return found


def table(results):
    lines = ["| | vCPUs | " + " | ".join(title for title, _, _ in COLUMNS) + " |"]
    lines.append("|---|--:|" + "--:|" * len(COLUMNS))
    for (load, vcpus, ratio), runs in totals(results).items():
        baseline = runs["eevdf", "off"]
        ratios = [[a / b for a, b in zip(runs[scheduler, how], baseline)] for _, scheduler, how in COLUMNS]
        cells = [statistics.median(column) for column in ratios]
        # Where every vCPU has a pCPU there is nothing to tell.
        if ratio == "1:1" and max(cells) < 1.01 and min(cells) > 0.99:
            continue
        shown = " | ".join(f"{cell:.2f}" if cell < 10 else f"{cell:.1f}" for cell in cells)
        lines.append(f"| {load} {ratio} | {vcpus} | {shown} |")
    return "\n".join(lines) + "\n"


def main():
    results = json.loads(pathlib.Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else run(sys.argv[1])
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table(results) + END + rest.split(END)[1])


main()
