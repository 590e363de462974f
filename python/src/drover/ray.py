# SPDX-License-Identifier: GPL-2.0-only
"""`drover sweep --engine ray`: runs the lines of a file as tasks of Ray.

Usage: python3 -m drover.ray TODO [WORKERS]. Each line is a shell command that runs a shard and writes its figures whole or not
at all, so a task whose worker dies runs again. Where RAY_ADDRESS names a cluster it is used, else workers are started here.
"""

import os
import socket
import subprocess
import sys

# How often a shard begins again whose worker dies.
RETRIES = 3


def main(arguments):
    todo, workers = arguments[0], int(arguments[1]) if len(arguments) > 1 else None
    try:
        import ray
    except ImportError:
        return "python3 has no Ray: pip install 'drover-results[ray]'"
    with open(todo) as lines:
        shards = lines.read().splitlines()
    address = os.environ.get("RAY_ADDRESS")
    if address and not answers(address):
        return f"there is no Ray at {address}, as RAY_ADDRESS has it"
    here = {} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        return f"Ray does not start: {str(error).strip().splitlines()[-1]}"
    at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    failed = run_all(ray, shards, at_once)
    ray.shutdown()
    return failed


def answers(address):
    """Whether somebody listens there: Ray itself would try for minutes. `auto` and the like are left to Ray."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError:
        return False
    return True


def run_all(ray, shards, at_once):
    """Runs each line, so many at the same time. Returns why the first of those failed that did; None if none."""

    @ray.remote(num_cpus=1, max_retries=RETRIES)
    def run(line):
        done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"

    waiting, running, failed = list(reversed(shards)), {}, None
    parent = os.getppid()
    while waiting or running:
        if os.getppid() != parent:
            return "drover sweep has gone"
        while waiting and len(running) < at_once:
            line = waiting.pop()
            running[run.remote(line)] = line
        ended, _ = ray.wait(list(running), num_returns=1, timeout=1)
        for task in ended:
            line = running.pop(task)
            try:
                why = ray.get(task)
            except ray.exceptions.RayError as error:
                why = str(error).strip().splitlines()[0]
            if why and not failed:
                failed = f"{line}: {why.splitlines()[-1]}"
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
