# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in a GPU's memory beside the same in the host's: bits, streams, and what goes on in a backward pass.

Skipped without a GPU. ONEBIT_TEST_DEVICE=cpu runs it there without one: that looks at the tests, not at the GPU.
"""

import contextlib
import os

import pytest
from ranks import as_torchrun, on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402
from onebit.torch import _early  # noqa: E402

DEVICE = os.environ.get("ONEBIT_TEST_DEVICE", "cuda")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

FREEZING = [onebit.torch.OneBitAdam, onebit.torch.OneBitLamb, onebit.torch.ZeroOneAdam]
KINDS = [onebit.torch.Adam, onebit.torch.Lamb, *FREEZING]
SIZES = [5000, 1, 4096, 33, 20001]
STEPS = 12


def own_stream(device):
    """Each rank of a program has a stream; ranks that are threads of this process, too."""
    return contextlib.nullcontext() if device == "cpu" else torch.cuda.stream(torch.cuda.Stream())


def numbers(count, seed):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def parameters_on(device, dtype=torch.float32):
    return [torch.nn.Parameter((0.1 * numbers(n, n)).to(device, dtype)) for n in SIZES]


def slopes(comm, step, device, dtype):
    return [numbers(n, 1000 * step + 10 * i + comm.rank).to(device, dtype) for i, n in enumerate(SIZES)]


def backward(parameters, gradients):
    """A backward pass that gives exactly these gradients, on any device."""
    sum((parameter * gradient).sum() for parameter, gradient in zip(parameters, gradients)).backward()


def options_of(kind):
    return {"freeze_step": 4} if kind in FREEZING else {}


def train(comm, kind, device, dtype=torch.float32, steps=STEPS, state=None, **options):
    """Returns the parameters' bytes after each step, and the optimizer."""
    with own_stream(device):
        parameters = parameters_on(device, dtype)
        optimizer = kind(parameters, lr=1e-2, communicator=comm, **{**options_of(kind), **options})
        history = []
        for step in range(steps):
            optimizer.zero_grad()
            backward(parameters, slopes(comm, step, device, dtype))
            optimizer.step()
            history.append(bytes_of(parameters))
    return history, optimizer


def bytes_of(parameters):
    return b"".join(p.detach().cpu().view(torch.uint8).numpy().tobytes() for p in parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_the_hosts(kind, dtype):
    on_host = on_ranks(2, lambda comm: train(comm, kind, "cpu", dtype)[0])
    on_gpu = on_ranks(2, lambda comm: train(comm, kind, DEVICE, dtype)[0])
    for host, gpu in zip(on_host, on_gpu):
        different = [step for step in range(STEPS) if host[step] != gpu[step]]
        assert not different, f"steps {different}"
    assert len(set(on_gpu[0])) == STEPS


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_bits_are_the_hosts(kind):
    on_host = on_ranks(2, lambda comm: train(comm, kind, "cpu", max_grad_norm=1.0)[0])
    assert on_ranks(2, lambda comm: train(comm, kind, DEVICE, max_grad_norm=1.0)[0]) == on_host


@pytest.mark.skipif(not _early.CAN_BEGIN, reason="no hook after a gradient's accumulation")
@pytest.mark.parametrize("kind", [onebit.torch.Adam, *FREEZING])
def test_an_exchange_that_begins_in_the_backward_pass_has_the_hosts_bits(kind):
    on_host = on_ranks(2, lambda comm: train(comm, kind, "cpu", bucket_size=6000)[0])
    assert on_ranks(2, lambda comm: train(comm, kind, DEVICE, bucket_size=6000)[0]) == on_host


@pytest.mark.parametrize("kind", FREEZING)
def test_a_state_goes_on_in_the_hosts_memory(kind):
    def run(comm):
        with own_stream(DEVICE):
            _, optimizer = train(comm, kind, DEVICE, steps=7)
            state = optimizer.state_dict()
            ends = []
            for device in (DEVICE, "cpu"):
                moved = [p.detach().clone().to(device) for p in optimizer.param_groups[0]["params"]]
                parameters = [torch.nn.Parameter(p) for p in moved]
                other = kind(parameters, lr=1e-2, communicator=comm, **options_of(kind))
                other.load_state_dict(state)
                for step in range(7, 11):
                    other.zero_grad()
                    backward(parameters, slopes(comm, step, device, torch.float32))
                    other.step()
                ends.append(bytes_of(parameters))
            return ends

    for on_gpu, on_host in on_ranks(2, run):
        assert on_gpu == on_host


def test_work_waits_for_its_stream():
    """Kernels before a call may still run when it is made, and those behind it see what it has written."""

    def run(comm):
        with own_stream(DEVICE):
            values = torch.zeros(300_000, device=DEVICE)
            stream = 0 if DEVICE == "cpu" else torch.cuda.current_stream().cuda_stream
            dense, compressed = (onebit.Allreduce(comm, values, algorithm=a, stream=stream) for a in ("dense", "flat"))
            for turn in range(5):
                if DEVICE != "cpu":
                    torch.cuda._sleep(20_000_000)
                values.fill_(float(turn + comm.rank))
                dense.run(values)
                values += 1
                compressed.run(values)  # all elements are alike: one scale says it all
                values *= 2
                if not torch.allclose(values, torch.full_like(values, 2 * (turn + 1.5)), rtol=1e-5):
                    return f"turn {turn}: {values[:3].tolist()} ... {values[-3:].tolist()}"
        return ""

    assert on_ranks(2, run) == ["", ""]


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this GradScaler is of a GPU alone")
def test_a_gradient_scaler_skips_a_step_with_infinities():
    def run(comm):
        with own_stream(DEVICE):
            parameters = parameters_on(DEVICE)
            optimizer = onebit.torch.OneBitAdam(parameters, lr=1e-2, communicator=comm, freeze_step=4)
            scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
            before = bytes_of(parameters)
            for step in range(8):
                optimizer.zero_grad()
                gradients = slopes(comm, step, DEVICE, torch.float32)
                if step == 5 and comm.rank == 1:
                    gradients[4][777] = float("inf")
                scaled = scaler.scale(sum((p * g).sum() for p, g in zip(parameters, gradients)))
                scaled.backward()
                scaler.step(optimizer)
                scaler.update()
                after = bytes_of(parameters)
                assert (after == before) == (step == 5), step
                before = after
            assert scaler.get_scale() == 512.0
        return before

    ends = on_ranks(2, run)
    assert ends[0] == ends[1]


def test_nan_on_one_rank_is_told_on_all():
    def run(comm):
        with own_stream(DEVICE):
            parameters = parameters_on(DEVICE)
            optimizer = onebit.torch.OneBitAdam(parameters, lr=1e-2, communicator=comm, freeze_step=2)
            for step in range(4):
                gradients = slopes(comm, step, DEVICE, torch.float32)
                if step == 3 and comm.rank == 0:
                    gradients[2][5] = float("nan")
                optimizer.zero_grad()
                backward(parameters, gradients)
                if step < 3:
                    optimizer.step()
            before = bytes_of(parameters)
            with pytest.raises(onebit.Nonfinite):
                optimizer.step()
            assert bytes_of(parameters) == before
        return ""

    assert on_ranks(2, run) == ["", ""]


def test_the_wrong_memory_is_named():
    (comm,) = onebit.loopback(1)
    values = torch.ones(1000, device=DEVICE)
    handle = onebit.Allreduce(comm, values)
    if DEVICE == "cuda":
        with pytest.raises(onebit.InvalidArgument, match="cpu memory; cuda wanted"):
            handle.run(torch.ones(1000))


@pytest.mark.parametrize("module", ["cupy", "jax"])
def test_arrays_of_others(module):
    pytest.importorskip(module)
    if DEVICE != "cuda":
        pytest.skip("of a GPU")

    def run(comm):
        with own_stream(DEVICE):
            if module == "cupy":
                import cupy

                array = cupy.full(3001, float(comm.rank), dtype=cupy.float32)
                cupy.cuda.Device().synchronize()
            else:
                import jax

                array = jax.block_until_ready(jax.numpy.full(3001, float(comm.rank), dtype="float32"))
                if next(iter(array.devices())).platform != "gpu":
                    return None
            out = torch.empty(3001, device="cuda")
            onebit.Allreduce(comm, out, algorithm="dense").run(array, out)
            torch.cuda.synchronize()
            return out.unique().tolist()

    results = on_ranks(2, run)
    if results[0] is None:
        pytest.skip("this JAX has no GPU")
    assert results == [[0.5], [0.5]]


@pytest.mark.parametrize("transport", ["tcp", "nccl"])
def test_processes_that_share_a_gpu(transport, monkeypatch):
    if transport == "nccl" and DEVICE == "cpu":
        pytest.skip("of GPUs")
    monkeypatch.setenv("ONEBIT_TEST_DEVICE", DEVICE)
    output = as_torchrun(2, "cuda_ranks.py", transport)
    print(output)
    assert output.splitlines().count("ok") == 2
