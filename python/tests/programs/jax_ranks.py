# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit in JAX, on two ranks or more: jax_ranks.py COORDINATOR SIZE RANK. Prints "ok" on each."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import onebit
import onebit.jax

COORDINATOR, SIZE, RANK = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def parameters():
    rng = np.random.default_rng(1)
    return {"w": rng.standard_normal((20, 1)).astype(np.float32) * 0.1, "b": np.zeros(1, np.float32)}


def loss_of(parameters, inputs):
    return jnp.mean((inputs @ parameters["w"] + parameters["b"] - inputs[:, :1]) ** 2)


def batch(step, rank=RANK):
    return np.random.default_rng(1000 * step + rank).standard_normal((32, 20)).astype(np.float32)


def require_equal_on_ranks(comm, tree):
    """Ranks' bytes are one another's: their mean is each rank's own, bit by bit."""
    mine = np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in jax.tree_util.tree_leaves(tree)])
    bits = np.unpackbits(mine.view(np.uint8)).astype(np.float32)
    assert np.array_equal(onebit.Allreduce(comm, bits.size, algorithm="dense").run(bits.copy()), bits)


def averages_inside_jit(comm):
    start = parameters()
    average = onebit.jax.GradientAverage(comm, start, warmup_steps=50, algorithm="flat")

    @jax.jit
    def step(values, inputs):
        gradients = average(jax.grad(loss_of)(values, inputs))
        return jax.tree_util.tree_map(lambda value, gradient: value - 0.05 * gradient, values, gradients), gradients

    values = start
    for number in range(150):
        before = values
        values, gradients = step(values, batch(number))
        if number in (0, 49):
            exact = [jax.grad(loss_of)(before, batch(number, rank)) for rank in range(SIZE)]
            mean = jax.tree_util.tree_map(lambda *leaves: sum(leaves) / SIZE, *exact)
            np.testing.assert_allclose(gradients["w"], mean["w"], rtol=1e-4, atol=1e-5)
    assert average.steps == 150
    require_equal_on_ranks(comm, values)
    assert float(loss_of(values, batch(9999, 0))) < 0.2 * float(loss_of(start, batch(9999, 0)))


def small_gradients_do_not_drown(comm):
    """Of two leaves that share a scale."""
    rng = np.random.default_rng(RANK)
    gradients = [300 * rng.standard_normal(2000).astype(np.float32), rng.standard_normal(2000).astype(np.float32)]
    errors = {}
    for equalize in (False, True):
        average = onebit.jax.GradientAverage(comm, gradients, warmup_steps=3, equalize=equalize, algorithm="flat")
        exact = [average(gradients)[1] for _ in range(3)][-1]
        delivered = sum(np.asarray(average(gradients)[1], np.float64) for _ in range(100)) / 100
        errors[equalize] = np.linalg.norm(delivered - exact) / np.linalg.norm(exact)
    assert 4 * errors[True] < errors[False], errors


def training_goes_on_from_its_state(comm):
    """From the warm-up and from behind it."""
    for saved_at in (5, 20):
        first = onebit.jax.GradientAverage(comm, parameters(), warmup_steps=10, algorithm="flat")
        second = onebit.jax.GradientAverage(comm, parameters(), warmup_steps=10, algorithm="flat")
        for number in range(saved_at):
            jax.block_until_ready(first(jax.grad(loss_of)(parameters(), batch(number))))
        state = first.state_dict()
        second.load_state_dict(state)
        if RANK == SIZE - 1:
            state["error"] = state["error"][:-1]
        try:
            second.load_state_dict(state)
        except onebit.BadState as error:
            assert f"rank {SIZE - 1}" in str(error), error
        else:
            raise AssertionError("a truncated state was loaded")
        for number in range(saved_at, saved_at + 10):
            gradients = jax.grad(loss_of)(parameters(), batch(number))
            for one, other in zip(*map(jax.tree_util.tree_leaves, (first(gradients), second(gradients)))):
                assert np.array_equal(one, other)
        assert second.steps == saved_at + 10


def parameters_become_rank_0s(comm):
    odd = [np.nan, -0.0, 1e-42, np.inf, 1 / 3]
    trees = [
        {
            "float32": np.full((3, 5), odd, np.float32) * (rank + 1),
            "bfloat16": jnp.asarray(odd, jnp.bfloat16) - rank,
            "bytes": [np.arange(7, dtype=np.uint8) + rank, jnp.asarray(rank == 0), np.asfortranarray(np.eye(3)) - rank],
            "empty": jnp.zeros((0, 4)),
        }
        for rank in (0, RANK)
    ]
    result = onebit.jax.broadcast(comm, trees[1])
    first, structure = jax.tree_util.tree_flatten(trees[0])
    found, found_structure = jax.tree_util.tree_flatten(result)
    assert structure == found_structure
    for wanted, leaf in zip(first, found):
        assert (wanted.dtype, wanted.shape, type(wanted)) == (leaf.dtype, leaf.shape, type(leaf))
        assert np.asarray(wanted).tobytes() == np.asarray(leaf).tobytes(), (wanted, leaf)
    result["float32"][:] = 0  # NumPy's are for `onebit.Optimizer`, which writes to them
    many = np.full(1 << 24, RANK, np.uint8)  # more than one sum
    assert not onebit.jax.broadcast(comm, many).any() and (many == RANK).all()
    assert onebit.jax.broadcast(comm, []) == []


def trees_that_differ(comm):
    last = RANK == SIZE - 1
    for mine, others, own in (
        ([np.zeros(3)], [np.zeros(4)], onebit.Mismatch),
        ([np.zeros(3)], [np.zeros(3, np.int64)], onebit.Mismatch),
        ({"a": np.zeros(3)}, {"b": np.zeros(3)}, onebit.Mismatch),
        ([np.zeros(3), np.zeros(4)], [np.zeros(4), np.zeros(3)], onebit.Mismatch),
        ([object()], [np.zeros(3)], (TypeError, AttributeError)),
    ):
        kind = own if last else onebit.Mismatch
        for function in (onebit.jax.broadcast, onebit.jax.GradientAverage):
            try:
                function(comm, mine if last else others)
            except kind as error:
                assert not isinstance(error, onebit.Error) or f"rank {SIZE - 1} has " in str(error), error
            else:
                raise AssertionError(f"{function} of {mine} and {others}")


def a_peer_that_never_comes(comm):
    """The last check, for ranks have called for different numbers of communicators then."""
    if RANK < SIZE - 1:
        begin = time.monotonic()
        try:
            onebit.jax.communicator(timeout=1)
        except onebit.Error as error:
            assert "onebit/" in str(error.__cause__), error.__cause__
        else:
            raise AssertionError("a communicator without its last rank")
        assert time.monotonic() - begin < 20


def nonfinite_is_nonfinite_everywhere(comm):
    average = onebit.jax.GradientAverage(comm, parameters())
    gradients = parameters()
    gradients["b"][0] = np.nan if RANK == SIZE - 1 else 0
    averaged = jax.jit(average)(gradients)
    assert all(np.isnan(leaf).all() for leaf in jax.tree_util.tree_leaves(averaged))
    gradients["b"][0] = 0
    assert np.isfinite(average(gradients)["w"]).all()
    average = onebit.jax.GradientAverage(comm, [np.zeros(1, "f4")])  # fewer elements than ranks
    assert np.isnan(average([np.full(1, np.nan, "f4")])[0]).all()
    assert average([np.full(1, RANK, "f4")])[0] == (SIZE - 1) / 2


def other_types(comm):
    average = onebit.jax.GradientAverage(comm, [jnp.zeros(3, jnp.bfloat16)])
    (averaged,) = jax.jit(average)([jnp.full(3, float(RANK), jnp.bfloat16)])
    assert averaged.dtype == jnp.bfloat16 and float(averaged[0]) == (SIZE - 1) / 2


def refusals(comm):
    average = onebit.jax.GradientAverage(comm, parameters())
    for make, text in (
        (lambda: average({"w": jnp.zeros((20, 1))}), "wanted"),
        (lambda: average({"w": jnp.zeros((20, 2)), "b": jnp.zeros(1)}), "wanted"),
        (lambda: onebit.jax.GradientAverage(comm, []), "nothing to average"),
        (lambda: onebit.jax.GradientAverage(comm, parameters(), warmup_steps=-1), "at least 0"),
    ):
        try:
            make()
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


try:
    onebit.jax.communicator()
except RuntimeError as error:
    assert "jax.distributed.initialize" in str(error)
else:
    raise AssertionError("there is no store yet")
jax.distributed.initialize(COORDINATOR, SIZE, RANK)
for _ in range(2):  # one after the other
    communicator = onebit.jax.communicator(timeout=30)
    assert (communicator.rank, communicator.size) == (RANK, SIZE)
for check in (
    averages_inside_jit,
    small_gradients_do_not_drown,
    training_goes_on_from_its_state,
    parameters_become_rank_0s,
    *([] if SIZE == 1 else [trees_that_differ]),
    nonfinite_is_nonfinite_everywhere,
    other_types,
    refusals,
    *([] if SIZE == 1 else [a_peer_that_never_comes]),
):
    check(communicator)
print("ok", flush=True)
