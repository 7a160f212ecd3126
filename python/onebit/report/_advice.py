# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What follows from the times: whether compression pays, from which size on, and what a training step gains."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from onebit.report._measure import EXACT, STEP_COMPRESSED, STEP_EXACT, YOURS

_EXACT_GAIN = 0.95  # of the time: an exact average that takes longer does not pay
_CODEC_GAIN = 0.8  # of the exact averages' time: a codec loses accuracy
_STEP_GAIN = 1.1  # a training that is so many times quicker is worth a change


class Curve:
    """Seconds by elements: straight lines between what was measured, and beyond the last two."""

    def __init__(self, times: Sequence[Dict[str, Any]], way: str):
        self.points = sorted((time["elements"], time["seconds"]) for time in times if time["way"] == way)

    def __bool__(self) -> bool:
        return bool(self.points)

    def __call__(self, elements: float) -> float:
        if len(self.points) == 1:
            size, seconds = self.points[0]
            return seconds * max(1.0, elements / size)
        later = next((i for i, (size, _) in enumerate(self.points) if size >= elements), len(self.points) - 1)
        (size, seconds), (next_size, next_seconds) = self.points[max(later, 1) - 1 : max(later, 1) + 1]
        slope = max(0.0, (next_seconds - seconds) / (next_size - size))
        return max(0.0, seconds + slope * (elements - size))


class Gain(NamedTuple):
    """A way of onebit's beside the average that the ranks have without it."""

    way: str
    """EXACT, or a codec."""
    from_elements: Optional[int]
    """The smallest size measured from which on it pays; None: it does not at the largest."""
    times_quicker: float
    """Than what the ranks have, at the largest size measured."""


class StepGain(NamedTuple):
    """A training step of so many parameters. Times in seconds."""

    parameters: int
    optimizer: float
    """Of it Adam alone."""
    now: float
    """The average that the ranks have without onebit, and Adam."""
    exact: float
    """Adam with onebit's exact average."""
    compressed: float
    """1-bit Adam, after its warm-up."""
    measured: bool
    """Whether steps of so many elements were; else it follows from smaller ones."""

    def times_quicker(self, compute: float) -> float:
        """With so many seconds of forward and backward passes beside it."""
        return (compute + self.now) / (compute + self.compressed)

    @property
    def pays_below(self) -> float:
        """The longest passes with which a step becomes a tenth quicker; 0: with none."""
        return max(0.0, (self.now - _STEP_GAIN * self.compressed) / (_STEP_GAIN - 1))


def gains_of(report: Dict[str, Any]) -> List[Gain]:
    """Of all ranks together, the quickest first. None where nothing was measured."""
    times = report["levels"][0]["times"] if report["levels"] else []
    yours, exact = Curve(times, YOURS), Curve(times, EXACT)
    gains = []
    for way in dict.fromkeys(time["way"] for time in times):
        if way in (YOURS, STEP_EXACT, STEP_COMPRESSED):
            continue
        points = Curve(times, way).points
        pays = None
        for size, seconds in reversed(points):
            longest = _EXACT_GAIN * yours(size) if way == EXACT else _CODEC_GAIN * min(yours(size), exact(size))
            if seconds > longest:
                break
            pays = size
        size, seconds = points[-1]
        gains.append(Gain(way, pays, yours(size) / seconds))
    return sorted(gains, key=lambda gain: -gain.times_quicker)


def step_gains(report: Dict[str, Any], parameters: Sequence[int]) -> List[StepGain]:
    """Of models of so many parameters. None where no steps were measured."""
    times = report["levels"][0]["times"] if report["levels"] else []
    yours, exact = Curve(times, YOURS), Curve(times, EXACT)
    adam, compressed = Curve(times, STEP_EXACT), Curve(times, STEP_COMPRESSED)
    if not compressed:
        return []
    largest = compressed.points[-1][0]
    gains = []
    for d in parameters:
        optimizer = max(0.0, adam(d) - exact(d))
        gains.append(StepGain(d, optimizer, yours(d) + optimizer, adam(d), compressed(d), d <= largest))
    return gains


def verdict(report: Dict[str, Any]) -> List[str]:
    """The advice, a sentence each."""
    gains = gains_of(report)
    if not gains:
        return ["Nothing was measured."]
    dense = report["dense"]
    exact = next(gain for gain in gains if gain.way == EXACT)
    paying = [gain for gain in gains if gain.from_elements is not None and gain.way != EXACT]
    if not paying:
        sentences = [
            "Compression does not pay here: at the largest size no codec is a fifth quicker than an exact average."
        ]
        if exact.from_elements is None:
            return [*sentences, f"Neither is onebit's exact average quicker than {dense}: stay with what you have."]
        return [
            *sentences,
            f"onebit's exact average is {exact.times_quicker:.1f} times quicker than {dense}: "
            'onebit.Allreduce(algorithm="dense").',
        ]
    best = paying[0]
    sentences = [
        f"Compression pays here from {count(best.from_elements)} elements on.",
        f"At the largest size {best.way!r} is {best.times_quicker:.1f} times quicker than {dense}; onebit's exact "
        f"average is {exact.times_quicker:.1f} times as quick.",
    ]
    if best.way == "sign":
        sentences.append(
            "It sends one bit for each element, and needs an optimizer that is made for it: onebit.torch.OneBitAdam, "
            "OneBitLamb or ZeroOneAdam, onebit.Optimizer without PyTorch."
        )
    near = [gain for gain in paying if gain.way in ("int8", "int4")]
    if near:
        choices = " and ".join(f"{gain.way!r} ({gain.times_quicker:.1f} times quicker)" for gain in near)
        sentences.append(
            f"Where your optimizer has to stay: {choices}, by onebit.torch.ddp_hook or onebit.Allreduce. "
            "docs/CODECS.md says how far they are from an exact average."
        )
    return sentences


def count(elements: float) -> str:
    """Of elements, short: 16 Ki, 1 Mi are powers of 1024; 10 M is 10 million."""
    if elements >= 1024 and elements % 1024 == 0:
        return f"{elements // 1024**2} Mi" if elements % 1024**2 == 0 else f"{elements // 1024} Ki"
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if elements >= factor:
            return f"{elements / factor:g} {letter}"
    return str(elements)
