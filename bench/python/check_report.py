#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Is what onebit-report says of a training step true? Reports on simulated networks, then trains there, and compares.

  bench/python/check_report.py --rates 100mbit 1gbit 10gbit none build/bible.txt

On two hosts (tools/netlab; needs root) or, where the rate is "none", in one. Passes are timed by ranks that average
with nobody, on as many cores. A step is passes, average and optimizer; predicted by the report's table, and measured by
train_transformer.py with Adam and with 1-bit Adam.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

from onebit.report._advice import step_gains  # noqa: E402  (behind where it is found)

TRAINING = "bench/python/train_transformer.py"
NETLAB = "tools/netlab"
HEAD = ["network", "passes, ms", "Adam, predicted, ms", "measured", "1-bit Adam, predicted, ms", "measured",
        "times as fast, predicted", "measured", "off, %"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "10gbit", "none"], help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=60, help="of each report [%(default)s]")
    parser.add_argument("--width", type=int, default=448, help="of the transformer [%(default)s]")
    parser.add_argument("--layers", type=int, default=4, help="[%(default)s]")
    parser.add_argument("--steps", type=int, default=16, help="the last half of which is timed [%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each kind [%(default)s]")
    parser.add_argument("text", type=Path)
    return parser.parse_args()


def output_of(command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} ends with {done.returncode}")
    return done.stdout


def launcher(rate):
    """The command that starts two ranks, which find each other as torchrun's do."""
    if rate == "none":
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun, hosts = ["mpirun.openmpi", "-n", "2", "--oversubscribe", *as_root], ["MASTER_ADDR=127.0.0.1"]
    else:
        mpirun = [NETLAB, "run", "--mpi", "openmpi", "-n", "2", "--"]
        hosts = ["MASTER_ADDR=10.77.0.1", "GLOO_SOCKET_IFNAME=eth0"]  # the first host's
    return [*mpirun, "env", *hosts, "bench/python/as_torchrun.sh"]


def passes_seconds(training):
    """Seconds of a rank, while another rank computes, too."""
    environments = [
        {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + i)}
        for i in range(2)
    ]
    ranks = [
        subprocess.Popen([*training, "--way", "adam"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("a rank that averages with nobody has failed")
    return statistics.mean(json.loads(text)["step_ms"] for text in printed) / 1000


def compare(rate, options):
    """A row of the table."""
    python = [sys.executable]
    times = ROOT / "build" / f"report-{rate}.json"
    report_options = ["--seconds", str(options.seconds), "-o", str(times.with_suffix(".html"))]
    output_of([*launcher(rate), *python, "-m", "onebit.report", *report_options])
    report = json.loads(times.read_text(encoding="utf-8"))

    training = [*python, TRAINING, "--width", str(options.width), "--layers", str(options.layers), "--steps",
                str(options.steps), "--timed", str(options.steps // 2), str(options.text.resolve())]
    measured = {"adam": [], "onebit_adam": []}
    alone = []
    for _ in range(options.repeats):
        alone.append(passes_seconds(training))
        for way, seconds in measured.items():
            freeze = ["--freeze-step", str(options.steps // 4)] if way == "onebit_adam" else []
            line = output_of([*launcher(rate), *training, "--way", way, *freeze]).splitlines()[-1]
            seconds.append(json.loads(line)["step_ms"] / 1000)
            parameters = json.loads(line)["parameters"]
    exact, compressed = (statistics.median(seconds) for seconds in measured.values())
    (gain,) = step_gains(report, [parameters])
    passes = statistics.median(alone) - gain.optimizer
    predicted = (passes + gain.exact) / (passes + gain.compressed)
    cells = [passes * 1e3, (passes + gain.exact) * 1e3, exact * 1e3, (passes + gain.compressed) * 1e3, compressed * 1e3]
    return [rate, *(f"{cell:.0f}" for cell in cells), f"{predicted:.2f}", f"{exact / compressed:.2f}",
            f"{100 * (predicted * compressed / exact - 1):+.0f}"]


def main():
    options = parse_arguments()
    os.environ.setdefault("PYTHONPATH", "python")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for row in (HEAD, ["---"] * len(HEAD)):
        print("| " + " | ".join(row) + " |", flush=True)
    for rate in options.rates:
        try:
            if rate != "none":
                output_of([NETLAB, "up", "--hosts", "2", "--rate", rate])
            print("| " + " | ".join(compare(rate, options)) + " |", flush=True)
        finally:
            if rate != "none":
                output_of([NETLAB, "down"])


if __name__ == "__main__":
    main()
