# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The compressed allreduce: planned once, run many times."""

import ctypes
from numbers import Integral
from typing import Any, Optional

from onebit import _buffers, _c, _state, _structs
from onebit._errors import Error, InvalidArgument, Timeout, TransportError
from onebit._handle import keep_for_good
from onebit._library import library
from onebit._operations import Callback, OperationHandle
from onebit._values import Algorithm, AllreduceInfo, Check, Memory
from onebit.communicator import Communicator

_run = library.onebit_allreduce_run
_start = library.onebit_allreduce_start


class Allreduce(OperationHandle):
    """Averages `count` float32 elements over the ranks, or adds them up, sending few bits for each instead of 32.

    What a message could not express is carried into the next call (error feedback), so one Allreduce belongs to one
    sequence of arrays, a model's gradients say. Arrays are NumPy's, PyTorch's, or any with `__array_interface__`,
    `__cuda_array_interface__` or DLPack: contiguous, float32, `count` elements in whatever shape. None is copied.

    One thread at a time uses an Allreduce (Busy). Other Python threads run during a call. A collective call that fails
    on one rank fails on every rank, and leaves the error state as it was.
    """

    def __init__(self, comm: Communicator, count_or_array, *, memory: Optional[str] = None, stream: int = 0, **options):
        """Plans, and allocates all that its calls will use. Collective; blocks.

          count_or_array  elements, at least the number of ranks; or an array of as many
          memory          "host" or "cuda": where the arrays lie; None: where `count_or_array` does, if it's an array
          stream          of a GPU's memory: the address of the cudaStream_t that the work goes into; 0: the default one
          algorithm       "auto" (chosen by measuring), "dense" (an exact average), "flat", "pipelined", "two_level",
                          "bruck", "ring"
          codec           "sign", "int8", "int4", "fp4" or "bfloat16": what stands for an element in a compressed message.
                          All but "sign" on the host only
          scale           "l2" or "l1": the magnitude that stands for a group's elements; of "sign"
          group           "block" (4096 elements) or "buffer": the elements that share a scale; of "sign"
          op              "average" or "sum": what becomes of the ranks' values
          check           "full", "full_low_memory" or "none": what is made sure of before anything changes
          threads         this rank's own; 0: ONEBIT_THREADS, else 1

        onebit_allreduce_config_t in onebit.h says more of each. All but `threads` and `stream` are the same on every
        rank (Mismatch).
        """
        try:
            config = _config(count_or_array, memory, stream, options)
        except Exception:
            _refuse_creation(comm)
            raise
        handle = ctypes.c_void_p()
        library.onebit_allreduce_create(comm._handle, ctypes.byref(config), ctypes.byref(handle))
        self.count: int = config.count
        """Elements of each array."""
        self._device = "cpu" if config.memory == Memory.HOST else "cuda"
        self._checked = config.check != Check.NONE
        self._in_flight: list = []
        super().__init__(
            handle.value,
            library.onebit_allreduce_destroy,
            collective=comm._collective,
            finished=comm._finished,
            buffers=self._in_flight,
        )

    def run(self, send, recv=None) -> Any:
        """recv = average (or sum) over the ranks of send, the same bits on every rank. Returns recv. Collective; blocks.

          send  array of `count` elements
          recv  array that the result is written to; may be `send`, may not overlap it otherwise. None: `send`

        Raises Nonfinite for a NaN or an infinity in any rank's `send`. An array of another size, type or device, or one
        that isn't contiguous, is refused on this rank (TypeError, InvalidArgument); other ranks get InvalidArgument.
        In a GPU's memory the call is ordered with the stream's work, as onebit_allreduce_run says.
        """
        recv = send if recv is None else recv
        sent, received = self._arrays(send, recv)
        try:
            _run(self._handle, sent.address, received.address)
        except (TransportError, Timeout):
            keep_for_good((sent, received))
            raise
        return recv

    def start(self, send, recv=None) -> None:
        """Begins what `run` does, and returns at once; `test` or `wait` finishes it. Collective.

        Both arrays belong to the operation until then. On the host it makes progress only inside `test` and `wait`.
        """
        sent, received = self._arrays(send, send if recv is None else recv)
        _start(self._handle, sent.address, received.address)
        self._in_flight[:] = sent, received

    def test(self) -> bool:
        """Does a slice of the work, never waits. True once it's finished, or if nothing was started.

        Raises what `run` would have raised.
        """
        done = ctypes.c_int()
        self._finish(library.onebit_allreduce_test, ctypes.byref(done))
        if done.value and not self._callback:
            self._in_flight.clear()
        return bool(done.value)

    def wait(self) -> None:
        """Finishes what was started. Raises what `run` would have raised."""
        self._finish(library.onebit_allreduce_wait)
        if not self._callback:
            self._in_flight.clear()

    def set_callback(self, function: Optional[Callback]) -> None:
        """function(error) is called once for each operation that `start` begins, as soon as it's finished. Local.

        The thread and the call that finish it make the call: `test`, `wait` or `Communicator.progress`. `error` is None
        for a success. The operation is over by then: `start` may be called again, or `close`. What the function raises
        is raised by the call that made it. None: no function any more. Raises Busy while an operation isn't finished.
        """
        self._set_callback(library.onebit_allreduce_set_callback, function)

    def set_algorithm(self, algorithm) -> None:
        """From the next call on: "dense" in a warm-up, then a compressed one. Local; to be called on every rank.

        The Allreduce must have been created with a compressed one, or with "auto" that chose it.
        """
        value = _structs.enum_value(Algorithm, "algorithm", algorithm)
        library.onebit_allreduce_set_algorithm(self._handle, value)

    def set_mask(self, mask) -> None:
        """Declares which elements are ever nonzero; others have no part in any scale, and their result is zero.

        Collective; blocks.
          mask  boolean NumPy array of `count` elements, the same on every rank; None: all take part
        """
        if mask is None:
            library.onebit_allreduce_set_mask(self._handle, None)
            return
        import numpy

        mask = numpy.asarray(mask)
        if mask.dtype != bool or mask.size != self.count:
            raise InvalidArgument(f"mask has {mask.size} elements of {mask.dtype}; {self.count} of bool wanted")
        words = numpy.zeros((self.count + 31) // 32, dtype="<u4")
        bits = numpy.packbits(mask.ravel(), bitorder="little")
        words.view(numpy.uint8)[: bits.size] = bits
        library.onebit_allreduce_set_mask(self._handle, words.ctypes.data)

    @property
    def info(self) -> AllreduceInfo:
        """Calls, bytes sent, memory, and which algorithm was chosen and why. Local."""
        return _structs.read_info(
            _c.AllreduceInfo,
            AllreduceInfo,
            "onebit_allreduce_info_init",
            "onebit_allreduce_get_info",
            self._handle,
        )

    def reset(self) -> None:
        """Sets the error state to zero. Local; to be called on every rank."""
        library.onebit_allreduce_reset(self._handle)

    def errors(self):
        """What has not been delivered yet: (worker, server, begin). Local.

        worker: float32 NumPy array of `count` elements; server: that of this rank's chunk, which starts at `begin`.
        """
        import numpy

        begin, count = ctypes.c_uint64(), ctypes.c_uint64()
        get = library.onebit_allreduce_get_error
        get(self._handle, None, None, ctypes.byref(begin), ctypes.byref(count))
        worker = numpy.empty(self.count, numpy.float32)
        server = numpy.empty(count.value, numpy.float32)
        get(self._handle, worker.ctypes.data, server.ctypes.data, None, None)
        return worker, server, begin.value

    def pack_state(self) -> bytearray:
        """The error state, for a checkpoint of this rank. Local. A mask isn't in it."""
        return _state.packed(library.onebit_allreduce_state_size, library.onebit_allreduce_pack_state, self._handle)

    def unpack_state(self, state) -> None:
        """Goes on from what `pack_state` returned on this rank. Collective; blocks; changes nothing if it fails.

        Raises BadState, or Mismatch for states that were packed after different numbers of calls.
        """
        address, size, _ = _state.address(state, "state")
        library.onebit_allreduce_unpack_state(self._handle, address, size)

    def save(self, prefix) -> None:
        """Saves the error state to PREFIX.RANK-of-SIZE.onebit. Collective; blocks; never harms an earlier save."""
        library.onebit_allreduce_save(self._handle, str(prefix).encode())

    def load(self, prefix) -> None:
        """Loads the newest whole save. Collective; blocks; changes nothing if it fails."""
        library.onebit_allreduce_load(self._handle, str(prefix).encode())

    def _arrays(self, send, recv):
        """Where both arrays lie. If one is refused, the other ranks are told."""
        try:
            sent = self._buffer(send, "send")
            return sent, (sent if recv is send and not sent.readonly else self._buffer(recv, "recv", writable=True))
        except (TypeError, ValueError):
            self._refuse()
            raise

    def _buffer(self, array, name, writable=False):
        buffer = _buffers.view(array, name, writable=writable)
        if buffer.size != self.count:
            raise InvalidArgument(f"{name} has {buffer.size} elements; {self.count} wanted")
        if buffer.device != self._device:
            raise InvalidArgument(f"{name} is in {buffer.device} memory; {self._device} wanted")
        return buffer

    def _refuse(self) -> None:
        """Takes part in the ranks' call with no buffers: it fails on every rank, and none waits for this one."""
        if self._checked and not self.closed:
            try:
                _run(self._handle, None, None)
            except Error:
                pass

    def _finished_with(self, error) -> None:
        super()._finished_with(error)
        self._in_flight.clear()


def _config(count_or_array, memory: Optional[str], stream: int, options: dict) -> _c.AllreduceConfig:
    if isinstance(count_or_array, Integral):
        count, device = int(count_or_array), "cpu"
    else:
        array = _buffers.view(count_or_array, "count_or_array")
        count, device = array.size, array.device
    if count < 1:
        raise InvalidArgument(f"count={count}: at least the number of ranks")
    config = _structs.initialised(_c.AllreduceConfig, library.onebit_allreduce_config_init, count)
    _structs.set_options(config, options)
    memory = memory or ("host" if device == "cpu" else device)
    config.memory = _structs.enum_value(Memory, "memory", memory)
    config.stream = stream
    return config


def _refuse_creation(comm: Communicator) -> None:
    """Takes part in the ranks' creation with a count that can't be: it fails on every rank, and none waits for this."""
    config = _structs.initialised(_c.AllreduceConfig, library.onebit_allreduce_config_init, 0)
    try:
        library.onebit_allreduce_create(comm._handle, ctypes.byref(config), ctypes.byref(ctypes.c_void_p()))
    except Error:
        pass  # the caller knows why
