# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's users get wrong: an exception with the reason and the remedy, on every rank."""

import pytest
from ranks import as_torchrun, on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402


def parameter(*shape, **options):
    return torch.nn.Parameter(torch.ones(*shape, **options))


def stepped(comm, *parameters):
    """An optimizer that has made a step."""
    optimizer = onebit.torch.OneBitAdam(parameters, communicator=comm)
    for each in parameters:
        each.grad = torch.ones_like(each)
    optimizer.step()
    return optimizer


def without_memory(count=600):
    tensor = torch.empty(count)
    (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()).resize_(0)
    return tensor


def test_a_model_on_the_meta_device():
    (comm,) = onebit.loopback(1)
    with pytest.raises(ValueError, match="parameter 0 of group 0, .* is in meta memory: move the model"):
        onebit.torch.OneBitAdam([parameter(600, device="meta")], communicator=comm).step()


def test_parameters_that_overlap():
    (comm,) = onebit.loopback(1)
    shared = torch.ones(1000)
    with pytest.raises(onebit.InvalidArgument, match="parameter 0 of group 0, .* overlap"):
        stepped(comm, torch.nn.Parameter(shared[:600]), torch.nn.Parameter(shared[400:]))


def test_freed_memory_is_refused_on_every_rank():
    def run(comm):
        each = parameter(600)
        optimizer = stepped(comm, each)
        before = each.detach().clone()
        if comm.rank == 1:
            each.grad = without_memory()
            with pytest.raises(RuntimeError, match="parameter 0 .* a gradient whose memory was freed"):
                optimizer.step()
            each.grad = torch.ones(600)
            each.data = without_memory()
            with pytest.raises(RuntimeError, match="parameter 0 .* has no memory any more"):
                optimizer.step()
            each.data = before.clone()
        else:
            for _ in range(2):
                with pytest.raises(onebit.Cancelled, match="rank 1.*memory"):
                    optimizer.step()
        assert torch.equal(each, before)
        optimizer.step()

    on_ranks(2, run)


def test_a_parameter_that_has_fewer_elements_now():
    (comm,) = onebit.loopback(1)
    each = parameter(600)
    optimizer = stepped(comm, each)
    each.data, each.grad = torch.ones(300), torch.ones(300)
    with pytest.raises(RuntimeError, match="fewer elements"):
        optimizer.step()


@pytest.mark.parametrize(
    "shapes, text",
    [
        ([[(600,)], [(600,), (5,)]], r"different models: \[1, 2\] parameters"),
        ([[(600,)], [(500,)]], "1 of 1 parameters differ"),
        ([[(30, 20)], [(20, 30)]], "1 of 1 parameters differ"),
    ],
)
def test_ranks_with_different_models(shapes, text):
    def run(comm):
        with pytest.raises(onebit.Mismatch, match=text):
            stepped(comm, *[parameter(*shape) for shape in shapes[comm.rank]])

    on_ranks(2, run)


@pytest.mark.filterwarnings("ignore:1 parameters have no gradient")
def test_a_step_before_backward():
    def run(comm):
        tensor = parameter(600)
        optimizer = onebit.torch.OneBitAdam([tensor], communicator=comm)
        if comm.rank == 0:
            tensor.grad = torch.ones(600)
        error, text = (onebit.Cancelled, "rank 1: .*before backward") if comm.rank == 0 else (RuntimeError, "before backward")
        with pytest.raises(error, match=text):
            optimizer.step()
        tensor.grad = torch.ones(600)  # nothing is lost
        optimizer.step()
        tensor.grad = None  # as zeros, once there was one
        optimizer.step()
        assert optimizer.info.steps == 2

    on_ranks(2, run)


def test_process_groups():
    assert as_torchrun(2, "bad_input.py").count("ok\n") == 2
