#!/usr/bin/python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Do the compressed optimizers learn as well as the dense ones? Trains a small BERT with each, draws and tabulates.

Runs examples/libtorch_bert with every arm and seed, one after the other. Finished runs are not repeated: this script
may be interrupted. Then draws the held-out losses to IMAGES/convergence.png and .svg and prints a table in Markdown.

Before (Debian 12):
  scripts/packages.sh build openmpi text torch
  cmake --preset release -DONEBIT_TORCH=ON && cmake --build --preset release --target pretrain_bert
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Per panel: first the dense arm, with which the other arms are compared. Name, label, colour, line.
PANELS = {
    "Adam": [
        ("adam", "Adam (dense)", "#222222", "-"),
        ("onebit_adam", "1-bit Adam", "#1f6fb4", "-"),
        ("zero_one_adam", "0/1 Adam", "#2a9d57", "-"),
        ("onebit_adam_early_freeze", "1-bit Adam, frozen after step 1", "#c0392b", "--"),
        ("onebit_adam_no_feedback", "1-bit Adam, no error feedback", "#e08a1e", "--"),
    ],
    "LAMB": [
        ("lamb", "LAMB (dense)", "#222222", "-"),
        ("onebit_lamb", "1-bit LAMB", "#1f6fb4", "-"),
        ("onebit_lamb_one_scale", "1-bit LAMB, one scale for all", "#2a9d57", "-"),
        ("onebit_lamb_one_scale_unscaled", "the same, no momentum scaling", "#c0392b", "--"),
        ("onebit_lamb_unscaled", "1-bit LAMB, no momentum scaling", "#e08a1e", "--"),
    ],
}
ARMS = [arm for panel in PANELS.values() for arm, *_ in panel]
# Settings that must be equal in all runs that are drawn together.
SHARED = ("ranks", "parameters", "vocabulary", "unigram_loss", "steps", "batch", "sequence", "width", "layers", "beta2",
          "weight_decay")


def die(message):
    sys.exit(f"convergence.py: {message}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Options after -- are handed to pretrain_bert (--steps, --scale, ...); use "
                                            "another RESULTS folder for each set of them.")
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build/release/examples/libtorch_bert/pretrain_bert", help="[%(default)s]")
    parser.add_argument("--text", type=Path, help="what to learn from [the King James Bible, made if need be]")
    parser.add_argument("--results", type=Path, default=ROOT / "build/convergence", help="[%(default)s]")
    parser.add_argument("--images", type=Path, default=ROOT / "docs/images", help="[%(default)s]")
    parser.add_argument("--table", type=Path, help="file for the table [stdout]")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, metavar="ARM", help=" ".join(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED", help="[1 2 3]")
    parser.add_argument("--ranks", type=int, default=4, help="[%(default)s]")
    parser.add_argument("--plot-only", action="store_true", help="run nothing, draw what is there")
    arguments, rest = sys.argv[1:], []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, rest = arguments[:cut], arguments[cut + 1:]
    options = parser.parse_args(arguments)
    options.rest = rest
    return options


# ---- running ----


def make_bible(path):
    """The text without verse numbers: bible prints "Gen1:1 In the beginning ...", one verse per line."""
    verses = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True, capture_output=True, text=True).stdout
    path.write_text("".join(verse.partition(" ")[2] for verse in verses.splitlines(keepends=True)))


def result_path(options, arm, seed):
    return options.results / f"{arm}-{seed}.jsonl"


def run(options, text, arm, seed):
    part = options.results / "running.part"
    # By its full name: if two MPIs are installed, mpirun may be that of the other MPI.
    command = ["mpirun.openmpi", "--oversubscribe", "-n", str(options.ranks)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command += [str(options.program), str(text), "--arm", arm, "--seed", str(seed), "--output", str(part)]
    # One thread per rank: the BLAS behind torch decides before main begins.
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    begin = time.monotonic()
    log = options.results / f"{arm}-{seed}.log"
    with log.open("w") as output:
        done = subprocess.run(command + options.rest, env=environment, stdout=output, stderr=subprocess.STDOUT,
                              check=False)
    if done.returncode != 0:
        die(f"{arm}, seed {seed} failed; the end of {log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    part.rename(result_path(options, arm, seed))
    print(f"{time.monotonic() - begin:6.0f} s  {log.read_text().splitlines()[-1]}", flush=True)


def run_all(options):
    if not options.program.is_file():
        die(f"there is no {options.program}; --help says how to build it")
    options.results.mkdir(parents=True, exist_ok=True)
    text = options.text or options.results / "text.txt"
    if not options.text and not text.exists():
        make_bible(text)
    for seed in options.seeds: # outside, so that an interrupted run has all arms of some seeds
        for arm in options.arms:
            if result_path(options, arm, seed).exists():
                continue
            print(f"{arm}, seed {seed}:", end=" ", flush=True)
            run(options, text, arm, seed)


# ---- reading ----


class Run:
    """One file: head, evaluations, end."""

    def __init__(self, path):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.head, self.evaluations, self.end = lines[0], lines[1:-1], lines[-1]
        if "finished" not in self.end:
            die(f"{path} is not finished; remove it")
        self.samples = [e["samples"] for e in self.evaluations]
        self.losses = [e["held_out_loss"] for e in self.evaluations] # None: not a number
        self.bytes_sent = self.evaluations[-1]["bytes_sent"]
        self.failed = self.end["diverged"] or self.losses[-1] is None


def read_all(options):
    runs = {}
    for arm in options.arms:
        found = {seed: Run(path) for seed in options.seeds if (path := result_path(options, arm, seed)).exists()}
        if found:
            runs[arm] = found
    if not runs:
        die(f"there are no results in {options.results}")
    heads = [run.head for found in runs.values() for run in found.values()]
    for key in SHARED:
        if len({head[key] for head in heads}) > 1:
            die(f"{options.results} holds runs that differ in \"{key}\"")
    return runs, heads[0]


# ---- drawing ----


def curve(found):
    """Samples, then mean, least and largest loss over the seeds, up to where all seeds have a loss."""
    samples, low, mean, high = [], [], [], []
    for row in zip(*(zip(run.samples, run.losses) for run in found.values())):
        losses = [loss for _, loss in row]
        if None in losses:
            break
        samples.append(row[0][0])
        low.append(min(losses))
        mean.append(statistics.fmean(losses))
        high.append(max(losses))
    return samples, low, mean, high


def draw_panel(axes, name, arms, runs, head, top):
    per_step = head["ranks"] * head["batch"]
    for arm, label, color, style in arms:
        if arm not in runs:
            continue
        samples, low, mean, high = curve(runs[arm])
        thousands = [s / 1000 for s in samples]
        failures = sum(run.failed for run in runs[arm].values())
        if failures:
            label += f" ({failures} of {len(runs[arm])} diverged)"
        axes.fill_between(thousands, low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(thousands, mean, style, color=color, label=label, linewidth=1.8 if style == "-" else 1.4)
        if failures:
            axes.plot(thousands[-1:], [min(mean[-1], top)], "x", color=color, clip_on=False)
    axes.axhline(head["unigram_loss"], color="#888888", linewidth=0.8, linestyle=":")
    axes.text(0.99, head["unigram_loss"], "token frequencies alone", color="#666666", fontsize=8, ha="right",
              va="bottom", transform=axes.get_yaxis_transform())
    frozen = [run.head["freeze_step"] for arm, *_ in arms[1:2] for run in runs.get(arm, {}).values()]
    if frozen:
        axes.axvline(frozen[0] * per_step / 1000, color="#888888", linewidth=0.8)
        axes.text(frozen[0] * per_step / 1000, 0.02, " variance frozen", color="#666666", fontsize=8,
                  transform=axes.get_xaxis_transform())
    axes.set_title(f"{name} and its kin")
    axes.set_xlabel("training sequences, in thousands")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(arm in runs for arm, *_ in arms):
        axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)


def draw(options, runs, head):
    import matplotlib # pylint: disable=import-outside-toplevel  # not needed where nothing is drawn
    matplotlib.use("Agg")
    from matplotlib import pyplot # pylint: disable=import-outside-toplevel
    pyplot.rcParams.update({"font.size": 9.5, "svg.hashsalt": "onebit"}) # the same file for the same results
    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 5), sharey=True, layout="constrained")
    top = head["unigram_loss"] + 0.6 # curves that diverge leave the plot there
    for axes, (name, arms) in zip(panels, PANELS.items()):
        draw_panel(axes, name, arms, runs, head, top)
    panels[0].set_ylabel("held-out loss [nats per masked token]")
    best = min(loss for found in runs.values() for run in found.values() for loss in run.losses if loss is not None)
    panels[0].set_ylim(best - 0.15, top)
    seeds = max(len(found) for found in runs.values())
    figure.suptitle(f"Masked language model, {head['parameters'] / 1e6:.2f} M parameters, {head['ranks']} ranks; mean "
                    f"and range of {seeds} seeds", fontsize=10.5)
    options.images.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.images / "convergence.png", dpi=150)
    figure.savefig(options.images / "convergence.svg", metadata={"Date": None})


# ---- the table ----


def with_spread(values, form):
    text = format(statistics.fmean(values), form)
    return f"{text} ± {statistics.stdev(values):.3f}" if len(values) > 1 else text


def table_row(label, found, dense):
    """Loss, difference to the dense arm from the same seed, bytes, ratio of bytes."""
    good = {seed: run.losses[-1] for seed, run in found.items() if not run.failed}
    loss = with_spread(list(good.values()), ".3f") if good else "-"
    if len(good) < len(found):
        loss += f" ({len(found) - len(good)} of {len(found)} diverged)"
    both = [good[seed] - dense[seed].losses[-1] for seed in good if seed in dense]
    difference = with_spread(both, "+.3f") if both and found is not dense else "-"
    sent = statistics.fmean(run.bytes_sent for run in found.values())
    dense_sent = statistics.fmean(run.bytes_sent for run in dense.values()) if dense else 0
    comparable = len(good) == len(found) and found is not dense and dense_sent > 0 and sent > 0
    ratio = f"{dense_sent / sent:.1f} x" if comparable else "-"
    return f"| {label} | {loss} | {difference} | {sent / 1e6:.0f} | {ratio} |"


def table(runs, head):
    lines = [
        "| arm | held-out loss | against dense, same seed | MB sent per rank | fewer bytes |",
        "| --- | --- | --- | --- | --- |",
    ]
    for arms in PANELS.values():
        dense = runs.get(arms[0][0], {})
        lines += [table_row(label, runs[arm], dense) for arm, label, *_ in arms if arm in runs]
    seeds = max(len(found) for found in runs.values())
    lines += ["", f"Nats per masked token after {head['steps']} steps of {head['ranks']} x {head['batch']} sequences "
                  f"of {head['sequence']} tokens; mean and standard deviation of {seeds} seeds; token frequencies "
                  f"alone: {head['unigram_loss']:.3f}."]
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    if not options.plot_only:
        run_all(options)
    runs, head = read_all(options)
    draw(options, runs, head)
    if options.table:
        options.table.write_text(table(runs, head))
    else:
        print(table(runs, head), end="")


if __name__ == "__main__":
    main()
