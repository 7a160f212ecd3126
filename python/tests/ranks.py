# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: threads of this process, or processes of a launcher."""

import os
import socket
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


def run_program(launcher, name, *arguments):
    """Runs tests/programs/NAME under a launcher; it exits with 0. Returns what it prints."""
    return _finished(_begin([*launcher, str(PROGRAMS / name), *arguments]))


def mpirun(size, name, *arguments):
    return run_program([*MPIRUN, "-n", str(size), sys.executable], name, *arguments)


def torchrun(size, name, *arguments):
    """Debian 12's needs --redirects: its Python is younger than it."""
    module = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--redirects", "1", "--tee", "1"]
    return run_program([*module, "--nproc_per_node", str(size)], name, *arguments)


def as_torchrun(size, name, *arguments):
    """Runs ranks with the variables that torchrun sets. Debian 13's torchrun can't run: it was built without libuv."""
    host, port = free_address().split(":")
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "USE_LIBUV": "0"}
    place.update(dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size)))
    return run_together(
        name, [arguments] * size, [{"RANK": str(rank), "LOCAL_RANK": str(rank), **place} for rank in range(size)]
    )


def run_together(name, arguments, environments=None):
    """Runs tests/programs/NAME once for each rank's arguments; each exits with 0. Returns what they print."""
    command = [sys.executable, str(PROGRAMS / name)]
    environments = environments or [{}] * len(arguments)
    ranks = [_begin([*command, *mine], **variables) for mine, variables in zip(arguments, environments)]
    return "".join([_finished(rank) for rank in ranks])


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def _begin(command, **environment):
    env = {**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1]), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finished(process):
    try:
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, f"{' '.join(process.args)}:\n{output}"
    return output
