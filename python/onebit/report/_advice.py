# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What follows from the times: whether compression pays, from which size on, and what a training step gains."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from onebit.report._measure import EXACT, STEP_COMPRESSED, STEP_EXACT, YOURS

EXACT_GAIN = 0.95
"""Share of the time: an exact average that takes more than this share of another one's time does not pay."""
CODEC_GAIN = 0.8
"""Share of the exact averages' time: a codec loses accuracy."""
STEP_GAIN = 1.1
"""A training that is so many times as fast is worth a change."""

_NEED_NO_WARMUP = ("int8", "int4", "fp4", "bfloat16", "float16")


class Curve:
    """Seconds by elements: straight lines between the measured points, and beyond the outer two."""

    def __init__(self, times: Sequence[Dict[str, Any]], way: str):
        self.points = sorted((time["elements"], time["seconds"]) for time in times if time["way"] == way)

    def __call__(self, elements: float) -> float:
        if len(self.points) == 1:
            size, seconds = self.points[0]
            return seconds * max(1.0, elements / size)
        later = next((i for i, (size, _) in enumerate(self.points) if size >= elements), len(self.points) - 1)
        (size, seconds), (next_size, next_seconds) = self.points[max(later, 1) - 1 : max(later, 1) + 1]
        slope = (next_seconds - seconds) / (next_size - size)
        if size <= elements <= next_size:
            return seconds + slope * (elements - size)
        slope = max(0.0, slope)  # more elements take no less time
        if elements > next_size:
            return next_seconds + slope * (elements - next_size)
        return max(0.0, seconds - slope * (size - elements))


class Gain(NamedTuple):
    """A way of onebit's, compared with the average that the ranks have without onebit."""

    way: str
    """EXACT, or a codec."""
    from_elements: Optional[int]
    """The smallest size measured from which on it pays; None: it does not at the largest."""
    times_as_fast: float
    """At the largest size measured."""


class StepGain(NamedTuple):
    """A training step of so many parameters. Times in seconds, without the forward and backward passes."""

    parameters: int
    optimizer: float
    """Adam, without any average."""
    now: float
    """The average that the ranks have without onebit, and Adam."""
    exact: float
    """Adam with onebit's exact average."""
    compressed: float
    """1-bit Adam, after its warm-up."""
    measured: bool
    """False: it is extrapolated."""

    def times_as_fast(self, passes: float) -> float:
        """1-bit Adam compared with now, with so many seconds of passes."""
        return (passes + self.now) / (passes + self.compressed)

    @property
    def pays_below(self) -> float:
        """The longest passes with which the whole step is STEP_GAIN times as fast; 0: with none."""
        return max(0.0, (self.now - STEP_GAIN * self.compressed) / (STEP_GAIN - 1))


def gains_of(report: Dict[str, Any]) -> List[Gain]:
    """Gains of all ranks together, the fastest first. Empty if nothing was measured."""
    times = _of_all_ranks(report)
    yours, exact = Curve(times, YOURS), Curve(times, EXACT)
    gains = []
    for way in dict.fromkeys(time["way"] for time in times):
        if way in (YOURS, STEP_EXACT, STEP_COMPRESSED):
            continue
        points = Curve(times, way).points
        pays = None
        for size, seconds in reversed(points):
            longest = EXACT_GAIN * yours(size) if way == EXACT else CODEC_GAIN * min(yours(size), exact(size))
            if seconds > longest:
                break
            pays = size
        size, seconds = points[-1]
        gains.append(Gain(way, pays, yours(size) / seconds))
    return sorted(gains, key=lambda gain: -gain.times_as_fast)


def step_gains(report: Dict[str, Any], parameters: Sequence[int]) -> List[StepGain]:
    """Gains of models of so many parameters. Empty if steps of fewer than two sizes were measured."""
    times = _of_all_ranks(report)
    yours, exact = Curve(times, YOURS), Curve(times, EXACT)
    adam, compressed = Curve(times, STEP_EXACT), Curve(times, STEP_COMPRESSED)
    if len(compressed.points) < 2:
        return []
    gains = []
    for d in parameters:
        optimizer = max(0.0, adam(d) - exact(d))
        measured = compressed.points[0][0] <= d <= compressed.points[-1][0]
        gains.append(StepGain(d, optimizer, yours(d) + optimizer, adam(d), compressed(d), measured))
    return gains


def verdict(report: Dict[str, Any]) -> List[str]:
    """The advice, a sentence each."""
    gains = {gain.way: gain for gain in gains_of(report)}
    if not gains:
        return ["Nothing was measured."]
    dense, exact = report["dense"], gains.pop(EXACT)
    paying = [gain for gain in gains.values() if gain.from_elements is not None]
    if not paying:
        sentences = [
            "Compression does not pay here.",
            f"At the largest size every codec takes more than {CODEC_GAIN:.0%} of an exact average's time.",
        ]
        if exact.from_elements is None:
            return [*sentences, f"onebit's exact average is no faster than {dense}: stay with what you have."]
        return [
            *sentences,
            f"onebit's exact average is {exact.times_as_fast:.1f} times as fast as {dense}: "
            'onebit.Allreduce(algorithm="dense").',
        ]
    best = paying[0]
    sentences = [
        f"Compression pays here: {best.way!r} from {count(best.from_elements)} elements on.",
        f"At the largest size it is {best.times_as_fast:.1f} times as fast as {dense}, and onebit's exact average "
        f"{exact.times_as_fast:.1f} times.",
    ]
    if best.way not in _NEED_NO_WARMUP:
        sentences.append(
            f"{best.way!r} needs an optimizer that is made for it: onebit.torch.OneBitAdam, OneBitLamb or "
            "ZeroOneAdam; without PyTorch onebit.Optimizer."
        )
    others = [gain for gain in paying if gain.way in _NEED_NO_WARMUP]
    if others:
        choices = ", ".join(f"{gain.way!r} ({gain.times_as_fast:.1f} times as fast)" for gain in others)
        sentences.append(
            f"With any optimizer: {choices}, by onebit.torch.ddp_hook or onebit.Allreduce. docs/CODECS.md says how far "
            "each is from an exact average."
        )
    return sentences


def count(elements: float) -> str:
    """A number of elements, short: 16 Ki and 1 Mi are powers of 1024, 10 M is 10 million."""
    if elements % 1000 == 0 or elements % 1024 != 0 or elements < 1024:
        for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if elements >= factor:
                return f"{elements / factor:g} {letter}"
        return str(elements)
    return f"{elements // 1024**2} Mi" if elements % 1024**2 == 0 else f"{elements // 1024} Ki"


def _of_all_ranks(report: Dict[str, Any]) -> List[Dict[str, Any]]:
    return report["levels"][0]["times"] if report["levels"] else []
