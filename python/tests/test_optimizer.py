# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from ranks import on_ranks

import onebit

SHAPES = [(30, 40), (50,)]
KINDS = ["adam", "onebit_adam", "lamb", "onebit_lamb", "zero_one_adam"]


class Problem:
    """A quadratic: each rank has a target of its own; the mean of the targets is the optimum."""

    def __init__(self, rank, size):
        generators = [np.random.default_rng(r) for r in range(size)]
        targets = [[each.standard_normal(shape).astype("f4") for shape in SHAPES] for each in generators]
        self.optimum = [np.mean([t[i] for t in targets], axis=0) for i in range(len(SHAPES))]
        self.mine = targets[rank]
        self.parameters = [np.ones(shape, "f4") for shape in SHAPES]
        self.gradients = [np.zeros(shape, "f4") for shape in SHAPES]

    def tensors(self):
        return [onebit.Tensor(p, g, name=f"layer {i}") for i, (p, g) in enumerate(zip(self.parameters, self.gradients))]

    def backward(self):
        for parameter, gradient, target in zip(self.parameters, self.gradients, self.mine):
            np.subtract(parameter, target, out=gradient)

    def distance(self):
        return np.mean([np.abs(p - o).mean() for p, o in zip(self.parameters, self.optimum)])


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_agree_bit_for_bit_and_reach_the_optimum(kind):
    def run(comm):
        problem = Problem(comm.rank, comm.size)
        options = {} if kind in ("adam", "lamb") else {"freeze_step": 100}
        optimizer = onebit.Optimizer(comm, kind, problem.tensors(), 0.03, betas=(0.9, 0.99), **options)
        for step in range(600):
            problem.backward()
            if step == 450:
                optimizer.set_lr(0.003)
            optimizer.step()
        assert optimizer.info.steps == 600
        return problem.distance(), [p.tobytes() for p in problem.parameters]

    (distance, first), (_, second) = on_ranks(2, run)
    assert first == second
    assert distance < 0.1


def test_groups_gradient_scale_and_copies():
    def run(comm):
        weights = np.ones((2, 2000), "f4")
        copy = np.zeros((2, 2000), "f2")
        gradients = np.full((2, 2000), 64, "f2")
        optimizer = onebit.Optimizer(
            comm,
            "adam",
            [onebit.Tensor(weights[i], gradients[i], group=i, copy=copy[i]) for i in range(2)],
            groups=[{"lr": 0.1}, {"lr": 0.2, "betas": (0.5, 0.5), "weight_decay": 0.1, "no_compress": True}],
        )
        optimizer.set_gradient_scale(64)
        optimizer.step()
        np.testing.assert_allclose(weights[:, 0], [0.9, 0.78], rtol=1e-6)
        assert np.array_equal(copy, weights.astype("f2"))
        optimizer.set_lr(0.5, group=1)
        optimizer.step()
        np.testing.assert_allclose(weights[:, 0], [0.8, 0.78 - 0.5 * (1 + 0.078)], rtol=1e-5)

    on_ranks(2, run)


def test_settings_and_places_that_change():
    def run(comm):
        weights, gradients = np.ones(2000, "f4"), np.ones(2000, "f4")
        tensors = [onebit.Tensor(weights, gradients)]
        optimizer = onebit.Optimizer(comm, "adam", tensors, 0.1, max_grad_norm=1e9)
        optimizer.step()
        elsewhere = weights.copy()
        optimizer.set_parameters(0, elsewhere)
        optimizer.set_group(0, lr=0.5, betas=(0.9, 0.999), weight_decay=0.2)
        optimizer.set_max_grad_norm(1e-3)
        optimizer.step()
        np.testing.assert_allclose(weights, 0.9, rtol=1e-6)
        assert (elsewhere < 0.9 - 0.5 * 0.2 * 0.9).all() and comm.size * optimizer.info.grad_norm > 1
        with pytest.raises(onebit.InvalidArgument):
            optimizer.set_parameters(0, np.ones(3, "f4"))
        with pytest.raises(TypeError):
            optimizer.set_parameters(0, np.ones(2000))
        with pytest.raises(onebit.InvalidArgument):
            optimizer.set_group(0, lr=-1.0)
        with pytest.raises(TypeError):
            optimizer.set_group(0, rate=1.0)

    on_ranks(2, run)


def test_gradients_given_later():
    (comm,) = onebit.loopback(1)
    parameters = np.zeros(100, "f4")
    optimizer = onebit.Optimizer(comm, "adam", [(parameters,)], 0.1)
    with pytest.raises(onebit.InvalidArgument, match="gradients"):
        optimizer.step()
    optimizer.set_gradients(0, -np.ones(100, "f4"))  # nothing else refers to it
    optimizer.step()
    np.testing.assert_allclose(parameters, 0.1, rtol=1e-5)
    for wrong, error in (
        (np.ones(99, "f4"), onebit.InvalidArgument),
        (np.ones(100, "f2"), TypeError),
        (np.ones(100), TypeError),
    ):
        with pytest.raises(error):
            optimizer.set_gradients(0, wrong)


def test_nonfinite_cancel_and_errors():
    def run(comm):
        problem = Problem(comm.rank, comm.size)
        optimizer = onebit.Optimizer(comm, "onebit_adam", problem.tensors(), 0.01, freeze_step=5)
        for _ in range(10):
            problem.backward()
            optimizer.step()
        before = [p.tobytes() for p in problem.parameters]
        problem.gradients[0][0, 0] = np.inf if comm.rank == 1 else 0
        with pytest.raises(onebit.Nonfinite, match="rank 1"):
            optimizer.step()
        with pytest.raises(onebit.Cancelled, match="rank 0.*no time"):
            optimizer.cancel_step("no time") if comm.rank == 0 else optimizer.step()
        assert [p.tobytes() for p in problem.parameters] == before
        info = optimizer.info
        assert (info.steps, info.skipped, info.cancelled, info.frozen) == (10, 1, 1, 1)
        worker, server = optimizer.errors()
        assert worker.shape == server.shape == (1250,) and worker.any()
        optimizer.reset_error()
        assert not optimizer.errors()[0].any()

    on_ranks(2, run)


def test_moments_are_read_and_set():
    def run(comm):
        first, second = Problem(comm.rank, comm.size), Problem(comm.rank, comm.size)
        one, other = (onebit.Optimizer(comm, "adam", problem.tensors(), 0.01) for problem in (first, second))
        for _ in range(5):
            first.backward()
            one.step()
        other.set_steps(5)
        for tensor in range(2):
            second.parameters[tensor][:] = first.parameters[tensor]
            for which in ("exp_avg", onebit.State.EXP_AVG_SQ):
                other.set_state(tensor, which, one.get_state(tensor, which))
        for problem, optimizer in ((first, one), (second, other)):
            problem.backward()
            optimizer.step()
        assert all(np.array_equal(a, b) for a, b in zip(first.parameters, second.parameters))
        assert not one.get_state(0, "worker_error").any()
        with pytest.raises(onebit.InvalidArgument):
            other.set_state(0, "exp_avg", np.zeros(3, "f4"))
        with pytest.raises(onebit.InvalidArgument):
            other.get_state(0, "momentum")

    on_ranks(2, run)


def test_buckets_and_freeze_by_hand():
    def run(comm):
        problem = Problem(comm.rank, comm.size)
        optimizer = onebit.Optimizer(comm, "onebit_adam", problem.tensors(), 0.01, freeze_step="never", bucket_size=1)
        for step in range(4):
            problem.backward()
            optimizer.grad_ready(1)
            with pytest.raises(onebit.Busy):
                optimizer.reset_error()
            optimizer.grad_ready(0)
            optimizer.step()
            if step == 1:
                optimizer.freeze()
        assert optimizer.info.compressed_rounds == 2
        return problem.parameters[0].tobytes()

    assert len(set(on_ranks(2, run))) == 1


@pytest.mark.parametrize("how", ["bytes", "files"])
def test_state_continues_exactly(how, tmp_path):
    def made(comm):
        problem = Problem(comm.rank, comm.size)
        return problem, onebit.Optimizer(comm, "onebit_adam", problem.tensors(), 0.01, freeze_step=5)

    def go(problem, optimizer, steps):
        for _ in range(steps):
            problem.backward()
            optimizer.step()
        return [parameters.tobytes() for parameters in problem.parameters]

    def run(comm):
        first, second = made(comm), made(comm)
        go(*first, 10)
        if how == "bytes":
            second[1].unpack_state([bytes(first[1].pack_state())])
        else:
            first[1].save(tmp_path / "state")
            second[1].load(tmp_path / "state")
        assert go(*first, 3) == go(*second, 3)
        with pytest.raises(onebit.BadState):
            first[1].unpack_state([b"no state at all"])
        with pytest.raises(onebit.InvalidArgument):
            first[1].unpack_state([7])

    on_ranks(2, run)


@pytest.mark.parametrize(
    "node_size, asked, found",
    [(2, "two_level", onebit.Algorithm.TWO_LEVEL), (4, "two_level", onebit.Algorithm.PIPELINED),
     (2, "bruck", onebit.Algorithm.BRUCK)],
)
def test_the_form_of_exchanges(node_size, asked, found, monkeypatch):
    monkeypatch.setenv("ONEBIT_NODE_SIZE", str(node_size))

    def run(comm):
        problem = Problem(comm.rank, comm.size)
        optimizer = onebit.Optimizer(comm, "onebit_adam", problem.tensors(), 0.03, freeze_step=5, algorithm=asked)
        for _ in range(10):
            problem.backward()
            optimizer.step()
        info = optimizer.info
        assert info.compressed_rounds == 5 and info.algorithm == found and "asked for" in info.reason
        return b"".join(p.tobytes() for p in problem.parameters)

    assert len(set(on_ranks(4, run))) == 1


ONES = np.ones(100, "f4")


@pytest.mark.parametrize(
    "kind, tensors, options, error",
    [
        ("sgd", [(ONES, ONES * 2)], {}, onebit.InvalidArgument),
        ("adam", [(np.ones(100), None)], {}, TypeError),
        ("adam", [(np.ones(100, "f2"), None)], {}, TypeError),
        ("adam", [(ONES, np.ones(99, "f4"))], {}, onebit.InvalidArgument),
        ("adam", [(ONES, ONES)], {}, onebit.InvalidArgument),
        ("adam", [(ONES, None, 3)], {}, onebit.InvalidArgument),
        ("adam", [], {}, onebit.InvalidArgument),
        ("adam", [(ONES, None)], {"momentum": 0.9}, TypeError),
        ("adam", [(ONES, None)], {"betas": (1.5, 0.9)}, onebit.InvalidArgument),
        ("adam", [(ONES, None)], {"freeze_step": 5}, onebit.InvalidArgument),
        ("onebit_adam", [(ONES, None)], {"freeze_step": -1}, onebit.InvalidArgument),
        ("onebit_adam", [(ONES, None)], {"freeze_step": "later"}, onebit.InvalidArgument),
        ("onebit_adam", [(ONES, None)], {"algorithm": "dense"}, onebit.InvalidArgument),
        ("onebit_adam", [(ONES, None)], {"groups": [{"rate": 1}]}, TypeError),
    ],
)
def test_bad_settings(kind, tensors, options, error):
    (comm,) = onebit.loopback(1)
    with pytest.raises(error):
        onebit.Optimizer(comm, kind, tensors, **options)


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"kind": "sgd"}, "kind='sgd'"),
        ({"speed": 1}, "there is no option 'speed'"),
        ({"groups": [{"lr": "fast"}]}, "lr='fast'"),
        ({"tensors": [(np.zeros(100), np.zeros(100, np.float32))]}, "tensor 0: parameters has elements of"),
    ],
)
def test_a_creation_that_python_refuses_on_one_rank_fails_on_all_at_once(wrong, text):
    def run(comm):
        good = dict(kind="adam", tensors=[(np.zeros(100, np.float32), np.ones(100, np.float32))])
        with pytest.raises((ValueError, TypeError) if comm.rank == 1 else onebit.InvalidArgument) as caught:
            onebit.Optimizer(comm, **{**good, **(wrong if comm.rank == 1 else {})})
        assert text in str(caught.value) and (comm.rank == 1 or "rank 1" in str(caught.value))
        onebit.Optimizer(comm, **good).step()

    on_ranks(3, run)
