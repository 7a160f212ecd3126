#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs train_transformer.py with every way in turn, once for each seed, and prints a table.

  compare_ways.py --seeds 3 --launch "torchrun --nproc_per_node 2" -- --steps 600 text.txt
  compare_ways.py --seeds 1 --launch "tools/netlab run --mpi openmpi -n 2 -- env GLOO_SOCKET_IFNAME=eth0 python3" -- \\
      --steps 20 --freeze-step 5 --timed 6 text.txt

What follows the second -- goes to train_transformer.py. A way that fails has no figures, and its last line is said.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).parent / "train_transformer.py"
WAYS = "ddp,ddp_fp16,ddp_bf16,ddp_powersgd,ddp_onebit,adam,onebit_adam,zero_one_adam,onebit_lamb"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default=WAYS, help=f"[{WAYS}]")
    parser.add_argument("--seeds", type=int, default=3, help="1 to so many [3]")
    parser.add_argument("--launch", default="torchrun --nproc_per_node 2", help="what starts the ranks [%(default)s]")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for one training [1200]")
    parser.add_argument("--json", type=pathlib.Path, help="file that every run's line is added to")
    parser.add_argument("training", nargs="+", help="train_transformer.py's arguments, behind a --")
    return parser.parse_args()


def train(options, way, seed):
    """The line of JSON that rank 0 prints; None where the training failed."""
    # Relative: a launcher may have another root.
    program = str(PROGRAM.resolve().relative_to(pathlib.Path.cwd()))
    command = shlex.split(options.launch) + [program, "--way", way, "--seed", str(seed), *options.training]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        print(f"{way}, seed {seed}: not finished after {options.timeout:.0f} s", file=sys.stderr)
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = (run.stderr or run.stdout).strip().splitlines()
    errors = [line for line in said if "Error" in line] or said or ["nothing was said"]
    print(f"{way}, seed {seed}: status {run.returncode}: {errors[-1]}", file=sys.stderr)
    return None


def row(way, results):
    if not results:
        return f"| {way} | | | | |"
    losses = [result["loss"] for result in results]
    times = [result["step_ms"] for result in results]
    return (
        f"| {way} | {statistics.median(losses):.3f} | {min(losses):.3f} | {max(losses):.3f} "
        f"| {statistics.median(times):.1f} |"
    )


def main():
    options = parse_arguments()
    ways = options.ways.split(",")
    results = {way: [] for way in ways}
    for seed in range(1, options.seeds + 1):
        for way in ways:  # in turn: the machine's hours are shared by all of them
            result = train(options, way, seed)
            if result is None:
                continue
            results[way].append(result)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print("| way | held-out loss, median | least | most | step, ms |\n| --- | --- | --- | --- | --- |")
    for way in ways:
        print(row(way, results[way]))


if __name__ == "__main__":
    main()
