# SPDX-License-Identifier: GPL-2.0-only
"""Reading, confidence intervals and plots, on results as docs/results.md shows them and on small ones made here."""

import json
import re
from pathlib import Path

import matplotlib
import pandas
import pytest

import drover
from drover.frame import column

matplotlib.use("Agg")
DOCS = Path(__file__).parents[2] / "docs" / "results.md"


def results(progress, **more):
    """Results with a run for each (case, scheduler, seed) and the progress of its VMs."""
    runs = [
        {
            "case": case, "scheduler": scheduler, "repeat": 1, "seed": seed, "duration_s": 1.0,
            "host": {"pcpus": 2, "idle_s": 0.5},
            "vms": [{"name": f"vm{n}", "vcpus": 1, "shares": 1000, "progress": it} for n, it in enumerate(vms)],
        }
        for (case, scheduler, seed), vms in progress.items()
    ]
    return {"scenario": "s", "ground": "sim", "seed": 1, "drover": "0.1.0", "program": "aa", "runs": runs} | more


def written(path, content):
    path.write_text(json.dumps(content))
    return path


def test_the_documented_example_is_a_row_with_units_last(tmp_path):
    example = re.search(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL).group(1)
    (tmp_path / "r.json").write_text(example)
    [row] = drover.read(tmp_path / "r.json").to_dict("records")
    assert (row["vm"], row["case"], row["seed"], row["cpu_s"]) == ("vm0", "1:7", 1, 1.98)
    assert (row["wakeup_p99_us"], row["wakeup_count"], row["host_idle_s"]) == (99.0, 812, 0.004)
    assert (row["vm.vm0.vcpus"], row["sha256"], row["scenario"]) == (2, "c0ffee00", "esx-fig3-shares")
    assert not any(isinstance(value, list) for value in row.values())


def documented_figures():
    """Those of a VM: a row names one in full, and others beside it by their last part."""
    for cell in re.findall(r"^\| `runs\[\]\.vms\[\]\.(.*?)` \| ", DOCS.read_text(), re.MULTILINE):
        first, *others = cell.split("`, `.")
        place = first.split(".")[:-1]
        fields = [first, *(".".join([*place, other]) for other in others)]
        yield from (field for field in fields if "[]" not in field)


def test_every_documented_figure_has_a_name_of_its_own():
    fields = list(documented_figures())
    assert len(fields) > 50
    names = [column(tuple(field.split("."))) for field in fields]
    assert len(set(names)) == len(names)
    for place, name in {
        ("io", "delay_us", "to_guest", "p50"): "io_delay_to_guest_p50_us",
        ("io", "delay_us", "to_guest", "count"): "io_delay_to_guest_count",
        ("io", "ms_per_mb", "to_device"): "io_to_device_ms_per_mb",
        ("profile", "evidence", "run_ms"): "profile_evidence_run_ms",
        ("host", "context_switches"): "host_context_switches",
    }.items():
        assert column(place) == name


def test_settings_are_columns_with_their_values(tmp_path):
    setting = ["tuning=pin-core", "vm.a.count=8", 'policy="x"', "ple=true"]
    path = written(tmp_path / "r.json", results({("all", "drover", 1): [5]}, set=setting))
    [row] = drover.read(path).to_dict("records")
    assert (row["tuning"], row["vm.a.count"], row["policy"], row["ple"]) == ("pin-core", 8, "x", True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"runs": 3}', '{"scenario": "s"}', "\x00\xff"])
def test_what_is_no_results_is_said_in_one_line(tmp_path, content):
    path = tmp_path / "r.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(drover.NotResults) as error:
        drover.read(path)
    assert "r.json" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(drover.NotResults, match="none.json"):
        drover.read(tmp_path / "none.json")


def sweep(folder, *shards):
    (folder / "shards").mkdir()
    for number, shard in enumerate(shards):
        written(folder / "shards" / f"{number:06}.json", shard)
    # As whoever was killed leaves it.
    (folder / "shards" / ".part-x").write_text("{")
    return folder


def test_a_sweep_is_the_rows_of_all_its_shards(tmp_path):
    two = [results({("all", "drover", seed): [seed]}, set=[f"vm.a.count={seed}"]) for seed in (3, 4)]
    frame = drover.read(sweep(tmp_path, *two))
    assert list(frame["vm.a.count"]) == list(frame["progress"]) == [3, 4]


def test_shards_of_two_builds_are_not_mixed(tmp_path):
    run = {("all", "drover", 1): [1]}
    folder = sweep(tmp_path, results(run), results(run, program="bb"))
    with pytest.raises(drover.NotResults, match="000001.json.* another build"):
        drover.read(folder)
    with pytest.raises(drover.NotResults, match="no shard"):
        drover.read(tmp_path / "shards")


def frame_of(tmp_path, progress):
    return drover.read(written(tmp_path / "r.json", results(progress)))


def test_intervals_are_over_seeds_not_over_vms(tmp_path):
    # Whatever the seed, two VMs get 10 and 30: nothing is uncertain about their mean.
    frame = frame_of(tmp_path, {("all", "drover", seed): [10, 30] for seed in range(6)})
    [row] = drover.confidence(frame, "progress", by="case").to_dict("records")
    assert row == {"case": "all", "n": 6, "mean": 20.0, "low": 20.0, "high": 20.0}
    [row] = drover.confidence(frame, "progress", by="case", how="sum").to_dict("records")
    assert row["mean"] == 40.0


def test_an_interval_holds_the_mean_and_narrows_with_more_seeds(tmp_path):
    def width(seeds):
        frame = frame_of(tmp_path, {("all", "drover", seed): [100 + 10 * (-1) ** seed] for seed in range(seeds)})
        [row] = drover.confidence(frame, "progress", by=["case"]).to_dict("records")
        assert row["low"] < row["mean"] < row["high"]
        again = drover.confidence(frame, "progress", by=["case"]).to_dict("records")
        assert again == [row]
        return row["high"] - row["low"]

    # The standard error of 100 values of +-10 is 1: 95 % are within 1.96 of the mean.
    assert abs(width(100) - 2 * 1.96) < 0.3
    assert width(100) < width(10) / 2


def test_runs_with_a_fault_do_not_count(tmp_path):
    content = results({("all", "drover", 1): [10], ("all", "drover", 2): [90]})
    content["runs"][1]["fault"] = "the scheduler was ejected"
    frame = drover.read(written(tmp_path / "r.json", content))
    [row] = drover.confidence(frame, "progress", by="case").to_dict("records")
    assert (row["n"], row["mean"]) == (1, 10.0)


def test_what_is_not_there_is_named(tmp_path):
    frame = frame_of(tmp_path, {("all", "drover", 1): [1]})
    with pytest.raises(KeyError, match="progres.*there are.*progress"):
        drover.confidence(frame, "progres", by="case")
    with pytest.raises(ValueError, match="median"):
        drover.confidence(frame, "progress", by="case", how="median")
    with pytest.raises(ValueError, match="95"):
        drover.confidence(frame, "progress", by="case", level=95)


def test_numbers_are_drawn_as_lines_and_names_as_bars(tmp_path):
    progress = {(case, scheduler, seed): [seed] for case in "ab" for scheduler in ("x", "y") for seed in (1, 2, 3)}
    frame = frame_of(tmp_path, progress)
    axes = drover.plot(frame, "progress", x="case", by="scheduler")
    assert len(axes.patches) == 4 and [it.get_text() for it in axes.get_xticklabels()] == ["a", "b"]
    assert {it.get_height() for it in axes.patches} == {2.0}
    frame["vms"] = frame["case"].map({"a": 8, "b": 2})
    axes = drover.plot(frame, "progress", x="vms", by="scheduler")
    assert len(axes.containers) == 2 and list(axes.containers[0][0].get_xdata()) == [2, 8]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_ylim()[0]) == ("vms", "progress", 0)


def test_a_frame_goes_through_parquet(tmp_path):
    frame = frame_of(tmp_path, {("all", "drover", 1): [1, 2]})
    frame.to_parquet(tmp_path / "r.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "r.parquet"), frame)
