# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks, and the ways to make them."""

import ctypes
import weakref
from typing import Callable, List, Optional, Sequence, Union

from onebit import _c, _errors, _mpi, _operations
from onebit._handle import Handle
from onebit._library import library
from onebit._store import Folder, StoreAllgather
from onebit._structs import enum_value, initialised, read_info
from onebit._values import Codec, CommInfo


def _never() -> bool:
    return False


class Communicator(Handle):
    """A group of ranks and the way they talk.

    Made by `onebit.loopback`, `onebit.from_mpi4py`, `onebit.from_bootstrap`, `onebit.from_folder`,
    `onebit.torch.communicator` or `onebit.jax.communicator`. Objects created from it stay usable after `close()`.
    """

    def __init__(self, handle: Optional[int], *, finished: Callable[[], bool] = _never):
        """Takes over a handle of the C library (an onebit_comm_t). For users' own transports; see `Handle`."""
        collective = "nccl" in _info(handle).transport
        super().__init__(handle, library.onebit_comm_destroy, collective=collective, finished=finished)
        self.rank: int = _number(library.onebit_comm_rank, handle)
        """This rank's number, 0 to size - 1."""
        self.size: int = _number(library.onebit_comm_size, handle)
        """The number of ranks."""

    @property
    def info(self) -> CommInfo:
        """Transport, and the number of nodes. Local."""
        return _info(self._handle)

    def set(self, name: str, value) -> None:
        """Sets what an environment variable would have set when the communicator was created.

        For objects created from it afterwards. Collective; blocks.
          name   "ONEBIT_ALGORITHM", say, the same on every rank
          value  as in the environment; "": the default
        """
        library.onebit_comm_set(self._handle, name.encode(), str(value).encode())

    def tune(
        self,
        max_count: int,
        seconds: float,
        path: Optional[str] = None,
        codecs: Optional[Sequence[Union[str, Codec]]] = None,
    ) -> None:
        """Measures how long an allreduce takes in each form. Handles made afterwards use the fastest form.

        Collective; blocks.
          max_count  elements of the largest call, the same on every rank
          seconds    about how long it may take, the same on every rank
          path       file that rank 0 writes the table to, for later runs (ONEBIT_TUNING)
          codecs     to be measured, each with its default settings, the same on every rank; None: "sign"
        """
        file = None if path is None else str(path).encode()
        if codecs is None:
            library.onebit_comm_tune(self._handle, max_count, seconds, file)
            return
        numbers = [enum_value(Codec, f"codecs[{i}]", codec) for i, codec in enumerate(codecs)]
        library.onebit_comm_tune_codecs(
            self._handle, (ctypes.c_int * len(numbers))(*numbers), len(numbers), max_count, seconds, file
        )

    def empty(self, count: int):
        """A NumPy array of `count` float32 zeros in memory that all ranks of a node see.

        Exact averages of such arrays are faster inside a node. Collective; blocks. The memory is freed when nothing
        refers to the array any more.
        """
        import numpy

        if count < 1:
            raise _errors.InvalidArgument(f"count={count}: at least 1")
        address = ctypes.c_void_p()
        library.onebit_mem_alloc(self._handle, 4 * count, ctypes.byref(address))
        memory = (ctypes.c_float * count).from_address(address.value or 0)
        weakref.finalize(memory, library.onebit_mem_free, address.value).atexit = False
        return numpy.ctypeslib.as_array(memory)

    def split(self, color: Optional[int], key: int = 0) -> Optional["Communicator"]:
        """A communicator of the ranks that pass the same color, in the order of their keys, then of their ranks.

        None for a rank that passes no color (None or a negative one). Collective over all ranks; blocks. `abort` of a
        part leaves other parts alone; `abort` of this communicator ends the calls of its parts, too.
        """
        part = _output(library.onebit_comm_split, self._handle, -1 if color is None else color, key)
        return None if part is None else Communicator(part, finished=self._finished)

    def on_gpu(self, stream: int = 0) -> "Communicator":
        """A communicator of the same ranks for arrays in GPUs' memory, one GPU for each rank.

        The transport is chosen from the topology of the ranks' machines; `info` says which and why. Collective; blocks.
          stream  address of a cudaStream_t of this rank's GPU; 0: the current device's default stream
        """
        return self._made(library.onebit_comm_create_gpu, self._handle, stream)

    def over_nccl(self, stream: int = 0) -> "Communicator":
        """As `on_gpu`, over NCCL in any case."""
        return self._made(library.onebit_comm_bootstrap_nccl, self._handle, stream)

    def _made(self, create, *arguments) -> "Communicator":
        return Communicator(_output(create, *arguments), finished=self._finished)

    def progress(self) -> int:
        """Moves on all operations of handles made from this communicator. Returns how many aren't finished. Local.

        Never waits, and reports no errors: if a handle has no callback, its next test or wait raises the error. An
        exception that a callback raises is raised here.
        """
        active = ctypes.c_int()
        try:
            library.onebit_comm_progress(self._handle, ctypes.byref(active))
        finally:
            _operations.raise_failure()
        return active.value

    def abort(self, reason: str = "") -> None:
        """Ends every call in flight on this communicator and on what was made from it, on every rank (TransportError).

        For a program that knows that other ranks need not be waited for. Local; never waits; from any thread.
        """
        library.onebit_comm_abort(self._handle, reason.encode() or None)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.info.transport
        return f"<onebit.Communicator rank {self.rank} of {self.size}, {state}>"


def loopback(ranks: int) -> List[Communicator]:
    """Communicators whose ranks are threads of this process: rank r is used from one thread. Local."""
    handles = (ctypes.c_void_p * max(ranks, 1))()
    library.onebit_comm_create_loopback(ranks, handles)
    return [Communicator(handle) for handle in handles]


def from_mpi4py(comm) -> Communicator:
    """The ranks of an mpi4py communicator, which is duplicated. Collective; blocks.

    Needs libonebit_openmpi or libonebit_mpich, for mpi4py's MPI; raises Unsupported if this library is missing.
    Raises InvalidArgument before MPI_Init, after MPI_Finalize, and if `comm` is no communicator.
    """
    from mpi4py import MPI

    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise _errors.InvalidArgument("MPI isn't up: MPI_Init has not been called, or MPI_Finalize has")
    if not isinstance(comm, MPI.Comm) or comm == MPI.COMM_NULL:
        raise _errors.InvalidArgument(f"comm is {comm!r}; a communicator of mpi4py wanted")
    create = _mpi.functions(MPI.Get_library_version()).onebit_comm_create_mpi_fortran
    return Communicator(_output(create, comm.py2f()), finished=MPI.Is_finalized)


def from_nccl(nccl_comm: int, stream: int = 0) -> Communicator:
    """The ranks of a program's own NCCL communicator, for arrays in GPUs' memory. Collective; blocks.

      nccl_comm  address of an ncclComm_t; it must outlive what is created here
      stream     address of the cudaStream_t that all work goes into; 0: the current device's default stream
    """
    return Communicator(_output(library.onebit_comm_create_nccl, nccl_comm, stream))


def from_bootstrap(
    rank: int,
    size: int,
    allgather: Callable[[bytes], List[bytes]],
    *,
    interface: Optional[str] = None,
    timeout: float = 0.0,
) -> Communicator:
    """Ranks that find each other through the caller's own allgather, and talk over TCP afterwards. Collective; blocks.

      allgather  takes this rank's bytes; returns every rank's, in rank order, all of one length. Called while the
                 communicator is created, on the calling thread, and never again. What it raises is the cause of the
                 Error that this rank gets
      interface  network interface or local address to listen on; None: ONEBIT_INTERFACE, else chosen
      timeout    seconds to wait for others, now and in later calls; 0: ONEBIT_TIMEOUT

    If a rank doesn't come in time, raises Error on every rank that comes.
    """
    failures: List[BaseException] = []

    def gather(_context, mine, all_, bytes_):
        try:
            parts = allgather(ctypes.string_at(mine, bytes_))
            if [len(part) for part in parts] != [bytes_] * size:
                sizes = [len(part) for part in parts]
                raise ValueError(f"allgather returned parts of {sizes} bytes; {size} of {bytes_} wanted")
            ctypes.memmove(all_, b"".join(parts), bytes_ * size)
            return 0
        except BaseException as failure:  # an exception can't pass through C
            failures.append(failure)
            return 1

    callback = _c.Allgather(gather)  # must live as long as the struct
    bootstrap = initialised(_c.Bootstrap, library.onebit_bootstrap_init, rank, size, callback, None)
    bootstrap.interface = None if interface is None else interface.encode()
    bootstrap.timeout = timeout
    try:
        return Communicator(_output(library.onebit_comm_create_bootstrap, ctypes.byref(bootstrap)))
    except _errors.Error as error:
        if failures:
            raise error from failures[0]
        raise


def from_folder(rank: int, size: int, path, *, interface: Optional[str] = None, timeout: float = 0.0) -> Communicator:
    """Ranks that find each other through files in a folder that all of them see. Collective; blocks.

    For Slurm, say, without PMI or torch.distributed: SLURM_PROCID, SLURM_NTASKS, and a folder named by SLURM_JOB_ID,
    SLURM_STEP_ID and SLURM_RESTART_COUNT.

      path                a new folder for each run and each communicator; made if it isn't there
      interface, timeout  as for `from_bootstrap`, and so are the errors
    """
    folder = Folder(path, timeout)
    gather = StoreAllgather(rank, size, folder.put, folder.get, "rank")
    return from_bootstrap(rank, size, gather, interface=interface, timeout=timeout)


def _output(create, *arguments) -> Optional[int]:
    """Calls a function that writes a handle to its last parameter, and returns the handle."""
    handle = ctypes.c_void_p()
    create(*arguments, ctypes.byref(handle))
    return handle.value


def _number(function, handle) -> int:
    number = ctypes.c_int()
    function(handle, ctypes.byref(number))
    return number.value


def _info(handle) -> CommInfo:
    return read_info(_c.CommInfo, CommInfo, "onebit_comm_info_init", "onebit_comm_get_info", handle)
