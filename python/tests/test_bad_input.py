# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What users get wrong: an exception with the reason, on every rank where the call is collective, and no hang."""

import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ranks import MPIRUN, mpirun, on_ranks, run_program

import onebit
from onebit._store import Folder, StoreAllgather

COUNT = 300


class InGpuMemory:
    """What CuPy shows of an array; its memory is never touched."""

    __cuda_array_interface__ = {"data": (4096, False), "typestr": "<f4", "shape": (COUNT,), "version": 3}


def ones():
    return np.ones(COUNT, np.float32)


SHARED = ones()


def test_an_array_in_another_memory_is_refused_on_every_rank():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        if comm.rank == 1:
            with pytest.raises(onebit.InvalidArgument, match="send is in cuda memory; cpu wanted"):
                allreduce.run(InGpuMemory())
        else:
            with pytest.raises(onebit.InvalidArgument, match="rank 1"):
                allreduce.run(ones())

    on_ranks(2, run)


@pytest.mark.parametrize(
    "tensors, text",
    [
        ([(ones(),), (InGpuMemory(),)], "tensor 1: parameters are in cuda memory; cpu wanted"),
        ([(ones(), InGpuMemory())], "in cuda memory; 300 in cpu memory wanted"),
        ([(ones()[::2],)], "tensor 0: parameters is not contiguous"),
        ([(SHARED[:200],), (SHARED[150:],)], "overlap"),
    ],
)
def test_tensors_that_can_not_be_registered(tensors, text):
    (comm,) = onebit.loopback(1)
    with pytest.raises(onebit.InvalidArgument, match=text):
        onebit.Optimizer(comm, "adam", tensors)


def test_ranks_with_different_tensors():
    def run(comm):
        tensors = [(ones(),)] * 1 if comm.rank == 0 else [(ones(),), (ones(),)]
        with pytest.raises(onebit.Mismatch, match="rank 0 .*rank 1|rank 1 .*rank 0"):
            onebit.Optimizer(comm, "adam", tensors)

    on_ranks(2, run)


@pytest.mark.parametrize(
    "returned, cause",
    [
        (None, TypeError),
        ([1, 2], TypeError),
        ("both", TypeError),
        ([b"", b""], ValueError),
        ([], ValueError),
    ],
)
def test_a_bootstrap_that_returns_nonsense(returned, cause):
    def allgather(mine):
        return ["x" * len(mine)] * 2 if returned == "both" else returned

    with pytest.raises(onebit.Error) as caught:
        onebit.from_bootstrap(0, 2, allgather, timeout=5)
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("other", [lambda mine: mine, lambda mine: bytes(len(mine))])
def test_a_bootstrap_that_returns_another_ranks_bytes(other):
    with pytest.raises(onebit.InvalidArgument, match="place 1 of 2 has not what rank 1 gave"):
        onebit.from_bootstrap(0, 2, lambda mine: [mine, other(mine)], timeout=5)


def failures_of(communicator_of):
    """What two ranks, threads, fail with; both do."""
    failures = [None, None]

    def run(rank):
        try:
            communicator_of(rank)
        except onebit.Error as failure:
            failures[rank] = failure

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(failures)
    return failures


def test_an_interface_that_one_rank_does_not_have(tmp_path):
    interfaces = [None, "nowhere0"]
    for failure in failures_of(lambda r: onebit.from_folder(r, 2, tmp_path, interface=interfaces[r], timeout=5)):
        assert "nowhere0" in str(failure)


def test_a_peer_that_gives_up_on_the_way(tmp_path):
    """Rank 1 leaves after the first of the bootstrap's allgathers; rank 0 waits no longer than its timeout."""

    def make(rank):
        calls = []
        folder = Folder(tmp_path, 2.0)
        gather = StoreAllgather(rank, 2, folder.put, folder.get, "rank")

        def allgather(mine):
            calls.append(mine)
            if rank == 1 and len(calls) > 1:
                raise KeyboardInterrupt
            return gather(mine)

        onebit.from_bootstrap(rank, 2, allgather, timeout=2.0)

    begin = time.monotonic()
    first, second = failures_of(make)
    assert "has not come within 2 s" in str(first.__cause__)
    assert isinstance(second.__cause__, KeyboardInterrupt)
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("tcp_only", [0, 1])
@pytest.mark.parametrize(
    "leaves, kind, text",
    [(True, onebit.TransportError, "rank 1: it has destroyed"), (False, onebit.Timeout, "rank 1")],
)
@pytest.mark.parametrize("algorithm", ["flat", "ring"])
def test_a_peer_that_does_not_call(algorithm, leaves, kind, text, tcp_only, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEBIT_TCP_ONLY", str(tcp_only))
    answered = threading.Event()

    def call(rank):
        comm = onebit.from_folder(rank, 2, tmp_path, timeout=2)
        allreduce = onebit.Allreduce(comm, COUNT, algorithm=algorithm)
        if rank == 0:
            try:
                with pytest.raises(kind, match=text):
                    allreduce.run(ones())
            finally:
                answered.set()
        elif leaves:
            allreduce.close()
            comm.close()
        answered.wait(20)

    with ThreadPoolExecutor() as pool:
        list(pool.map(call, range(2)))


@pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no Open MPI")
def test_mpi_that_is_not_up():
    pytest.importorskip("mpi4py")
    assert mpirun(2, "mpi_finalized.py").count("ok") == 2


@pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no Open MPI")
@pytest.mark.parametrize("how", ["started", "waiting"])
@pytest.mark.parametrize("algorithm, size", [("flat", 2), ("ring", 2), ("two_level", 4)])
def test_mpi_that_ends_while_operations_are_under_way(algorithm, size, how):
    pytest.importorskip("mpi4py")
    assert mpirun(size, "mpi_finalized_in_flight.py", algorithm, how).count("ok") == size


def test_a_port_that_is_taken(tmp_path):
    """In a network namespace, the one place where all ports can be."""
    alone = ("unshare", "--map-root-user", "--net")
    if shutil.which("ip") is None or subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("needs iproute2, and root or user namespaces")
    assert run_program([*alone, sys.executable], "no_port.py", str(tmp_path)) == "ok\n"
