# SPDX-License-Identifier: GPL-2.0-only
"""results.json, and folders of sweeps, as one frame: a row for each VM of each run.

The columns are the fields of docs/results.md with their units last: `wakeup_us.p99` is `wakeup_p99_us`. Figures of the
host begin with `host_`. What `--set` or a sweep laid over the scenario is a column of that key, such as `tuning`. Lists, such
as of single vCPUs, are left to the file.
"""

import json
import tomllib
from pathlib import Path

import pandas

# What units are called in the names of fields, the longest first: `ms_per_mb` ends in no unit of its own.
UNITS = ("ms_per_mb", "mib_s", "mb_s", "per_s", "pcpus", "points", "bytes", "pct", "mib", "ms", "us", "ns", "s")
# Numbers of things have no unit, whatever they stand in.
COUNTS = ("count",)


class NotResults(ValueError):
    """What was to be read is not Drover's results; the message says why in one line."""


def read(path):
    """Reads results of `drover run --json`, or the folder of a finished or unfinished `drover sweep`."""
    path = Path(path)
    if path.is_dir():
        return _read_sweep(path)
    return pandas.DataFrame(_rows(_results(path)))


def _read_sweep(folder):
    shards = sorted((folder / "shards").glob("*.json"))
    if not shards:
        raise NotResults(f"{folder}: no shard of a sweep is done there")
    rows, first = [], None
    for shard in shards:
        results = _results(shard)
        build = (results.get("drover"), results.get("program"), tuple(file["sha256"] for file in results.get("files", [])))
        first = first or (shard, build)
        if build != first[1]:
            raise NotResults(f"{shard}: it is of another build of Drover, or of another scenario, than {first[0].name}")
        rows.extend(_rows(results))
    return pandas.DataFrame(rows)


def _results(path):
    try:
        results = json.loads(path.read_text())
        is_results = isinstance(results, dict) and isinstance(results["runs"], list)
    except (OSError, UnicodeDecodeError, ValueError, KeyError) as error:
        reason = f"there is no {error} in it" if isinstance(error, KeyError) else error
        raise NotResults(f"{path}: no results of `drover run --json`: {reason}") from None
    if not is_results:
        raise NotResults(f"{path}: no results of `drover run --json`")
    return results


def _rows(results):
    origin = {key: results.get(key) for key in ("scenario", "ground", "clock", "kernel", "drover") if key in results}
    files = results.get("files", [])
    if files:
        origin |= {"file": files[0]["name"], "sha256": files[0]["sha256"]}
    origin |= dict(_setting(text) for text in results.get("set", []))
    rows = []
    for run in results["runs"]:
        of_run = {key: value for key, value in run.items() if key not in ("host", "vms")}
        host = _figures({"host": run["host"]})
        for vm in run["vms"]:
            figures = _figures(vm)
            figures["vm"] = figures.pop("name")
            rows.append(origin | of_run | host | figures)
    return rows


def _setting(text):
    """What was set, as a column and its value."""
    key, value = text.split("=", 1)
    try:
        value = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        pass  # A text without quotes.
    return key.strip(), value if isinstance(value, (bool, int, float)) else str(value)


def _figures(value, place=()):
    """The numbers and texts in it, by names with the unit last."""
    found = {}
    for key, value in value.items():
        if isinstance(value, dict):
            found |= _figures(value, (*place, key))
        elif not isinstance(value, list):
            found[column((*place, key))] = value
    return found


def column(place):
    """The name of the column of the field that stands there: ("wakeup_us", "p99") is wakeup_p99_us."""
    names, unit = [], None
    for name in place:
        found = next((unit for unit in UNITS if name == unit or name.endswith("_" + unit)), None)
        if found:
            unit, name = found, name[: -len(found)].rstrip("_")
        if name:
            names.append(name)
    if unit and place[-1] not in COUNTS:
        names.append(unit)
    return "_".join(names)
