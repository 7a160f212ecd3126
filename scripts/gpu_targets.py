#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What gpu_check.sh's figures, of the largest size, come to beside what they are to reach.

    gpu_targets.py gpu_check.json

Prints a row for each target and adds them to the report: name, value, bar, met; null where it was not measured.
"""

import json
import os
import sys

MEETS = {">=": lambda value, bar: value >= bar, "<=": lambda value, bar: value <= bar,
         "<": lambda value, bar: value < bar}


def look_up(figures, *way):
    try:
        for name in way:
            figures = max(figures["sizes"], key=lambda size: size["elements"]) if name == "largest" else figures[name]
        return figures
    except (KeyError, TypeError, ValueError):
        return None


def targets(report):
    """Name, relation, bar and the way to the value, of each."""
    # DeepSpeed's ranks are processes: onebit's as processes are compared with them, if they ran.
    times = ("deepspeed", "largest", "times_deepspeed")
    ranks = "processes" if look_up(report, *times, "processes", "pipelined") else "threads"
    kernels = ("kernels", "largest", "cases")
    return [
        ("encode, of a copy's bytes per second", ">=", 0.85, (*kernels, "encode", "of_copy")),
        ("decode, of a copy's bytes per second", ">=", 0.85, (*kernels, "decode", "of_copy")),
        ("1-bit Adam's passes, of the time of PyTorch's fused Adam", "<=", 1.0,
         ("torch", "largest", "onebit_over_torch", "1-bit Adam, several tensors")),
        (f"an allreduce of {ranks}, times as quick as DeepSpeed's", ">=", 5, (*times, ranks, "pipelined")),
        ("a look at a known address, nanoseconds", "<", 50, ("allreduce", "pointer_nanoseconds", "device")),
    ]


def main():
    path = sys.argv[1]
    with open(path) as file:
        report = json.load(file)
    report["targets"] = []
    for name, relation, bar, way in targets(report):
        value = look_up(report, *way)
        met = None if value is None else MEETS[relation](value, bar)
        report["targets"].append({"name": name, "value": value, "bar": f"{relation} {bar}", "met": met})
        shown = "not measured" if value is None else f"{value:.3g}"
        print(f"{name:<60} {shown:>12} {relation:>2} {bar:<5} {'' if met is None else 'met' if met else 'MISSED'}")
    with open(path + ".part", "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)  # whole, or as it was


if __name__ == "__main__":
    main()
