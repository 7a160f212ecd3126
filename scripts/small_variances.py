#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How should 1-bit Adam treat elements whose variance is small? Trains in NumPy by five ways, and tabulates in Markdown.

After the freeze a block has one scale s. In the papers an element moves by s / D, with D = sqrt(v) + eps. If this is
further than Adam can move, the element is guarded:
  momenta   not at all: as in the papers
  floor     D is at least s / bound
  exact     its momentum is averaged exactly, and does not contribute to s
  updates   no element needs a guard: g / D is compressed
The bound is Adam's largest step, (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2)), 7.3 for 0.9 and 0.999; s is
the scale at the freeze. Four ranks; v is frozen after step 1000, and not followed. Each block is a rank's chunk.

Before: pip install numpy scikit-learn
"""

import argparse

import numpy

RANKS = 4
FREEZE = 1000
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
BOUND = (1 - BETA1) / numpy.sqrt((1 - BETA2) * (1 - BETA1**2 / BETA2))
WAYS = ("dense", "momenta", "floor", "exact", "updates")


class Quadratic:
    steps, rate = 6000, 3e-3

    def __init__(self, seed):
        random = numpy.random.default_rng(seed)
        count = 400
        rotation = numpy.linalg.qr(random.standard_normal((count, count)))[0]
        self.axes = 10 ** random.uniform(-1, 1, count)
        self.hessian = self.axes[:, None] * (rotation * 10 ** numpy.linspace(-4, 2, count)) @ rotation.T * self.axes
        self.optimum = random.standard_normal(count) / self.axes
        self.start = numpy.zeros(count)

    def gradient(self, x, random):
        return self.hessian @ (x - self.optimum) + 0.01 * self.axes * random.standard_normal(len(x))

    def loss(self, x):
        return (x - self.optimum) @ self.hessian @ (x - self.optimum) / 2


class Logistic:
    steps, rate = 5000, 3e-2
    features, active, batch = 6000, 20, 16

    def __init__(self, seed):
        random = numpy.random.default_rng(seed)
        self.share = numpy.cumsum(1 / numpy.arange(1, self.features + 1) ** 1.1)
        self.share /= self.share[-1]
        self.weights = random.standard_normal(self.features)
        self.held_out = self.draw(random, 4000)
        self.start = numpy.zeros(self.features + 1)

    def draw(self, random, count):
        columns = numpy.searchsorted(self.share, random.random((count, self.active)))
        chance = 1 / (1 + numpy.exp(-self.weights[columns].sum(axis=1)))
        return columns, random.random(count) < chance

    def margins(self, x, columns):
        return x[columns].sum(axis=1) + x[-1]

    def gradient(self, x, random):
        columns, labels = self.draw(random, self.batch)
        slope = (1 / (1 + numpy.exp(-self.margins(x, columns))) - labels) / self.batch
        gradient = numpy.bincount(columns.ravel(), numpy.repeat(slope, self.active), len(x))
        gradient[-1] = slope.sum()
        return gradient

    def loss(self, x):
        columns, labels = self.held_out
        return numpy.logaddexp(0, numpy.where(labels, -1, 1) * self.margins(x, columns)).mean()


class Digits:
    steps, rate = 4000, 1e-2
    sizes = (64, 128, 10)

    def __init__(self, seed):
        from sklearn.datasets import load_digits # pylint: disable=import-outside-toplevel
        digits = load_digits()
        order = numpy.random.default_rng(1).permutation(len(digits.data))[:1400]
        self.pixels, self.labels = digits.data[order] / 16, digits.target[order]
        random = numpy.random.default_rng(seed)
        inputs, hidden, outputs = self.sizes
        self.start = numpy.concatenate([
            (random.standard_normal((inputs, hidden)) * numpy.sqrt(2 / inputs)).ravel(), numpy.zeros(hidden),
            (random.standard_normal((hidden, outputs)) * numpy.sqrt(2 / hidden)).ravel(), numpy.zeros(outputs)])

    def split(self, x):
        inputs, hidden, outputs = self.sizes
        first, first_bias, second, second_bias = numpy.split(
            x, numpy.cumsum([inputs * hidden, hidden, hidden * outputs]))
        return first.reshape(inputs, hidden), first_bias, second.reshape(hidden, outputs), second_bias

    def forward(self, x, pixels):
        first, first_bias, second, second_bias = self.split(x)
        hidden = numpy.maximum(pixels @ first + first_bias, 0)
        logits = hidden @ second + second_bias
        logits -= logits.max(axis=1, keepdims=True)
        return hidden, logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))

    def gradient(self, x, random):
        rows = random.integers(len(self.pixels), size=32)
        pixels = self.pixels[rows]
        hidden, logarithms = self.forward(x, pixels)
        slope = numpy.exp(logarithms)
        slope[numpy.arange(len(rows)), self.labels[rows]] -= 1
        slope /= len(rows)
        back = slope @ self.split(x)[2].T * (hidden > 0)
        return numpy.concatenate([(pixels.T @ back).ravel(), back.sum(axis=0), (hidden.T @ slope).ravel(),
                                  slope.sum(axis=0)])

    def loss(self, x):
        return -self.forward(x, self.pixels)[1][numpy.arange(len(self.labels)), self.labels].mean()


class Small:
    """Gradients without a loss: element 0's are `share` times as large as its neighbours'."""
    steps, rate = 1400, 1e-3

    def __init__(self, share):
        self.share = share
        self.start = numpy.zeros(1000)

    def gradient(self, _, random):
        gradient = random.standard_normal(1000)
        gradient[0] *= self.share
        return gradient


class Compressed:
    """An average over the ranks with error feedback at worker and server, a scale for each chunk."""

    def __init__(self, count, takes_part):
        self.takes_part = numpy.array_split(takes_part, RANKS)
        self.worker = numpy.zeros((RANKS, count))
        self.server = numpy.zeros(count)

    def encode(self, values):
        chunks = []
        for chunk, part in zip(numpy.array_split(values, RANKS), self.takes_part):
            scale = numpy.sqrt((chunk[part] ** 2).mean()) if part.any() else 0
            chunks.append(numpy.where(part, numpy.where(chunk >= 0, scale, -scale), 0))
        return numpy.concatenate(chunks)

    def average(self, values):
        sent = []
        for rank, own in enumerate(values):
            own = own + self.worker[rank]
            sent.append(self.encode(own))
            self.worker[rank] = own - sent[-1]
        mean = numpy.mean(sent, axis=0) + self.server
        result = self.encode(mean)
        self.server = mean - result
        part = numpy.concatenate(self.takes_part)
        self.worker[:, ~part] = self.server[~part] = 0
        return result


class Frozen:
    """The updates after the freeze, by one of the ways."""

    def __init__(self, way, m, v):
        self.way = way
        self.seen = v > 0
        self.denominator = numpy.where(self.seen, numpy.sqrt(v / (1 - BETA2**FREEZE)) + EPS, numpy.inf)
        scale = numpy.concatenate([numpy.full(len(c), numpy.sqrt((c**2).mean())) for c in numpy.array_split(m, RANKS)])
        least = scale / BOUND
        self.guarded = self.seen & (self.denominator < least) if way in ("floor", "exact") else numpy.zeros(len(v), bool)
        if way == "floor":
            self.denominator = numpy.maximum(self.denominator, least)
        self.m = m / self.denominator if way == "updates" else m * self.seen
        self.exchange = Compressed(len(v), self.seen & ~self.guarded if way == "exact" else self.seen)

    def update(self, gradients):
        if self.way == "updates":
            most = RANKS / numpy.sqrt(1 - BETA2)
            gradients = numpy.clip(gradients / self.denominator, -most, most)
        momenta = BETA1 * self.m + (1 - BETA1) * gradients * self.seen
        self.m = self.exchange.average(momenta)
        if self.way == "exact":
            self.m = numpy.where(self.guarded, momenta.mean(axis=0), self.m)
        return self.m if self.way == "updates" else self.m / self.denominator


def rate_at(problem, step):
    if isinstance(problem, Small):
        return problem.rate
    fade = (1 + numpy.cos(numpy.pi * step / problem.steps)) / 2
    return problem.rate * min(1, step / 100) * fade + problem.rate / 1000


def train(problem, way, seed):
    """The parameters at the end; how far element 0 went at most; the share of the elements that are guarded."""
    x = problem.start.copy()
    m, v = numpy.zeros_like(x), numpy.zeros_like(x)
    randoms = [numpy.random.default_rng((seed, rank)) for rank in range(RANKS)]
    frozen, farthest = None, 0
    for step in range(1, problem.steps + 1):
        gradients = numpy.array([problem.gradient(x, random) for random in randoms])
        if way != "dense" and step == FREEZE + 1:
            frozen = Frozen(way, m, v)
        if frozen is None:
            mean = gradients.mean(axis=0)
            m = BETA1 * m + (1 - BETA1) * mean
            v = BETA2 * v + (1 - BETA2) * mean**2
            update = m / (numpy.sqrt(v / (1 - BETA2**step)) + EPS)
        else:
            update = frozen.update(gradients)
        x -= rate_at(problem, step) / (1 - BETA1**step) * update
        farthest = max(farthest, abs(x[0] - problem.start[0]))
        if not numpy.isfinite(x).all():
            return x, numpy.inf, 0
    return x, farthest, frozen.guarded.mean() if frozen else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED", help="[1 2 3]")
    options = parser.parse_args()
    numpy.seterr(over="ignore", invalid="ignore") # some ways diverge
    print("| problem | seed | dense Adam | " + " | ".join(WAYS[1:]) + " | guarded |")
    print("| --- " * (3 + len(WAYS)) + "|")
    for kind in (Quadratic, Logistic, Digits):
        for seed in options.seeds:
            problem = kind(seed)
            runs = {way: train(problem, way, seed) for way in WAYS}
            cells = [f"{problem.loss(x):.3g}" if numpy.isfinite(x).all() else "fails" for x, _, _ in runs.values()]
            print(f"| {kind.__name__.lower()} | {seed} | " + " | ".join(cells) + f" | {100 * runs['exact'][2]:.1f} % |",
                  flush=True)
    print("\n| gradients' share of their neighbours' | dense Adam | " + " | ".join(WAYS[1:]) + " |")
    print("| --- " * (1 + len(WAYS)) + "|")
    for share in (1e-2, 1e-4, 1e-6, 1e-8):
        cells = [f"{train(Small(share), way, 1)[1]:.3g}" for way in WAYS]
        print(f"| {share:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
