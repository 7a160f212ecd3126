#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Do the defaults go wrong on hard problems? Trains on three with every kind of optimizer, and tabulates in Markdown.

The problems are an ill-conditioned quadratic, a sparse logistic regression and scikit-learn's digits; four ranks in one
process, every setting at its default but the learning rate. A second table has 1-bit Adam frozen too early on purpose,
its variance followed or not, compressing updates or, as in the papers, momenta. What is finished is not run again, so it may be interrupted.

Before (Debian 12):
  scripts/packages.sh build openmpi bench && pip install scikit-learn
  cmake --preset release && cmake --build --preset release --target hard_problems
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Learning rates of Adam and of LAMB; each is also halved and doubled.
RATES = {"quadratic": (3e-3, 9e-3), "logistic": (3e-2, 3e-2), "digits": (3e-3, 1e-2)}
FACTORS = (0.5, 1, 2)
DENSE = {"onebit_adam": "adam", "zero_one": "adam", "onebit_lamb": "lamb"}
NAMES = {"onebit_adam": "1-bit Adam", "zero_one": "0/1 Adam", "onebit_lamb": "1-bit LAMB"}
EARLY = (("quadratic", 3e-3), ("logistic", 3e-2), ("digits", 1e-2))
EARLY_WAYS = {"updates, variance followed": ("--compressed", "updates"),
              "updates, variance as frozen": ("--compressed", "updates", "--follow", "4294967295"),
              "momenta, as in the papers": ("--compressed", "momenta")}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bench/hard_problems", help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=ROOT / "build/hard_problems", help="folder [%(default)s]")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED", help="[1 2 3]")
    options = parser.parse_args()
    if not options.program.is_file():
        sys.exit(f"hard_problems.py: there is no {options.program}; --help says how to build it")
    options.results.mkdir(parents=True, exist_ok=True)
    return options


def digits_file(options):
    path = options.results / "digits.csv"
    if not path.exists():
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            sys.exit("hard_problems.py: the digits are scikit-learn's: pip install scikit-learn")
        digits = load_digits()
        lines = (",".join(str(int(v)) for v in pixels) + f",{label}"
                 for pixels, label in zip(digits.data, digits.target))
        path.write_text("\n".join(lines) + "\n")
    return path


def run(options, problem, kind, rate, seed, *more):
    name = "-".join([problem, kind, f"{rate:g}", str(seed), *more]).replace("--", "")
    result = options.results / f"{name}.json"
    if not result.exists():
        command = [str(options.program), "--problem", problem, "--kind", kind, "--lr", f"{rate:g}", "--seed", str(seed),
                   "--digits", str(digits_file(options)), *more]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result.write_text(done.stdout)
        print(f"{name}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return json.loads(result.read_text())


def ratio(run_, dense):
    return "fails" if "failure" in run_ else f"{run_['loss'] / dense['loss']:.3f}"


def when(runs):
    steps = [str(run_.get("freeze_step") or "never") for run_ in runs]
    return steps[0] if len(set(steps)) == 1 else ", ".join(steps)


def print_defaults(options):
    seeds = options.seeds
    columns = [f"seed {seed}, loss over dense" for seed in seeds]
    print("| problem | kind | learning rate | " + " | ".join(columns) + " | frozen after step |")
    print("| --- " * (4 + len(seeds)) + "|")
    for problem, rates in RATES.items():
        for kind, dense_kind in DENSE.items():
            for factor in FACTORS:
                rate = rates[dense_kind == "lamb"] * factor
                runs = [run(options, problem, kind, rate, seed) for seed in seeds]
                dense = [run(options, problem, dense_kind, rate, seed) for seed in seeds]
                cells = [ratio(a, b) for a, b in zip(runs, dense)]
                print(f"| {problem} | {NAMES[kind]} | {rate:g} | " + " | ".join(cells) + f" | {when(runs)} |")


def print_early(options):
    print("\n| problem | learning rate | seed | dense Adam | " + " | ".join(EARLY_WAYS) + " |")
    print("| --- " * (4 + len(EARLY_WAYS)) + "|")
    for problem, rate in EARLY:
        for seed in options.seeds:
            dense = run(options, problem, "adam", rate, seed)
            cells = []
            for more in EARLY_WAYS.values():
                early = run(options, problem, "onebit_adam", rate, seed, "--freeze", "1000", *more)
                cells.append("fails" if "failure" in early else f"{early['loss']:.3g}")
            print(f"| {problem} | {rate:g} | {seed} | {dense['loss']:.3g} | " + " | ".join(cells) + " |")


def main():
    options = parse_arguments()
    print_defaults(options)
    print_early(options)


if __name__ == "__main__":
    main()
