# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Times of averages and of optimizers' steps, by size, at each level of the cluster.

The result is a dictionary that JSON can hold (`blank`). It is filled as times come in: after an interruption it has
the times so far.
"""

import datetime
import socket
import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy

import onebit
from onebit.report._ranks import Ranks

YOURS = "yours"
"""The average that the ranks have without onebit."""
EXACT = "exact"
"""onebit's own exact average."""
STEP_EXACT, STEP_COMPRESSED = "adam", "onebit_adam"
"""Steps of these optimizers; onebit_adam's are those after its warm-up."""

_SMALLEST, _FACTOR = 1024, 4
_SMALLEST_STEP = 65536  # elements: models are larger
_ROUND_SECONDS = 0.01
_MOST_CALLS, _FEWEST_ROUNDS, _MOST_ROUNDS = 200, 3, 15


class Plan(NamedTuple):
    """What is to be measured; the same on every rank."""

    max_elements: int
    seconds: float
    codecs: Sequence[str]

    def sizes(self, ranks: int) -> List[int]:
        """The largest is max_elements. Empty if that is less than the smallest that so many ranks can average."""
        size = max(_SMALLEST, 1 << (ranks - 1).bit_length())
        sizes = []
        while 2 * size <= self.max_elements:
            sizes.append(size)
            size *= _FACTOR
        return [*sizes, self.max_elements] if sizes or size <= self.max_elements else []


class Level(NamedTuple):
    """Ranks that average together."""

    name: str
    ranks: int
    """In a group. Groups average at the same time."""
    comm: Optional[onebit.Communicator]
    """None: this rank is in no group."""


class Way(NamedTuple):
    """One way to average, or one optimizer, of one size."""

    name: str
    call: Optional[Callable[[], Any]]
    """None: this rank takes no part."""
    details: Callable[[], Dict[str, Any]]
    """Facts about its last call."""


def blank(ranks: Ranks, command: str) -> Dict[str, Any]:
    """A report of who is measured, without times so far. Collective."""
    return {
        "onebit": onebit.__version__,
        "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        "command": command,
        "hosts": ranks.gather(socket.gethostname()),
        "transport": ranks.comm.info.transport,
        "dense": ranks.dense,
        "notes": sorted(set(ranks.gather(ranks.note)) - {""}),
        "levels": [],
        "unfinished": "it is still running",
    }


def measure(ranks: Ranks, plan: Plan, report: Dict[str, Any], progress: Callable[[int, int], None]) -> None:
    """Fills in the report. Collective. `progress` is told how many of how many sizes are done."""
    levels = _levels(ranks, report["hosts"])
    sizes = plan.sizes(len(report["hosts"]))
    jobs = [(level, size) for level in levels for size in sizes]
    end = time.monotonic() + plan.seconds
    report["levels"] = [
        {"name": level.name, "ranks": level.ranks, "times": [], "left_out": []} for level in levels
    ]
    expected = 0.0  # seconds that a size takes at least
    for done, (level, size) in enumerate(jobs):
        progress(done, len(jobs))
        measured = report["levels"][levels.index(level)]
        left = ranks.gather(end - time.monotonic())[0]
        if size != sizes[0] and expected > left:
            measured["left_out"].append(size)
            continue
        ways = _ways(ranks, plan, level, size)
        once = _time_once(ranks, ways)
        measured["times"] += _time(ranks, ways, size, once, left / (len(jobs) - done))
        expected = (_FEWEST_ROUNDS + 2) * sum(max(_ROUND_SECONDS, _FACTOR * seconds) for seconds in once)
        del ways  # and their memory, before the next ones have theirs
    progress(len(jobs), len(jobs))
    report["unfinished"] = None
    for level in levels[1:]:
        if level.comm is not None:
            level.comm.close()


# ---- levels and ways ----


def _levels(ranks: Ranks, hosts: Sequence[str]) -> List[Level]:
    """All ranks; with several hosts, one of them with several ranks, also each host's ranks, and one of each host."""
    names = list(dict.fromkeys(hosts))
    levels = [Level("all ranks", len(hosts), ranks.comm)]
    if 1 < len(names) < len(hosts):
        mine = hosts[ranks.comm.rank]
        is_first = hosts.index(mine) == ranks.comm.rank
        inside = ranks.comm.split(names.index(mine))
        across = ranks.comm.split(0 if is_first else None)
        levels.append(Level("inside a host", max(map(hosts.count, names)), inside))
        levels.append(Level("between hosts", len(names), across))
    return levels


def _ways(ranks: Ranks, plan: Plan, level: Level, size: int) -> List[Way]:
    """All ways that are measured of this size."""
    values = numpy.random.default_rng(ranks.comm.rank).standard_normal(size).astype(numpy.float32)
    result = numpy.empty_like(values)
    ways = []
    if level.comm is ranks.comm:
        zeros = numpy.zeros_like(values)  # a sum leaves them as they are, however often
        ways.append(Way(YOURS, lambda: ranks.sum(zeros), dict))
    for name in (EXACT, *plan.codecs):
        ways.append(_average(level, name, values, result))
    if level.comm is ranks.comm and size >= _SMALLEST_STEP:
        ways.extend(_step(level, kind, values) for kind in (STEP_EXACT, STEP_COMPRESSED))
    return ways


def _average(level: Level, name: str, values, result) -> Way:
    if level.comm is None:
        return Way(name, None, dict)
    options = {"algorithm": "dense"} if name == EXACT else {"codec": name}
    handle = onebit.Allreduce(level.comm, values, **options)

    def details():
        info = handle.info
        return {"algorithm": info.algorithm.name.lower(), "bytes": info.last_bytes_sent}

    return Way(name, lambda: handle.run(values, result), details)


def _step(level: Level, kind: str, values) -> Way:
    options = {"freeze_step": 1} if kind == STEP_COMPRESSED else {}
    tensor = onebit.Tensor(numpy.ones_like(values), values)
    optimizer = onebit.Optimizer(level.comm, kind, [tensor], lr=1e-6, **options)
    optimizer.step()  # the warm-up
    return Way(kind, optimizer.step, dict)


# ---- times ----


def _time_once(ranks: Ranks, ways: Sequence[Way]) -> List[float]:
    """Seconds of one call of each way, after a first call that makes the way ready."""
    for way in ways:
        _seconds_of(ranks, way, 1)
    return _longest(ranks, [_seconds_of(ranks, way, 1) for way in ways])


def _time(ranks: Ranks, ways: Sequence[Way], size: int, once: Sequence[float], seconds: float) -> List[Dict[str, Any]]:
    """The medians of rounds. In each round the ways come in turn. About so many seconds in all."""
    calls = [max(1, min(_MOST_CALLS, int(_ROUND_SECONDS / duration))) for duration in once]
    round_seconds = sum(number * duration for number, duration in zip(calls, once))
    rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(seconds / round_seconds)))
    mine: List[List[Optional[float]]] = [[] for _ in ways]
    for number in range(rounds):
        order = range(len(ways)) if number % 2 == 0 else reversed(range(len(ways)))
        for i in order:
            mine[i].append(_seconds_of(ranks, ways[i], calls[i]))
    longest = [_longest(ranks, times) for times in mine]
    return [
        {"way": way.name, "elements": size, "seconds": statistics.median(times), **way.details()}
        for way, times in zip(ways, longest)
    ]


def _seconds_of(ranks: Ranks, way: Way, calls: int) -> Optional[float]:
    """Seconds of a call. All ranks begin at once."""
    ranks.barrier()
    if way.call is None:
        return None
    begin = time.perf_counter()
    for _ in range(calls):
        way.call()
    return (time.perf_counter() - begin) / calls


def _longest(ranks: Ranks, mine: Sequence[Optional[float]]) -> List[float]:
    """The longest of all ranks' times, one by one."""
    return [max(time for time in times if time is not None) for times in zip(*ranks.gather(list(mine)))]
