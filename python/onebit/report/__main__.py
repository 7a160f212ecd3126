# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command: onebit-report, or python -m onebit.report."""

import argparse
import json
import os
import shlex
import signal
import sys
import traceback
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

It measures averages in the host's memory. Rank 0 writes the page, and beside it the times as JSON."""


class Interrupted(Exception):
    """A signal has ended the measurement."""


def run() -> None:
    """The process. After an error it ends at once: its peers may be gone, and MPI would wait for them."""
    _on_signals(_interrupt)
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if status != 0:
        os._exit(status)


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit status: 1 if the measurement was cut short, 2 if it could not begin."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    if options.draw is not None:
        return _draw(options)
    try:
        ranks = find_ranks()
        _check(ranks, options)
    except (NoRanks, onebit.Error, RuntimeError, Interrupted) as error:
        _say(error)
        return 2
    return _run(ranks, options, shlex.join(["python", "-m", "onebit.report", *arguments]))


# ---- options ----


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onebit-report", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=_page_file, default=Path("onebit-report.html"), metavar="PAGE",
                        help="the page; its times are in a file of the same name, .json [onebit-report.html]")
    parser.add_argument("--seconds", type=_positive, default=60, help="about how long it may take [60]")
    parser.add_argument("--max-elements", type=_count, default=1 << 22, metavar="N",
                        help="elements of the largest average; times of larger ones are extrapolated [4194304]")
    parser.add_argument("--codecs", type=_codecs, default=["sign", "int8", "int4"], metavar="C[,C...]",
                        help="codecs to measure [sign,int8,int4]")
    parser.add_argument("--parameters", type=_counts, default=[10**6, 10**7, 10**8, 10**9], metavar="D[,D...]",
                        help="sizes of the models in the table of training steps [1e6,1e7,1e8,1e9]")
    parser.add_argument("--compute", type=_positive, metavar="SECONDS",
                        help="how long your forward and backward passes take in a step, if you know it")
    parser.add_argument("--draw", type=Path, metavar="JSON",
                        help="measure nothing: make the page of these times anew")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: not a finite number above 0")
    return number


def _count(text: str) -> int:
    number = _positive(text)
    if number != int(number):
        raise argparse.ArgumentTypeError(f"{text}: not a whole number")
    return int(number)


def _counts(text: str) -> List[int]:
    return [_count(part) for part in text.split(",")]


def _codecs(text: str) -> List[str]:
    names = [codec.name.lower() for codec in onebit.Codec if codec != onebit.Codec.POWERSGD]  # which needs shapes
    for part in text.split(","):
        if part not in names:
            raise argparse.ArgumentTypeError(f"{part}: not one of {', '.join(names)}")
    return list(dict.fromkeys(text.split(",")))


def _page_file(text: str) -> Path:
    path = Path(text)
    if not path.name or path.suffix == ".json":
        raise argparse.ArgumentTypeError(f"{text}: not a name for a page")
    return path


# ---- the measurement ----


def _check(ranks: Ranks, options: argparse.Namespace) -> None:
    """Raises NoRanks on every rank, before minutes are spent, if the report can't be made."""
    size = ranks.comm.size
    if size == 1:
        raise NoRanks("it is one rank alone, which averages with nobody: start at least 2")
    mine = {name: str(value) for name, value in vars(options).items()}
    everyones = ranks.gather({"version": onebit.__version__, **mine})
    for rank, others in enumerate(everyones):
        for name, value in everyones[0].items():
            if others[name] != value:
                raise NoRanks(f"ranks differ: {name} is {value} on rank 0, {others[name]} on rank {rank}")
    if not Plan(options.max_elements, options.seconds, options.codecs).sizes(size):
        raise NoRanks(f"--max-elements {options.max_elements}: less than the smallest size for {size} ranks")
    failure = ranks.gather(_cannot_write(options.output) if ranks.comm.rank == 0 else "")[0]
    if failure:
        raise NoRanks(failure)


def _cannot_write(path: Path) -> str:
    """The reason why the page can't be written; "" if it can. Leaves an existing page as it is."""
    try:
        if path.is_dir():
            return f"{path}: it is a folder"
        new = _new(path)
        new.write_text("", encoding="utf-8")
        new.unlink()
    except OSError as error:
        return str(error)
    return ""


def _run(ranks: Ranks, options: argparse.Namespace, command: str) -> int:
    is_first = ranks.comm.rank == 0
    times = options.output.with_suffix(".json")
    report: Dict[str, Any] = {}

    def progress(done: int, of: int) -> None:
        if is_first:
            _show(done, of)
            _write(times, json.dumps(report, indent=1))

    failure: Optional[Exception] = None
    try:
        report.update(blank(ranks, command))
        measure(ranks, Plan(options.max_elements, options.seconds, options.codecs), report, progress)
    except Exception as error:
        failure = error
        reason = str(error) or type(error).__name__
        report["unfinished"] = reason.splitlines()[0]
        ranks.comm.abort(reason)  # other ranks need not wait for this rank
        _say(f"rank {ranks.comm.rank}: {reason}")
    if is_first and report.get("levels"):
        _write(times, json.dumps(report, indent=1))
        _write(options.output, page(report, options.parameters, options.compute))
        print(" ".join(verdict(report)) + f"\n{options.output}, {times}", flush=True)
    if failure is None:
        ranks.close()
    return 0 if failure is None else 1


def _draw(options: argparse.Namespace) -> int:
    try:
        report = json.loads(options.draw.read_text(encoding="utf-8"))
        text = page(report, options.parameters, options.compute)
    except OSError as error:
        _say(error)
        return 2
    except (ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError):
        _say(f"{options.draw}: not the times of a report")
        return 2
    failure = _cannot_write(options.output)
    if failure:
        _say(failure)
        return 2
    _write(options.output, text)
    return 0


# ---- files and messages ----


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _write(path: Path, text: str) -> None:
    """Writes the whole text, or leaves the old file."""
    _new(path).write_text(text, encoding="utf-8")
    _new(path).replace(path)


def _show(done: int, of: int) -> None:
    """A progress bar, on one line."""
    width = 30
    filled = "#" * (width * done // of)
    print(f"\r[{filled:<{width}}] {done} of {of} sizes", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _say(what: Any) -> None:
    print(f"\nonebit-report: {what}", file=sys.stderr, flush=True)


def _on_signals(handler) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(number, _frame):
    """A launcher may send several signals: the first one counts."""
    _on_signals(signal.SIG_IGN)
    raise Interrupted(f"interrupted by {signal.Signals(number).name}")


if __name__ == "__main__":
    run()
