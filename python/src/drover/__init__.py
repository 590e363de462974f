# SPDX-License-Identifier: GPL-2.0-only
"""Results of Drover as pandas frames.

    import drover
    frame = drover.read("results.json")             # of `drover run --json`; or the folder of a `drover sweep`
    drover.confidence(frame, "progress", by=["case", "scheduler"])
    drover.plot(frame, "progress", x="case", by="scheduler")
    frame.to_parquet("results.parquet")
"""

from .bootstrap import confidence
from .frame import NotResults, read
from .picture import plot

__all__ = ["NotResults", "confidence", "plot", "read"]
