# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges of the PyTorch optimizers that begin in the backward pass."""

import contextlib
import gc

import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402
from onebit.torch import _early  # noqa: E402

KINDS = [onebit.torch.Adam, onebit.torch.OneBitAdam, onebit.torch.OneBitLamb, onebit.torch.ZeroOneAdam]
WIDTH = 45  # odd buckets: 45 x 20, 45, 45 x 45, 45, 45
needs_hooks = pytest.mark.skipif(not _early.CAN_BEGIN, reason="no hook after a gradient's accumulation")


class Training:
    def __init__(self, comm, kind=onebit.torch.OneBitAdam, **options):
        self.comm = comm
        torch_generator = torch.Generator().manual_seed(1)
        linear = torch.nn.Linear
        self.net = torch.nn.Sequential(linear(20, WIDTH), torch.nn.Tanh(), linear(WIDTH, WIDTH), linear(WIDTH, 1))
        self.unused = torch.nn.Parameter(torch.ones(300))
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=torch_generator) * 0.3)
        if kind is not onebit.torch.Adam:
            options = {"freeze_step": 4, **options}
        parameters = [*self.net.parameters(), self.unused]
        self.optimizer = kind(parameters, lr=1e-2, communicator=comm, bucket_size=1000, **options)

    def backward(self, seed, scale=lambda loss: loss):
        generator = torch.Generator().manual_seed(100 * seed + self.comm.rank)
        inputs = torch.randn(16, 20, generator=generator)
        loss = torch.nn.functional.mse_loss(self.net(inputs), inputs[:, :1] * inputs[:, 1:2])
        scale(loss).backward()
        return loss

    def step(self, seed):
        self.optimizer.zero_grad()
        self.backward(seed)
        self.optimizer.step()

    def bytes(self):
        return b"".join(p.detach().numpy().tobytes() for p in self.net.parameters())


def begun(optimizer):
    """Whether the step has begun: nothing that needs to be between steps is possible."""
    try:
        optimizer.state_dict()
    except onebit.Busy:
        return True
    return False


@needs_hooks
@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_bits_are_those_of_a_step_that_begins_by_itself(kind, size, accumulated):
    def run(early):
        def on_rank(comm):
            training = Training(comm, kind)
            optimizer = training.optimizer
            for step in range(12):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                optimizer.param_groups[0]["lr"] = 1e-2 / (1 + step)
                for part in range(accumulated):
                    last = early and part + 1 == accumulated
                    with contextlib.nullcontext() if last else optimizer.no_sync():
                        training.backward(10 * step + part)
                assert begun(optimizer) == (early and step > 0)
                optimizer.step()
            return training.bytes()

        return on_ranks(size, on_rank)

    assert run(early=True) == run(early=False)


@needs_hooks
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_closure():
    def run(comm):
        one, other = Training(comm), Training(comm)
        for step in range(7):
            one.step(step)

            def closure(step=step):
                other.optimizer.zero_grad()
                return other.backward(step)

            assert other.optimizer.step(closure) > 0
        assert one.bytes() == other.bytes()

    on_ranks(2, run)


@needs_hooks
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_second_backward_pass_ends_the_step_on_all_ranks():
    def run(comm):
        training = Training(comm)
        training.step(0)
        before = training.bytes()
        training.optimizer.zero_grad()
        training.backward(1)
        if comm.rank == 1:
            with pytest.raises(RuntimeError, match=r"got its gradient twice.*no_sync\(\)"):
                training.backward(2)
        with pytest.raises(RuntimeError if comm.rank == 1 else onebit.Cancelled, match="gradient twice"):
            training.optimizer.step()
        assert training.bytes() == before
        training.step(3)
        assert training.optimizer.info.steps == 2

    on_ranks(2, run)


@needs_hooks
@pytest.mark.parametrize("change", ["clip", "replace", "lr"])
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_what_changes_after_the_backward_pass_ends_the_step_on_all_ranks(change):
    def run(comm):
        training = Training(comm)
        training.step(0)
        before = training.bytes()
        training.optimizer.zero_grad()
        training.backward(1)
        if comm.rank == 0:
            if change == "clip":
                torch.nn.utils.clip_grad_norm_(training.net.parameters(), 1e-3)
            elif change == "replace":
                training.net[0].bias.grad = torch.zeros(WIDTH)
            else:
                training.optimizer.param_groups[0]["lr"] = 5.0
        with pytest.raises(RuntimeError if comm.rank == 0 else onebit.Cancelled, match="changed"):
            training.optimizer.step()
        assert training.bytes() == before
        training.optimizer.param_groups[0]["lr"] = 1e-2
        training.step(2)
        assert training.optimizer.info.steps == 2

    on_ranks(2, run)


@needs_hooks
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_step_is_given_up_after_the_backward_pass():
    def run(comm):
        training, rival = Training(comm), Training(comm)
        for step in range(8):
            training.optimizer.zero_grad()
            training.backward(50 + step)
            training.optimizer.cancel_step("a test")
            training.step(step)
            rival.step(step)
        assert training.bytes() == rival.bytes()

    on_ranks(2, run)


@needs_hooks
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_nonfinite_gradients_change_nothing():
    def run(comm):
        training = Training(comm)
        training.step(0)
        before = training.bytes()
        training.optimizer.zero_grad()
        training.backward(1, lambda loss: loss * (float("nan") if comm.rank == 1 else 1.0))
        with pytest.raises(onebit.Nonfinite, match="rank 1"):
            training.optimizer.step()
        assert training.bytes() == before
        training.step(2)

    on_ranks(2, run)


@needs_hooks
@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this GradScaler needs a GPU")
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_grad_scaler():
    def run(early, comm):
        training = Training(comm)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        scales = []
        for step in range(10):
            training.optimizer.zero_grad()
            with contextlib.nullcontext() if early else training.optimizer.no_sync():
                overflow = step == 6 and comm.rank == 1
                training.backward(step, lambda loss: scaler.scale(loss) * (float("inf") if overflow else 1.0))
            scaler.step(training.optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        assert training.optimizer.info.skipped == 1
        return training.bytes(), scales

    early = on_ranks(2, lambda comm: run(True, comm))
    assert early == on_ranks(2, lambda comm: run(False, comm))
    assert early[0][1][5:7] == [512.0, 256.0]


@needs_hooks
@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this GradScaler needs a GPU")
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_gradients_that_are_unscaled_have_changed():
    (comm,) = onebit.loopback(1)
    training = Training(comm)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(2):
        training.optimizer.zero_grad()
        training.backward(step, scaler.scale)
        scaler.unscale_(training.optimizer)
        if step == 0:
            scaler.step(training.optimizer)
            scaler.update()
        else:
            with pytest.raises(RuntimeError, match="GradScaler's scale"):
                scaler.step(training.optimizer)


@needs_hooks
@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_model_outlives_its_optimizer():
    (comm,) = onebit.loopback(1)
    training = Training(comm)
    training.step(0)
    training.optimizer.close()
    training.backward(1)
    training = Training(comm)
    training.step(0)
    training.optimizer = None
    gc.collect()
    training.backward(1)


def test_without_buckets_no_sync_does_nothing():
    (comm,) = onebit.loopback(1)
    parameter = torch.nn.Parameter(torch.ones(100))
    optimizer = onebit.torch.Adam([parameter], communicator=comm)
    for _ in range(2):
        with optimizer.no_sync():
            parameter.sum().backward()
        parameter.sum().backward()
        optimizer.step()
    assert optimizer.info.steps == 2


@pytest.mark.skipif(_early.CAN_BEGIN, reason="exchanges can begin in the backward pass")
def test_a_word_where_pytorch_has_no_hook():
    (comm,) = onebit.loopback(1)
    parameter = torch.nn.Parameter(torch.ones(100))
    optimizer = onebit.torch.OneBitAdam([parameter], communicator=comm, bucket_size="suggested")
    parameter.sum().backward()
    with pytest.warns(UserWarning, match="no hook after a gradient's accumulation"):
        optimizer.step()
    optimizer.step()
