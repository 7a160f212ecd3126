# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What `Allreduce`, `ReduceScatter` and `AllGather` have in common: planned once, run many times, over two arrays."""

import ctypes
from numbers import Integral
from typing import Any, Callable, NamedTuple, Optional

from onebit import _buffers, _state, _structs
from onebit._errors import Error, InvalidArgument, Timeout, TransportError
from onebit._handle import keep_for_good
from onebit._operations import Callback, OperationHandle
from onebit._values import Algorithm, Check, Datatype, Memory
from onebit.communicator import Communicator


_DTYPES = ("float32", "float16", "bfloat16")  # of arrays, by Datatype


def _name_of(dtype) -> Any:
    """The name of a type of NumPy's or PyTorch's; Datatype's members as they are."""
    return dtype if isinstance(dtype, int) else getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


class Functions(NamedTuple):
    """The library's functions for one kind of handle."""

    create: Any
    run: Any
    start: Any
    test: Any
    wait: Any
    set_callback: Any
    set_algorithm: Any
    destroy: Any
    reset: Any
    state_size: Any
    pack_state: Any
    unpack_state: Any
    save: Any
    load: Any


class Collective(OperationHandle):
    """A handle of one of these kinds."""

    _functions: Functions
    _config_type: Any
    _config_init: Any

    def _create(self, comm: Communicator, describe: Callable[[], Any]) -> None:
        """Makes the handle from the config that `describe` returns. If `describe` raises, the other ranks are told."""
        handle = ctypes.c_void_p()

        def create(config):
            self._functions.create(comm._handle, ctypes.byref(config), ctypes.byref(handle))

        try:
            config = describe()
        except Exception:
            self._refuse_config(create)
            raise
        create(config)
        self.count: int = config.count
        """Elements of each array of an Allreduce, or of a whole array of the other collectives."""
        self._send_count = self._recv_count = self.count
        self._device = "cpu" if config.memory == Memory.HOST else "cuda"
        self._dtype = _DTYPES[config.datatype]
        self._checked = config.check != Check.NONE
        self._in_flight: list = []
        super().__init__(
            handle.value,
            self._functions.destroy,
            collective=comm._collective,
            finished=comm._finished,
            buffers=self._in_flight,
        )

    @classmethod
    def _config(cls, count_or_array, memory: Optional[str], stream: int, options: dict) -> Any:
        if isinstance(count_or_array, Integral):
            count, dtype, device = int(count_or_array), "float32", "cpu"
        else:
            array = _buffers.view(count_or_array, "count_or_array", dtypes=_DTYPES)
            count, dtype, device = array.size, array.dtype, array.device
        if count < 1:
            raise InvalidArgument(f"count={count}: at least the number of ranks")
        config = _structs.initialised(cls._config_type, cls._config_init, count)
        options = dict(options)
        asked = options.pop("dtype", None)
        config.datatype = _structs.enum_value(Datatype, "dtype", _name_of(dtype if asked is None else asked))
        if config.datatype >= len(_DTYPES):
            raise InvalidArgument(f"dtype={asked!r}: one of {', '.join(_DTYPES)}")
        _structs.set_options(config, options)
        memory = memory or ("host" if device == "cpu" else device)
        config.memory = _structs.enum_value(Memory, "memory", memory)
        config.stream = stream
        return config

    @classmethod
    def _refuse_config(cls, call: Callable[[Any], Any]) -> None:
        """Takes part in a collective call, call(config), with an invalid count: the call fails on every rank, and no
        rank waits."""
        try:
            call(_structs.initialised(cls._config_type, cls._config_init, 0))
        except Error:
            pass  # the caller knows why

    def _run(self, send, recv) -> Any:
        sent, received = self._arrays(send, recv)
        try:
            self._functions.run(self._handle, sent.address, received.address)
        except (TransportError, Timeout):
            keep_for_good((sent, received))
            raise
        return recv

    def _start(self, send, recv) -> None:
        sent, received = self._arrays(send, recv)
        self._functions.start(self._handle, sent.address, received.address)
        self._in_flight[:] = sent, received

    def test(self) -> bool:
        """Does a slice of the work, never waits. True once the work is finished, or if nothing was started.

        Raises what `run` would have raised.
        """
        done = ctypes.c_int()
        self._finish(self._functions.test, ctypes.byref(done))
        if done.value and not self._callback:
            self._in_flight.clear()
        return bool(done.value)

    def wait(self) -> None:
        """Finishes what was started. Raises what `run` would have raised."""
        self._finish(self._functions.wait)
        if not self._callback:
            self._in_flight.clear()

    def set_callback(self, function: Optional[Callback]) -> None:
        """function(error) is called once for each operation that `start` begins, as soon as it's finished. Local.

        The call that finishes the operation calls the function, on its own thread: `test`, `wait` or
        `Communicator.progress`. `error` is None for a success. The operation is over by then: `start` or `close` may be
        called. An exception from the function is raised by the call that called the function. None: no function any
        more. Raises Busy while an operation isn't finished.
        """
        self._set_callback(self._functions.set_callback, function)

    def set_algorithm(self, algorithm) -> None:
        """From the next call on: "dense" in a warm-up, then a compressed one. Local; to be called on every rank.

        The handle must have been created with a compressed algorithm, or with "auto" that chose one.
        """
        self._functions.set_algorithm(self._handle, _structs.enum_value(Algorithm, "algorithm", algorithm))

    def reset(self) -> None:
        """Sets the error state to zero. Local; to be called on every rank."""
        self._functions.reset(self._handle)

    def pack_state(self) -> bytearray:
        """The error state, for a checkpoint of this rank. Local."""
        return _state.packed(self._functions.state_size, self._functions.pack_state, self._handle)

    def unpack_state(self, state) -> None:
        """Goes on from what `pack_state` returned on this rank. Collective; blocks; changes nothing if it fails.

        Raises BadState, or Mismatch for states that were packed after different numbers of calls.
        """
        address, size, _ = _state.address(state, "state")
        self._functions.unpack_state(self._handle, address, size)

    def save(self, prefix) -> None:
        """Saves the error state to PREFIX.RANK-of-SIZE.onebit. Collective; blocks; never harms an earlier save."""
        self._functions.save(self._handle, str(prefix).encode())

    def load(self, prefix) -> None:
        """Loads the newest whole save. Collective; blocks; changes nothing if it fails."""
        self._functions.load(self._handle, str(prefix).encode())

    def _arrays(self, send, recv):
        """Where both arrays lie. If one is refused, the other ranks are told."""
        try:
            sent = self._buffer(send, "send", self._send_count)
            if recv is send and not sent.readonly and self._send_count == self._recv_count:
                return sent, sent
            return sent, self._buffer(recv, "recv", self._recv_count, writable=True)
        except (TypeError, ValueError):
            self._refuse()
            raise

    def _buffer(self, array, name, count, writable=False):
        buffer = _buffers.view(array, name, writable=writable, dtypes=(self._dtype,))
        if buffer.size != count:
            raise InvalidArgument(f"{name} has {buffer.size} elements; {count} wanted")
        if buffer.device != self._device:
            raise InvalidArgument(f"{name} is in {buffer.device} memory; {self._device} wanted")
        return buffer

    def _refuse(self) -> None:
        """Takes part in the ranks' call with no buffers: the call fails on every rank, and no rank waits."""
        if self._checked and not self.closed:
            try:
                self._functions.run(self._handle, None, None)
            except Error:
                pass

    def _finished_with(self, error) -> None:
        super()._finished_with(error)
        self._in_flight.clear()
