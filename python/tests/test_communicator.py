# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from ranks import MPIRUN, mpirun, on_ranks

import onebit
from onebit import _errors, _mpi
from onebit._values import Status


def test_loopback():
    comms = onebit.loopback(3)
    assert [(comm.rank, comm.size) for comm in comms] == [(0, 3), (1, 3), (2, 3)]
    assert comms[0].info.transport == "loopback"
    assert "rank 1 of 3, loopback" in repr(comms[1])
    comms[1].close()
    assert "closed" in repr(comms[1])
    with pytest.raises(onebit.InvalidHandle):
        comms[1].info


@pytest.mark.parametrize("ranks", [0, -1])
def test_no_ranks(ranks):
    with pytest.raises(onebit.InvalidArgument):
        onebit.loopback(ranks)


def test_bad_arguments():
    (comm,) = onebit.loopback(1)
    with pytest.raises(onebit.InvalidArgument):
        comm.empty(0)
    with pytest.raises(onebit.InvalidArgument):
        comm.tune(100, -1.0)
    with pytest.raises(onebit.InvalidArgument, match="codecs"):
        comm.tune(100, 0.1, codecs=[])
    with pytest.raises(onebit.InvalidArgument, match=r"codecs\[1\]"):
        comm.tune(100, 0.1, codecs=["int8", "int9"])


def test_every_status_has_an_exception():
    for status in Status:
        if status is not Status.SUCCESS:
            assert _errors.of_status(status, "why").status is status
    assert type(_errors.of_status(99, "why")) is onebit.Error


@pytest.mark.parametrize("seconds", [0.01])
def test_tune(seconds, tmp_path):
    (comm,) = onebit.loopback(1)
    comm.tune(1024, seconds, tmp_path / "table.json")
    assert "codecs" not in (tmp_path / "table.json").read_text()
    comm.tune(1024, seconds, tmp_path / "table.json", codecs=["sign", onebit.Codec.INT4])
    text = (tmp_path / "table.json").read_text()
    assert '"rows"' in text and "ONEBIT_CODEC_INT4" in text


@pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no Open MPI")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_mpi4py(size):
    pytest.importorskip("mpi4py")
    assert mpirun(size, "mpi.py").count("ok") == size


@pytest.mark.parametrize("version, name", [("Open MPI v4", "openmpi"), ("MPICH 4", "mpich"), ("Intel", "mpich")])
def test_an_mpi_without_its_library(version, name, monkeypatch):
    def load_beside(name):
        raise OSError("no such file")

    monkeypatch.setattr(_mpi, "load_beside", load_beside)
    with pytest.raises(onebit.Unsupported, match=f"libonebit_{name}.so.0.1, which onebit needs for {version}"):
        _mpi.functions.__wrapped__(version)


def test_a_missing_library_says_what_to_do():
    done = subprocess.run(
        [sys.executable, "-c", "import onebit"],
        env={"ONEBIT_LIBRARY": "/nowhere/libonebit.so", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert "ImportError" in done.stderr and "ONEBIT_LIBRARY" in done.stderr


def test_importing_takes_neither_numpy_nor_torch():
    code = "import sys, onebit; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def gathering(size):
    """An allgather for `size` threads."""
    parts, barrier = [None] * size, threading.Barrier(size)

    def of_rank(rank):
        def allgather(mine):
            parts[rank] = mine
            barrier.wait()
            together = list(parts)
            barrier.wait()
            return together

        return allgather

    return of_rank


def require_ranks(size, communicator_of):
    """Ranks that are threads make communicators, and find the mean of their numbers."""
    results = [None] * size

    def run(rank):
        comm = communicator_of(rank)
        values = onebit.Allreduce(comm, 1000, algorithm="dense").run(np.full(1000, rank, np.float32))
        results[rank] = comm.rank, comm.size, float(values[0])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(rank, size, (size - 1) / 2) for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bootstrap(size):
    allgather_of = gathering(size)
    require_ranks(size, lambda rank: onebit.from_bootstrap(rank, size, allgather_of(rank), timeout=20))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_folder(size, tmp_path):
    require_ranks(size, lambda rank: onebit.from_folder(rank, size, tmp_path / "new" / "folder", timeout=20))


def test_a_folder_of_another_run(tmp_path):
    def make(rank):
        return onebit.from_folder(rank, 2, tmp_path, timeout=20)

    require_ranks(2, make)
    with pytest.raises(onebit.Error) as caught:
        make(1)
    assert isinstance(caught.value.__cause__, FileExistsError)
    assert "new folder for each run" in str(caught.value.__cause__)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_never_comes(rank, tmp_path, monkeypatch):
    with pytest.raises(onebit.Error, match="allgather") as caught:
        onebit.from_folder(rank, 2, tmp_path, timeout=0.3)
    assert "has not come within 0.3 s" in str(caught.value.__cause__)
    monkeypatch.setenv("ONEBIT_TIMEOUT", "0.2")
    with pytest.raises(onebit.Error) as caught:
        onebit.from_folder(rank, 2, tmp_path / "other")
    assert "has not come within 0.2 s" in str(caught.value.__cause__)


def test_a_folder_that_can_not_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        onebit.from_folder(0, 1, tmp_path / "file" / "folder")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_split(size):
    def body(comm):
        part = comm.split(comm.rank % 2, key=-comm.rank)
        values = onebit.Allreduce(part, 1000, algorithm="dense").run(np.full(1000, comm.rank, np.float32))
        return part.rank, part.size, float(values[0])

    for rank, result in enumerate(on_ranks(size, body)):
        members = [r for r in range(size) if r % 2 == rank % 2][::-1]
        assert result == (members.index(rank), len(members), sum(members) / len(members))


@pytest.mark.parametrize("none", [None, -1])
def test_split_without_a_color(none):
    parts = on_ranks(3, lambda comm: comm.split(0 if comm.rank != 1 else none))
    assert parts[1] is None and [parts[0].size, parts[2].rank] == [2, 1]


def test_set():
    def body(comm):
        comm.set("ONEBIT_ALGORITHM", "flat")
        flat = onebit.Allreduce(comm, 1000).info.algorithm
        comm.set("ONEBIT_ALGORITHM", "")
        comm.set("ONEBIT_THREADS", 2)
        return flat, onebit.Allreduce(comm, 1000).info.threads

    assert on_ranks(2, body) == [(onebit.Algorithm.FLAT, 2)] * 2


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("ONEBIT_PEACE", 1, onebit.InvalidArgument),
        ("ONEBIT_PIECE", "many", onebit.InvalidArgument),
        ("ONEBIT_TCP_ONLY", 1, onebit.Unsupported),
    ],
)
def test_set_to_nonsense(name, value, error):
    (comm,) = onebit.loopback(1)
    with pytest.raises(error, match=name):
        comm.set(name, value)


def test_an_nccl_communicator_that_is_none():
    with pytest.raises(onebit.Error):  # without CUDA, too
        onebit.from_nccl(0)


class Broken(Exception):
    pass


def broken(mine):
    raise Broken("no luck")


@pytest.mark.parametrize(
    "allgather, cause",
    [
        (broken, Broken),
        (lambda mine: [mine], ValueError),
        (lambda mine: [mine, mine[1:]], ValueError),
        (len, TypeError),
    ],
)
def test_an_allgather_that_fails_is_the_cause(allgather, cause):
    with pytest.raises(onebit.Error) as caught:
        onebit.from_bootstrap(0, 2, allgather)
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("options", [{"rank": 1}, {"rank": -1}, {"size": 0}])
def test_bootstrap_of_nonsense(options):
    with pytest.raises(onebit.Error):
        onebit.from_bootstrap(**{"rank": 0, "size": 1, "allgather": lambda mine: [mine], **options})
