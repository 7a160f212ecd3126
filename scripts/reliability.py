#!/usr/bin/python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills, stops or cuts off a rank in a collective call under real MPI and checks how the other ranks' calls end.

Each fault has its own job (tests/reliability/driver.cpp), whose ranks make one call again and again. The seed picks the
number of ranks, the victim, the moment and the fault. Checked for each survivor: its last call ended with TIMEOUT or
TRANSPORT, no later than ONEBIT_TIMEOUT + 1 s + the allowance after the fault, and its message names the victim. With
--cuts some jobs run on one host per rank (tools/netlab), and the fault takes the victim's network away: then the victim
is a survivor, too, and its message must name one of the other ranks.
Prints one line per call and one for all calls; fails if a count is wrong.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CALLS = ["comm_create", "allreduce_create", "auto", "optimizer_create", "tune", "mem_alloc", "run_dense", "run_flat",
         "run_pipelined", "start_wait", "step", "step_early", "save", "load", "set_mask", "destroy", "start_test",
         "run_int4", "run_topk", "run_powersgd", "run_bruck", "run_ring", "run_two_level", "run_levels", "levels_create",
         "reduce_scatter", "all_gather", "split", "step_started", "step_int8", "step_two_level", "step_levels"]
IN_PAIRS = ["run_two_level", "run_levels", "levels_create", "step_two_level", "step_levels"]  # of ranks
FAULTS = ["kill", "stop", "stop and continue"]
CUT = "cut off"
LAB = "reliability"
NETLAB = ROOT / "tools/netlab"
MOST_RANKS = 4
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "orte_enable_recovery", "1",
                "--mca", "mpi_yield_when_idle", "1"],
    "mpich": ["mpiexec.hydra", "-disable-auto-cleanup"],
}
# UCX, which MPICH may use, ends a program that reads from a dead process (process_vm_readv): this way is disabled.
ENVIRONMENT = {"openmpi": {}, "mpich": {"UCX_TLS": "^cma"}}
BUILDS = {"openmpi": "build/release", "mpich": "build/release-mpich"}
TIMEOUT, TRANSPORT = 11, 10  # onebit_status_t
PATIENCE = 2                 # ONEBIT_TIMEOUT
# MPI's duplication of a communicator doesn't report the missing rank (docs/RELIABILITY.md): counted, not a failure.
NAMES_NOBODY = "MPI_Comm_idup: "
HANG = 15                    # seconds after the fault
COLUMNS = ["faults", "survivors", "ended", "named", "excused", "hangs", "late", "wrong", "died", "no start"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=LAUNCHERS, default="openmpi", help="[%(default)s]")
    parser.add_argument("--build", type=Path, help=f"build directory {list(BUILDS.values())}")
    parser.add_argument("--faults", type=int, default=len(CALLS), help="[one in each call: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--call", choices=CALLS, help="this one alone [all, in turn]")
    parser.add_argument("--allowance", type=float, default=1.0,
                        help="seconds that a busy machine may take on top of the promise [%(default)s]")
    parser.add_argument("--cuts", action="store_true", help="cut hosts off, too; needs root")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after so many")
    return parser.parse_args()


class Rank:
    """The output of a rank."""

    def __init__(self, path):
        text = path.read_text(errors="replace") if path.exists() else ""
        lines = text[:text.rfind("\n") + 1].splitlines()
        self.pid = next((int(line.split()[1]) for line in lines if line.startswith("pid ")), None)
        self.begun = any(line.startswith("begin ") for line in lines)
        self.failure = None  # (time, status, message)
        last = lines[-1].split(" ", 4) if lines else []
        if last and last[0] == "end" and last[3] != "0":
            self.failure = (float(last[2]), int(last[3]), last[4])

    def alive(self):
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def kill(self):
        if self.pid and self.alive():
            os.kill(self.pid, signal.SIGKILL)


def names(message, victim):
    """Whether the message names the rank, as "rank 2" or in "ranks 1, 2"."""
    lists = re.findall(r"\branks? (\d+(?:, \d+)*)", message)
    return any(str(victim) in text.split(", ") for text in lists)


class Job:
    """The ranks of one mpirun, all on this host, or each on its own host."""

    def __init__(self, options, call, seed, ranks, in_lab):
        self.folder = Path(tempfile.mkdtemp(prefix="onebit-reliability-"))
        self.ranks = ranks
        self.launchers = []  # that are stopped
        program = (options.build or ROOT / BUILDS[options.mpi]) / "tests/onebit_reliability"
        launcher = LAUNCHERS[options.mpi]
        environment = {"ONEBIT_TIMEOUT": str(PATIENCE)}
        if call in IN_PAIRS and not in_lab:
            environment["ONEBIT_NODE_SIZE"] = "2"
        if in_lab:
            launcher = [str(NETLAB), "run", "--name", LAB, "--mpi", options.mpi]
        else:
            environment.update(ENVIRONMENT[options.mpi])
        command = [*launcher, "-n", str(ranks), *(["--"] if in_lab else []), "env",
                   *(f"{name}={value}" for name, value in environment.items()), str(program.resolve()), call, str(seed),
                   str(self.folder / "state")]
        self.output = open(self.folder / "output", "wb")
        self.mpirun = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
                                       start_new_session=True)

    def read(self):
        return [Rank(self.folder / f"state.{rank}") for rank in range(self.ranks)]

    def wait(self, condition, seconds):
        """Waits for the condition; returns whether it became true for the ranks."""
        end = time.monotonic() + seconds
        while not condition(self.read()):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def complaint(self):
        return (self.folder / "output").read_text(errors="replace").strip()[-300:]

    def freeze_launcher(self):
        """Stops mpiexec and its proxies: MPICH's end all ranks when one ends, even with -disable-auto-cleanup."""
        children = subprocess.run(["pgrep", "-P", str(self.mpirun.pid)], capture_output=True, text=True, check=False)
        self.launchers = [self.mpirun.pid, *map(int, children.stdout.split())]
        for pid in self.launchers:
            os.kill(pid, signal.SIGSTOP)

    def close(self):
        """Ends the rest of the job; its ranks have their own process groups."""
        for rank in self.read():
            rank.kill()
        for pid in self.launchers:
            os.kill(pid, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.mpirun.poll() is None:
                os.killpg(self.mpirun.pid, number)
                try:
                    self.mpirun.wait(3)
                except subprocess.TimeoutExpired:
                    pass
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def backtrace(pid):
    result = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"], capture_output=True,
                            text=True, errors="replace", timeout=60, check=False)
    return "\n".join(line for line in result.stdout.splitlines() if line.startswith(("#", "Thread")))


def set_network(pid, state):
    """Sets the network of the rank's host up or down."""
    host = subprocess.run(["ip", "netns", "identify", str(pid)], capture_output=True, text=True, check=True).stdout
    subprocess.run(["ip", "-n", host.strip(), "link", "set", "eth0", state], check=True)


def strike(job, victim, fault, survivors):
    """Causes the fault; waits until the survivors have ended or shown no sign for HANG seconds. Returns its time."""

    def ended(ranks):
        return all(ranks[rank].failure or not ranks[rank].alive() for rank in survivors)

    pid = job.read()[victim].pid
    at = time.monotonic()
    if fault == CUT:
        set_network(pid, "down")
    else:
        os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    if fault == "stop and continue":  # once the other ranks have given it up
        job.wait(ended, PATIENCE + 2)
        os.kill(pid, signal.SIGCONT)
    job.wait(ended, at + HANG - time.monotonic())
    if fault == CUT:
        set_network(pid, "up")
    return at


def judge(options, job, victim, at, survivors, counts, complain):
    for number, rank in enumerate(job.read()):
        if number not in survivors:
            continue
        counts["survivors"] += 1
        if rank.failure is None:
            counts["hangs" if rank.alive() else "died"] += 1
            if rank.alive():
                complain(f"rank {number} hangs:\n{backtrace(rank.pid) if shutil.which('gdb') else '(no gdb)'}")
            else:
                complain(f"rank {number} has died: {job.complaint()}")
            continue
        end, status, message = rank.failure
        if status not in (TIMEOUT, TRANSPORT):
            counts["wrong"] += 1
            complain(f"rank {number}: status {status}: {message}")
            continue
        counts["ended"] += 1
        missing = [victim] if number != victim else [other for other in range(job.ranks) if other != victim]
        if any(names(message, other) for other in missing):
            counts["named"] += 1
        elif message.startswith(NAMES_NOBODY):
            counts["excused"] += 1
        else:
            complain(f"rank {number} doesn't name rank {missing[0]}: {message}")
        if end - at > PATIENCE + 1 + options.allowance:
            counts["late"] += 1
            complain(f"rank {number} ended {end - at:.1f} s after the fault: {message}")


def try_one(options, call, seed, counts):
    choice = random.Random(seed)
    ranks = MOST_RANKS if call in IN_PAIRS else choice.choice([MOST_RANKS - 1, MOST_RANKS])
    victim = choice.randrange(ranks)
    fault = choice.choice([*FAULTS, CUT] if options.cuts else FAULTS)
    survivors = [rank for rank in range(ranks) if rank != victim or fault == CUT]
    job = Job(options, call, seed, ranks, in_lab=fault == CUT)

    def complain(text):
        print(f"  {call}, seed {seed}, {fault} rank {victim} of {ranks}: {text}", flush=True)

    counts["faults"] += 1
    try:
        if not job.wait(lambda all_ranks: all(rank.begun for rank in all_ranks), 30):
            counts["no start"] += 1
            complain(f"did not start: {job.complaint()}")
            return
        time.sleep(choice.uniform(0, 0.3))
        if options.mpi == "mpich" and fault != CUT:
            job.freeze_launcher()
        at = strike(job, victim, fault, survivors)
        judge(options, job, victim, at, survivors, counts, complain)
    finally:
        job.close()


def row(name, counts):
    return f"{name:18}" + "".join(f"{counts[column]:>10}" for column in COLUMNS)


@contextlib.contextmanager
def lab(wanted):
    if not wanted:
        yield
        return
    subprocess.run([NETLAB, "up", "--name", LAB, "--hosts", str(MOST_RANKS), "--rate", "1gbit"], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run([NETLAB, "down", "--name", LAB], check=True, stdout=subprocess.DEVNULL)


def main():
    options = parse_arguments()
    with lab(options.cuts):
        run(options)


def run(options):
    end = time.monotonic() + options.seconds
    calls = [options.call] if options.call else CALLS
    table = {call: dict.fromkeys(COLUMNS, 0) for call in calls}
    for number in range(options.faults):
        if time.monotonic() > end:
            break
        call = calls[number % len(calls)]
        try_one(options, call, options.seed + number // len(calls) * 1000 + number, table[call])
    print(f"{options.mpi:18}" + "".join(f"{column:>10}" for column in COLUMNS))
    for call in calls:
        print(row(call, table[call]))
    total = {column: sum(counts[column] for counts in table.values()) for column in COLUMNS}
    print(row("in all", total))
    judged = total["survivors"] == total["ended"] == total["named"] + total["excused"]
    good = judged and not total["late"] and not total["no start"]
    sys.exit(0 if good and total["faults"] else 1)


if __name__ == "__main__":
    main()
