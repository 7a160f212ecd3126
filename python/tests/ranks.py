# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: threads of this process, or processes of a launcher."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import onebit

PROGRAMS = Path(__file__).parent / "programs"
MPIRUN = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe")


def on_ranks(size, function):
    """What function(comm) returns on each rank, a thread. Raises what a rank raised; other ranks are aborted."""
    results, failures = [None] * size, []

    def run(comm):
        try:
            results[comm.rank] = function(comm)
        except BaseException as failure:
            failures.append(failure)
            comm.abort(f"{type(failure).__name__}: {failure}")

    threads = [threading.Thread(target=run, args=(comm,)) for comm in onebit.loopback(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def run_program(launcher, name, *arguments, **environment):
    """Runs tests/programs/NAME under a launcher; it exits with 0. Returns what it prints."""
    command = [*launcher, str(PROGRAMS / name), *arguments]
    env = {**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1]), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mpirun(size, name, *arguments, **environment):
    return run_program([*MPIRUN, "-n", str(size), sys.executable], name, *arguments, **environment)


def torchrun(size, name, *arguments, **environment):
    """stdout through torchrun's tee: Debian 12's torchrun can't start without, its Python being younger than it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(size)]
    return run_program([*launcher, "--redirects", "1", "--tee", "1"], name, *arguments, **environment)
