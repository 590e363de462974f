# SPDX-License-Identifier: GPL-2.0-only
"""How well a mean over seeds is known.

What chance moves is the seed, and all VMs of a run share one. So what is drawn again is seeds, not rows: of n seeds, n
are drawn with replacement, so many times, and the interval holds the middle of the means. No shape of the distribution is
assumed; with fewer than five seeds the intervals are too narrow.
"""

import numpy
import pandas

HOW = ("mean", "sum", "min", "max")


def confidence(frame, figure, by, how="mean", level=0.95, draws=10_000, seed=1):
    """The mean of `figure` over seeds for each group of `by`, with its confidence interval by bootstrap.

    `how` is what a run's VMs make together: their mean, sum, min or max. Returns a frame with `by`, `n` (seeds), `mean`,
    `low` and `high`. The same frame and seed give the same intervals.
    """
    by = [by] if isinstance(by, str) else list(by)
    for name in (figure, *by):
        if name not in frame:
            raise KeyError(f"there is no column {name!r}; there are {', '.join(sorted(map(str, frame.columns)))}")
    if how not in HOW:
        raise ValueError(f"how = {how!r} is not known; known are {', '.join(HOW)}")
    if not 0 < level < 1:
        raise ValueError(f"level = {level} is no part; give one such as 0.95")
    frame = frame[frame["fault"].isna()] if "fault" in frame else frame
    repeat = "seed" if "seed" in frame and frame["seed"].notna().all() else "repeat"
    of_runs = frame.groupby([*by, repeat], sort=False, dropna=False)[figure].agg(how).dropna()
    generator = numpy.random.default_rng(seed)
    rows = []
    for group, values in of_runs.groupby(by, sort=False, dropna=False):
        values = values.to_numpy(dtype=float)
        means = generator.choice(values, size=(draws, len(values))).mean(axis=1)
        low, high = numpy.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        group = group if isinstance(group, tuple) else (group,)
        rows.append((*group, len(values), values.mean(), low, high))
    return pandas.DataFrame(rows, columns=[*by, "n", "mean", "low", "high"])
