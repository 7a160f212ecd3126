#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Do the defaults go wrong on hard problems? Trains on three with every kind of optimizer, and tabulates in Markdown.

The problems are an ill-conditioned quadratic, a sparse logistic regression and scikit-learn's digits; four ranks in one
process, all settings except the learning rate at their defaults. A second table, and a plot, compare the same with
DeepSpeed's formulas, frozen after a fifth of the steps. A third table has 1-bit Adam frozen too early on purpose: with
its variance followed or not, with compressed updates or, as in the papers, momenta, and frozen by the paper's rule.
Finished runs are not repeated: this script may be interrupted.

Before (Debian 12):
  scripts/packages.sh build openmpi bench && pip install scikit-learn matplotlib
  cmake --preset release && cmake --build --preset release --target hard_problems
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Learning rates of Adam and of LAMB; each is also halved and doubled.
RATES = {"quadratic": (3e-3, 9e-3), "logistic": (3e-2, 3e-2), "digits": (3e-3, 1e-2)}
FACTORS = (0.5, 1, 2)
DENSE = {"onebit_adam": "adam", "zero_one": "adam", "onebit_lamb": "lamb"}
NAMES = {"onebit_adam": "1-bit Adam", "zero_one": "0/1 Adam", "onebit_lamb": "1-bit LAMB"}
FIFTH = {"quadratic": 1200, "logistic": 1000, "digits": 800} # of each problem's steps
EARLY = (("quadratic", 3e-3), ("logistic", 3e-2), ("digits", 1e-2))
NOT_FOLLOWED = ("--follow", "4294967295")
EARLY_WAYS = {"updates, variance followed": ("--freeze", "1000", "--compressed", "updates"),
              "updates, variance as frozen": ("--freeze", "1000", "--compressed", "updates", *NOT_FOLLOWED),
              "momenta, as in the papers": ("--freeze", "1000", "--compressed", "momenta"),
              "momenta, frozen by the paper's rule": ("--freeze", "paper", "--compressed", "momenta")}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bench/hard_problems", help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=ROOT / "build/hard_problems", help="folder [%(default)s]")
    parser.add_argument("--images", type=Path, default=ROOT / "docs/images", help="folder [%(default)s]")
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


def ratios(options, problem, kind, *more):
    """Losses divided by the dense optimizer's, of all rates and seeds; a failed run counts as infinite."""
    dense_kind = DENSE[kind]
    found = []
    for factor in FACTORS:
        rate = RATES[problem][dense_kind == "lamb"] * factor
        for seed in options.seeds:
            compressed, dense = (run(options, problem, kind, rate, seed, *more),
                                 run(options, problem, dense_kind, rate, seed))
            found.append(compressed.get("loss", float("inf")) / dense["loss"])
    return found


def rivals(options):
    """By problem and kind: the ratios of onebit's defaults, and of DeepSpeed's formulas."""
    return {(problem, kind): (ratios(options, problem, kind),
                              ratios(options, problem, kind, "--deepspeed", "--freeze", str(FIFTH[problem])))
            for problem in RATES for kind in DENSE}


def print_rivals(found):
    print("\n| problem | kind | onebit, median | onebit, worst | DeepSpeed's formulas, median | worst |")
    print("| --- " * 6 + "|")
    for (problem, kind), sides in found.items():
        cells = [f"{value:.3g}" if value >= 2 else f"{value:.3f}"
                 for side in sides for value in (statistics.median(side), max(side))]
        print(f"| {problem} | {NAMES[kind]} | " + " | ".join(cells).replace("inf", "fails") + " |")
    theirs = [value for _, side in found.values() for value in side]
    print(f"\nBy DeepSpeed's formulas {sum(value > 2 for value in theirs)} of {len(theirs)} runs fail or end above "
          "twice the dense optimizer's loss.")


def draw_rivals(options, found):
    import matplotlib # pylint: disable=import-outside-toplevel  # not needed where nothing is drawn
    matplotlib.use("Agg")
    from matplotlib import pyplot # pylint: disable=import-outside-toplevel
    pyplot.rcParams.update({"font.size": 9.5, "svg.hashsalt": "onebit"}) # the same file for the same results
    figure, panels = pyplot.subplots(1, len(RATES), figsize=(10.5, 4.2), sharey=True)
    top = 30
    sides = (("onebit's defaults", "#1f6fb4", "o", -0.17), ("DeepSpeed's formulas, frozen after a fifth of the steps",
                                                           "#d1603d", "s", 0.17))
    for axes, problem in zip(panels, RATES):
        for at, kind in enumerate(DENSE):
            for (label, color, marker, shift), values in zip(sides, found[problem, kind]):
                spread = [at + shift + 0.02 * (i - len(values) / 2) for i in range(len(values))]
                inside = [(x, v) for x, v in zip(spread, values) if v <= top]
                outside = [x for x, v in zip(spread, values) if v > top]
                axes.plot([x for x, _ in inside], [v for _, v in inside], marker, color=color, markersize=4, alpha=0.8,
                          label=label if at == 0 else None)
                axes.plot(outside, [top] * len(outside), "^", color=color, markersize=6, clip_on=False)
        axes.axhline(1, color="#888888", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_ylim(0.5, top)
        axes.set_yticks([0.5, 1, 2, 5, 10, 30], ["0.5", "1", "2", "5", "10", "30"])
        axes.minorticks_off()
        axes.set_xticks(range(len(DENSE)), [NAMES[kind] for kind in DENSE])
        axes.set_title(problem)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("final loss over the dense optimizer's")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="lower center", ncols=2)
    figure.subplots_adjust(left=0.07, right=0.98, top=0.84, bottom=0.18, wspace=0.08)
    figure.suptitle(f"Each dot is a run: {len(FACTORS)} learning rates, {len(options.seeds)} seeds; triangles are beyond "
                    f"{top} or failed", fontsize=10.5)
    options.images.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.images / "hard_problems.png", dpi=150)
    figure.savefig(options.images / "hard_problems.svg", metadata={"Date": None})


def print_early(options):
    print("\n| problem | learning rate | seed | dense Adam | " + " | ".join(EARLY_WAYS) + " |")
    print("| --- " * (4 + len(EARLY_WAYS)) + "|")
    for problem, rate in EARLY:
        for seed in options.seeds:
            dense = run(options, problem, "adam", rate, seed)
            cells = []
            for more in EARLY_WAYS.values():
                early = run(options, problem, "onebit_adam", rate, seed, *more)
                cells.append("fails" if "failure" in early else f"{early['loss']:.3g}")
            print(f"| {problem} | {rate:g} | {seed} | {dense['loss']:.3g} | " + " | ".join(cells) + " |")


def main():
    options = parse_arguments()
    print_defaults(options)
    found = rivals(options)
    print_rivals(found)
    draw_rivals(options, found)
    print_early(options)


if __name__ == "__main__":
    main()
