# SPDX-License-Identifier: GPL-2.0-only
"""A figure over what varied, in one call."""

from pandas.api.types import is_numeric_dtype

from .bootstrap import confidence


def plot(frame, figure, x, by=None, how="mean", level=0.95, ax=None):
    """Draws the mean of `figure` over seeds against `x`, one line for each value of `by`, with confidence intervals.

    Numbers on x are joined by lines; names stand beside each other as bars. Returns matplotlib's axes.
    """
    from matplotlib import pyplot

    ax = ax or pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]
    known = confidence(frame, figure, [x] if by is None else [by, x], how=how, level=level)
    groups = [(None, known)] if by is None else list(known.groupby(by, sort=False))
    draw = _lines if is_numeric_dtype(known[x]) else _bars
    draw(ax, groups, x)
    ax.set_xlabel(x)
    ax.set_ylabel(f"{figure}, {how} of VMs" if how != "mean" else figure)
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    if by is not None:
        ax.legend(title=by)
    return ax


def _errors(points):
    return [points["mean"] - points["low"], points["high"] - points["mean"]]


def _lines(ax, groups, x):
    for name, points in groups:
        points = points.sort_values(x)
        ax.errorbar(points[x], points["mean"], yerr=_errors(points), marker="o", markersize=4, capsize=3, label=name)


def _bars(ax, groups, x):
    places = {name: place for place, name in enumerate(dict.fromkeys(name for _, points in groups for name in points[x]))}
    width = 0.8 / len(groups)
    for number, (name, points) in enumerate(groups):
        shift = (number - (len(groups) - 1) / 2) * width
        at = [places[it] + shift for it in points[x]]
        ax.bar(at, points["mean"], width, yerr=_errors(points), capsize=3, label=name)
    ax.set_xticks(list(places.values()), [str(name) for name in places])
