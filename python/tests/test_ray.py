# SPDX-License-Identifier: GPL-2.0-only
"""Shards as tasks of Ray: two workers, of which one is killed in the middle."""

import os
import signal
import subprocess
import sys
import time


def engine(todo, *more, **environment):
    command = [sys.executable, "-m", "drover.ray", str(todo), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(tmp_path):
    line = "echo $PPID >> {0}/{1}.begun; sleep 1; echo done > {0}/{1}.part-$$ && mv {0}/{1}.part-$$ {0}/{1}.json"
    todo = tmp_path / "todo"
    todo.write_text("".join(line.format(tmp_path, shard) + "\n" for shard in range(6)))
    running = engine(todo, "2")
    deadline = time.monotonic() + 120
    while not (begun := [it for it in tmp_path.glob("*.begun") if it.read_text().strip()]):
        assert time.monotonic() < deadline and running.poll() is None, "no shard begins"
        time.sleep(0.05)
    victim = begun[0]
    os.kill(int(victim.read_text()), signal.SIGKILL)
    assert running.wait(timeout=120) == 0, running.stderr.read()
    assert len(list(tmp_path.glob("*.json"))) == 6
    workers = {it.name: it.read_text().split() for it in tmp_path.glob("*.begun")}
    assert len(workers[victim.name]) == 2, "it began again"
    assert len(set(sum(workers.values(), []))) == 3, "two workers, and one in place of the killed"


def test_a_shard_that_fails_is_told_and_the_others_run(tmp_path):
    todo = tmp_path / "todo"
    todo.write_text(f"echo no such file >&2; exit 3\ntouch {tmp_path}/b\n")
    running = engine(todo, "1")
    assert running.wait(timeout=120) == 1
    assert running.stderr.read().strip().splitlines()[-1].endswith("exit 3: no such file")
    assert (tmp_path / "b").exists()


def test_a_cluster_that_is_not_there_is_one_line(tmp_path):
    todo = tmp_path / "todo"
    todo.write_text("true\n")
    running = engine(todo, RAY_ADDRESS="127.0.0.1:1")
    assert running.wait(timeout=120) == 1
    line = running.stderr.read().strip().splitlines()[-1]
    assert line.startswith("there is no Ray at 127.0.0.1:1"), line
