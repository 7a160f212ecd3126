#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compares gpu_check.sh's figures, of the largest size, with their targets.

    gpu_targets.py gpu_check.json

Prints a row for each target and adds them to the report: name, value, bar, met; null if it was not measured.
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


def slowest_pass(report):
    """The slowest pass relative to a copy. Leaves out add_sketches, which moves almost no data."""
    cases = look_up(report, "passes", "largest", "cases") or {}
    passes = {name: case["of_copy"] for name, case in cases.items()
              if name not in ("copy", "add_sketches") and not name.endswith((", one tensor", ", several tensors"))}
    return min(passes.items(), key=lambda item: item[1], default=("the slowest pass", None))


def ratio(figures, name, other):
    """The ratio of two forms' times, of the largest size."""
    forms = look_up(figures, "largest", "forms") or {}
    if name not in forms or other not in forms:
        return None
    return forms[name]["microseconds"] / forms[other]["microseconds"]


def targets(report):
    """Name, relation, bar and value of each target."""
    kernels = ("kernels", "largest", "cases")
    times = ("deepspeed", "largest", "times_deepspeed")
    slowest, of_copy = slowest_pass(report)
    return [
        ("encode, of a copy's bytes per second", ">=", 0.92, look_up(report, *kernels, "encode", "of_copy")),
        ("decode, of a copy's bytes per second", ">=", 0.92, look_up(report, *kernels, "decode", "of_copy")),
        (f"{slowest}, of a copy's bytes per second", ">=", 0.90, of_copy),
        ("1-bit Adam's passes, of the time of PyTorch's fused Adam", "<=", 0.9,
         look_up(report, "torch", "largest", "onebit_over_torch", "1-bit Adam, several tensors")),
        ("an allreduce of threads, times as quick as DeepSpeed's", ">=", 5, look_up(report, *times, "threads", "flat")),
        ("an allreduce of processes, likewise", ">=", 5, look_up(report, *times, "processes", "flat")),
        ("a checked call of threads over an unchecked one", "<=", 1.10,
         ratio(report.get("allreduce"), "flat", "flat, unchecked")),
        ("a checked call of processes over an unchecked one", "<=", 1.10,
         ratio(report.get("processes"), "flat", "flat, unchecked")),
        ("a look at a known address, nanoseconds", "<", 50,
         look_up(report, "allreduce", "pointer_nanoseconds", "device")),
    ]


def main():
    path = sys.argv[1]
    with open(path) as file:
        report = json.load(file)
    report["targets"] = []
    for name, relation, bar, value in targets(report):
        met = None if value is None else MEETS[relation](value, bar)
        report["targets"].append({"name": name, "value": value, "bar": f"{relation} {bar}", "met": met})
        shown = "not measured" if value is None else f"{value:.3g}"
        print(f"{name:<60} {shown:>12} {relation:>2} {bar:<5} {'' if met is None else 'met' if met else 'MISSED'}")
    with open(path + ".part", "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)  # complete, or unchanged


if __name__ == "__main__":
    main()
