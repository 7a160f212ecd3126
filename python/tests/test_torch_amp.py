# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""torch's GradScaler with the optimizers here: all ranks skip together, and have one scale."""

import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this GradScaler needs a GPU")
COUNT = 600


def trained(comm, unscale, overflow_at, wrap=None):
    parameter = torch.nn.Parameter(torch.ones(COUNT))
    optimizer = onebit.torch.Adam([parameter], lr=0.1, betas=(0.0, 0.0), communicator=comm)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    step_and_update = wrap(optimizer, scaler) if wrap else None
    scales = []
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale((parameter * (1.0 + comm.rank)).sum()).backward()
        if step == overflow_at and comm.rank == 1:
            parameter.grad[5] = float("inf")
        if unscale:
            scaler.unscale_(optimizer)
        if step_and_update:
            step_and_update()
        else:
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
    return parameter.detach().clone(), scales, optimizer.info


@pytest.mark.parametrize("unscale", [False, True])
def test_every_rank_skips_and_lowers_its_scale(unscale):
    results = on_ranks(2, lambda comm: trained(comm, unscale, overflow_at=2))
    for parameter, scales, info in results:
        assert scales == [1024, 1024, 512, 512, 512, 1024]  # lowered once, and raised after three good steps
        assert (info.steps, info.skipped) == (5, 1)
        torch.testing.assert_close(parameter, torch.full((COUNT,), 0.5))


@pytest.mark.parametrize("unscale", [False, True])
def test_accelerates_optimizer_hides_no_step_from_the_scaler(unscale):
    accelerate = pytest.importorskip("accelerate")
    accelerate.Accelerator(cpu=True)

    def wrap(optimizer, scaler):
        return accelerate.optimizer.AcceleratedOptimizer(optimizer, scaler=scaler).step  # updates the scaler, too

    for _, scales, info in on_ranks(2, lambda comm: trained(comm, unscale, overflow_at=2, wrap=wrap)):
        assert scales == [1024, 1024, 512, 512, 512, 1024]
        assert (info.steps, info.skipped) == (5, 1)


def test_the_average_is_clipped_after_unscaling():
    def run(comm):
        parameter = torch.nn.Parameter(torch.ones(COUNT))
        optimizer = onebit.torch.Adam([parameter], max_grad_norm=1.0, communicator=comm)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        scaler.scale((parameter * (1.0 + 2 * comm.rank)).sum()).backward()
        scaler.step(optimizer)
        return optimizer.info.grad_norm

    assert abs(on_ranks(2, run)[0] - 2 * COUNT**0.5) < 1e-3


def test_a_scaler_that_does_not_hand_itself_over():
    (comm,) = onebit.loopback(1)
    optimizer = onebit.torch.Adam([torch.nn.Parameter(torch.ones(COUNT))], communicator=comm)
    optimizer.found_inf = torch.zeros(1)
    with pytest.raises(RuntimeError, match="GradScaler"):
        optimizer.step()
