# SPDX-License-Identifier: GPL-2.0-only
"""The example notebook runs, and its figure shows what the seed says: `drover` must be on the path."""

import shutil
from pathlib import Path

import nbclient
import nbformat
import pandas

import drover

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_notebook_reproduces_the_seeds_figure(tmp_path):
    assert shutil.which("drover"), "there is no drover on the path: make python-test"
    notebook = nbformat.read(EXAMPLES / "seed-004-cpu.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("../../out/seed-004-cpu", str(tmp_path / "out"))
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    frame = drover.read(tmp_path / "out")
    assert len(frame) == 6 * 5 * (4 + 8 + 16 + 24 + 36 + 48)
    known = drover.confidence(frame, "progress", by=["tuning", "vm.vm.count"])
    means = known.pivot(index="vm.vm.count", columns="tuning", values="mean")
    gap = 1 - means.div(means["default"], axis=0)
    # vCPUs that share a core while others are idle get less: "Pinning means earlier in-VM saturation".
    pinned = gap[["pin-core", "pin-core+mem", "pin-1to1+mem"]]
    assert pinned.loc[4].between(0.2, 0.5).all(), gap
    # "When load increases, performances gap becomes smaller": to nothing, where VMs fill the host.
    assert (pinned.loc[16] < pinned.loc[8] + 0.001).all() and (pinned.loc[24:].abs() < 0.03).all().all(), gap
    # A whole node is room enough.
    assert (gap[["mem", "pin-node"]].abs() < 0.03).all().all(), gap
    # With twice as many VMs each has about half.
    halved = means.loc[48] / means.loc[24]
    assert halved.between(0.45, 0.55).all(), halved
    assert isinstance(known, pandas.DataFrame) and (known["low"] <= known["high"]).all()
