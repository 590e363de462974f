# SPDX-License-Identifier: GPL-2.0-only
"""How many times faster than real time SimSo is, on the load that `drover sim-speed` names first.

4 CPUs, 8 tasks of 1 ms every 2 ms, global EDF (as EDF2: EDF prints every pick). Prints one number.
"""

import time

from simso.configuration import Configuration
from simso.core import Model

SIMULATED_MS = 2_000

configuration = Configuration()
configuration.duration = SIMULATED_MS * configuration.cycles_per_ms
for number in range(8):
    configuration.add_task(
        name=f"task {number}", identifier=number, period=2, activation_date=0, wcet=1, deadline=2
    )
for number in range(4):
    configuration.add_processor(name=f"CPU {number}", identifier=number)
configuration.scheduler_info.clas = "simso.schedulers.EDF2"
configuration.check_all()

model = Model(configuration)
begin = time.perf_counter()
model.run_model()
took_s = time.perf_counter() - begin
done = sum(job.end_date is not None for task in model.results.tasks.values() for job in task.jobs)
assert done > 0.9 * 8 * SIMULATED_MS / 2, f"only {done} jobs were done"
print(f"{SIMULATED_MS / 1000 / took_s:.2f}")
