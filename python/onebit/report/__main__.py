# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command: onebit-report, or python -m onebit.report."""

import argparse
import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import onebit
from onebit.report._advice import verdict
from onebit.report._measure import Plan, blank, measure
from onebit.report._page import page
from onebit.report._ranks import NoRanks, Ranks, find_ranks

_DESCRIPTION = """\
Measures how the ranks of a run average together, exactly and compressed, and writes a page that says whether
compression pays there, from which size on, and what a training step gains. Start it as your training is started:

  torchrun --nnodes 2 --nproc_per_node 4 ... -m onebit.report
  mpirun -n 8 python -m onebit.report

It measures the host's memory. Beside the page it writes the times as JSON, after each size."""


class Interrupted(Exception):
    """By a signal."""


def main(arguments: Optional[List[str]] = None) -> int:
    """What the process ends with: 1 where it was cut short, 2 where it could not begin."""
    options = _parser().parse_args(arguments)
    if options.draw is not None:
        return _draw(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        ranks = find_ranks()
        _check_alike(ranks, options)
        _check_output(ranks, options)
    except (NoRanks, onebit.Error, RuntimeError, Interrupted) as error:
        print(f"onebit-report: {error}", file=sys.stderr)
        return 2
    return _run(ranks, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onebit-report", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("onebit-report.html"), help="the page [%(default)s]")
    parser.add_argument("--seconds", type=_positive(float), default=60, help="about how long it may take [%(default)s]")
    parser.add_argument("--max-elements", type=_positive(int), default=1 << 22,
                        help="of the largest average; larger ones follow from it [%(default)s]")
    parser.add_argument("--codecs", type=_codecs, default=["sign", "int8", "int4"], metavar="C[,C...]",
                        help="to measure [sign,int8,int4]")
    parser.add_argument("--parameters", type=_numbers, default=[10**6, 10**7, 10**8, 10**9], metavar="D[,D...]",
                        help="of models whose training steps the page speaks of [1e6,1e7,1e8,1e9]")
    parser.add_argument("--compute", type=_positive(float), metavar="SECONDS",
                        help="of a step's forward and backward passes, where you know them")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="measure nothing: the page of a report's JSON file")
    return parser


def _positive(kind):
    def parse(text: str):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text}: not above 0")
        return value

    parse.__name__ = "number"  # what argparse calls it
    return parse


def _numbers(text: str) -> List[int]:
    return [int(_positive(float)(part)) for part in text.split(",")]


def _codecs(text: str) -> List[str]:
    names = [codec.name.lower() for codec in onebit.Codec if codec != onebit.Codec.POWERSGD]  # which needs shapes
    for part in text.split(","):
        if part not in names:
            raise argparse.ArgumentTypeError(f"{part}: not one of {', '.join(names)}")
    return text.split(",")


def _check_alike(ranks: Ranks, options: argparse.Namespace) -> None:
    """Raises NoRanks on every rank where there is but one, or where they were not started alike."""
    if ranks.comm.size == 1:
        raise NoRanks("it is one rank alone, which averages with nobody: start at least 2")
    mine = {name: str(value) for name, value in vars(options).items()}
    everyones = ranks.gather({"version": onebit.__version__, **mine})
    for rank, others in enumerate(everyones):
        for name, value in everyones[0].items():
            if others[name] != value:
                raise NoRanks(f"ranks differ: {name} is {value} on rank 0, {others[name]} on rank {rank}")


def _check_output(ranks: Ranks, options: argparse.Namespace) -> None:
    """Raises NoRanks on every rank where the first one can't write the page: before minutes are spent."""
    failure = None
    if ranks.comm.rank == 0:
        try:
            _write(options.output, "")
        except OSError as error:
            failure = str(error)
    failure = ranks.gather(failure)[0]
    if failure is not None:
        raise NoRanks(failure)


def _run(ranks: Ranks, options: argparse.Namespace) -> int:
    is_first = ranks.comm.rank == 0
    times = options.output.with_suffix(".json")
    status = 0
    report: Dict[str, Any] = {}

    def progress(done: int, of: int) -> None:
        if is_first:
            _show(done, of)
            _write(times, json.dumps(report, indent=1))

    try:
        report = blank(ranks, shlex.join(["python", "-m", "onebit.report", *sys.argv[1:]]))
        measure(ranks, Plan(options.max_elements, options.seconds, options.codecs), report, progress)
    except (onebit.Error, RuntimeError, OSError, Interrupted) as error:
        status = 1
        report["unfinished"] = str(error).splitlines()[0]
        print(f"\nonebit-report: rank {ranks.comm.rank}: {error}", file=sys.stderr)
    if is_first and report.get("levels"):
        _write(times, json.dumps(report, indent=1))
        _write(options.output, page(report, options.parameters, options.compute))
        print(" ".join(verdict(report)) + f"\n{options.output}, {times}", flush=True)
    return status


def run() -> None:
    """The process: main(), and its end."""
    status = main()
    sys.stdout.flush()
    if status == 1:  # its peers may be gone: nothing that they left in flight is waited for
        os._exit(status)
    sys.exit(status)


def _draw(options: argparse.Namespace) -> int:
    try:
        report = json.loads(options.draw.read_text(encoding="utf-8"))
        text = page(report, options.parameters, options.compute)
        _write(options.output, text)
    except OSError as error:
        print(f"onebit-report: {error}", file=sys.stderr)
        return 2
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        print(f"onebit-report: {options.draw}: not the times of a report", file=sys.stderr)
        return 2
    return 0


def _write(path: Path, text: str) -> None:
    """All of it, or what was there before."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _interrupt(number, _frame):
    raise Interrupted(f"interrupted by {signal.Signals(number).name}")


def _show(done: int, of: int) -> None:
    """A progress bar, on one line."""
    width = 30
    filled = "#" * (width * done // of)
    print(f"\r[{filled:<{width}}] {done} of {of} sizes", end="\n" if done == of else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run()
