# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers over arrays: they average the gradients and move the parameters, in one step."""

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

from onebit import _buffers, _c, _state, _structs
from onebit._errors import Error, InvalidArgument
from onebit._library import library
from onebit._operations import Callback, OperationHandle
from onebit._values import Datatype, Memory, OptimizerInfo, OptimizerKind, State
from onebit.allreduce import set_levels
from onebit.communicator import Communicator

_FLOATS = ("float32", "float16", "bfloat16")


class Tensor(NamedTuple):
    """One tensor of an optimizer: what LAMB calls a layer. All arrays are contiguous, in the same kind of memory."""

    parameters: Any
    """float32, read and written by each step."""
    gradients: Any = None
    """As many elements, float32, float16 or bfloat16, read by each step; None: given later by `set_gradients`."""
    group: int = 0
    """Index into the optimizer's groups."""
    copy: Any = None
    """As many elements, of any of the three types: where each step writes the parameters, rounded. None: nowhere."""
    name: Optional[str] = None
    """For messages."""
    gradient_type: str = "float32"
    """The type of gradients that are given later."""


class Optimizer(OperationHandle):
    """1-bit Adam, 1-bit LAMB, 0/1 Adam, or dense Adam or LAMB, over NumPy arrays or any that `Allreduce` takes.

    Parameters must be equal on every rank at the start, and are equal again after each step that exchanges.
    One thread at a time uses an Optimizer (Busy).
    """

    def __init__(
        self,
        comm: Communicator,
        kind,
        tensors: Sequence[Tensor],
        lr: float = 1e-3,
        *,
        groups: Sequence[dict] = (),
        stream: int = 0,
        **options,
    ):
        """Registers the tensors and allocates the state. Collective; blocks.

          kind     "adam", "onebit_adam", "lamb", "onebit_lamb" or "zero_one_adam"
          tensors  the same counts, groups and gradient types in the same order on every rank
          lr       learning rate of all tensors where there are no groups
          groups   dictionaries with lr, betas, eps, weight_decay and no_compress, which all have defaults
          stream   of a GPU's memory: the address of the cudaStream_t that the work goes into; 0: the default one
          options  members of onebit_optimizer_config_t by name: betas, eps, weight_decay, bias_correction,
                   max_grad_norm, freeze_step ("auto", "never", "paper" or a step), bucket_size, algorithm ("auto",
                   "two_level", ...), codec ("sign", "int8", ...), ... onebit.h says what they mean; the library has
                   their defaults. levels as an `Allreduce`'s, one of them and an exact one
        """
        try:
            config, c_tensors = self._described(kind, tensors, lr, groups, stream, options)
        except Exception as error:
            _refuse(comm, error)
            raise
        handle = ctypes.c_void_p()
        library.onebit_optimizer_create(
            comm._handle, ctypes.byref(config), c_tensors, len(self._tensors), ctypes.byref(handle)
        )
        super().__init__(
            handle.value,
            library.onebit_optimizer_destroy,
            collective=comm._collective,
            finished=comm._finished,
            buffers=self._tensors,
        )

    def _described(self, kind, tensors, lr, groups, stream, options):
        """The C structs that the optimizer is made from. Local."""
        config = _config(kind, lr)
        set_options(config, options)
        self._groups = _array(_c.ParamGroup, [_param_group(group, lr) for group in groups])  # the config points to it
        config.groups = ctypes.addressof(self._groups) if groups else None
        config.num_groups = len(groups)
        self._device = ""
        self._tensors = [self._checked(tensor, i) for i, tensor in enumerate(tensors)]
        c_tensors = _array(_c.Tensor, [self._c_tensor(tensor) for tensor in self._tensors])
        config.memory = _structs.enum_value(Memory, "memory", "host" if self._device == "cpu" else self._device)
        config.stream = stream
        return config, c_tensors

    def step(self) -> None:
        """One step with the gradients as they now are. Collective; blocks.

        Raises Nonfinite on every rank for a NaN or an infinity in any rank's gradients: nothing has changed, and the
        next step may follow.
        """
        self._finish(library.onebit_optimizer_step)

    def step_start(self) -> None:
        """Begins what `step` does, and doesn't wait; `step_test` or `step_wait` finishes it. Collective.

        Parameters, gradients and copies belong to the step until then. It makes progress only inside `step_test`,
        `step_wait` and `Communicator.progress`. Other ranks may call `step` instead.
        """
        library.onebit_optimizer_step_start(self._handle)

    def step_test(self) -> bool:
        """Does a slice of the step, never waits. True once the step is finished, or if none was started.

        Raises what `step` would have raised.
        """
        done = ctypes.c_int()
        self._finish(library.onebit_optimizer_step_test, ctypes.byref(done))
        return bool(done.value)

    def step_wait(self) -> None:
        """Finishes the step that was started. Raises what `step` would have raised."""
        self._finish(library.onebit_optimizer_step_wait)

    def set_callback(self, function: Optional[Callback]) -> None:
        """function(error) is called once for each step that `step_start` begins, as soon as it's finished. Local.

        As `Allreduce.set_callback`.
        """
        self._set_callback(library.onebit_optimizer_set_callback, function)

    def cancel_step(self, reason: str = "") -> None:
        """In place of `step`: cancels the step on all ranks. Always raises, Cancelled as a rule. Collective; blocks."""
        library.onebit_optimizer_cancel_step(self._handle, reason.encode() or None)

    def grad_ready(self, tensor: int) -> None:
        """The gradients of tensor number `tensor` are there: their exchange may begin. Local; never waits for others.

        For optimizers with bucket_size > 0.
        """
        library.onebit_optimizer_grad_ready(self._handle, tensor)

    def set_gradients(self, tensor: int, gradients) -> None:
        """Sets where the next steps read the gradients of tensor number `tensor`. None: nowhere. Local."""
        before = self._tensors[tensor]
        buffer = self._gradients(before.parameters, gradients, before.gradient_type)
        library.onebit_optimizer_set_gradients(self._handle, tensor, buffer and buffer.address)
        self._tensors[tensor] = before._replace(gradients=buffer)

    def set_gradient_address(self, tensor: int, address: Optional[int]) -> None:
        """For bindings: as `set_gradients`, unchecked. Local."""
        library.onebit_optimizer_set_gradients(self._handle, tensor, address)

    def set_gradient_addresses(self, addresses: Sequence[Optional[int]]) -> None:
        """For bindings: where the gradients of all tensors lie, of the registered types and sizes. Unchecked. Local."""
        count = len(addresses)
        library.onebit_optimizer_set_all_gradients(self._handle, (ctypes.c_void_p * count)(*addresses), count)

    def set_parameters(self, tensor: int, parameters) -> None:
        """Sets where the parameters of tensor number `tensor` lie from now on, equal on every rank. Local."""
        before = self._tensors[tensor]
        buffer = self._like(before.parameters, parameters, "parameters", dtypes=("float32",), writable=True)
        library.onebit_optimizer_set_parameters(self._handle, tensor, buffer.address)
        self._tensors[tensor] = before._replace(parameters=buffer)

    def set_lr(self, lr: float, group: Optional[int] = None) -> None:
        """The learning rate from the next step on, of one group or of all. Local; to be called on every rank."""
        if group is None:
            library.onebit_optimizer_set_lr(self._handle, lr)
        else:
            library.onebit_optimizer_set_group_lr(self._handle, group, lr)

    def set_group(self, group: int, **settings) -> None:
        """All settings of a group from the next step on: lr, betas, eps, weight_decay. Local; on every rank.

        Settings that are left out become the library's defaults. no_compress can't change, nor can eps and beta2 of a
        frozen group.
        """
        c_group = _param_group(settings, settings.get("lr", 0.0))
        library.onebit_optimizer_set_group(self._handle, group, ctypes.byref(c_group))

    def set_max_grad_norm(self, max_grad_norm: float) -> None:
        """Sets the averaged gradient's largest norm from the next step on; 0: no limit. Local; on every rank.

        Raises Unsupported if max_grad_norm was 0 at creation.
        """
        library.onebit_optimizer_set_max_grad_norm(self._handle, max_grad_norm)

    def set_gradient_scale(self, scale: float) -> None:
        """From now on gradients are divided by `scale` when they are read. Local; to be called on every rank."""
        library.onebit_optimizer_set_gradient_scale(self._handle, scale)

    def freeze(self) -> None:
        """Ends the warm-up: the next step is the first compressed one. Local; to be called on every rank."""
        library.onebit_optimizer_freeze(self._handle)

    def get_state(self, tensor: int, which):
        """What is kept for tensor number `tensor`, a float32 NumPy array of its count. Local.

          which  "exp_avg", "exp_avg_sq", "worker_error" or "server_error"

        After the freeze the moments are computed from the values that are kept in their place.
        """
        import numpy

        values = numpy.empty(self._tensors[tensor].parameters.size, numpy.float32)
        state = _structs.enum_value(State, "which", which)
        library.onebit_optimizer_get_state(self._handle, tensor, state, values.ctypes.data)
        return values

    def set_state(self, tensor: int, which, values) -> None:
        """Sets "exp_avg" or "exp_avg_sq" of tensor number `tensor`, before the freeze; `set_steps` comes first.

        Local; to be called on every rank with the same values.
        """
        buffer = _buffers.view(values, "values")
        if buffer.size != self._tensors[tensor].parameters.size or buffer.device != "cpu":
            raise InvalidArgument(f"values: {self._tensors[tensor].parameters.size} elements in cpu memory wanted")
        state = _structs.enum_value(State, "which", which)
        library.onebit_optimizer_set_state(self._handle, tensor, state, buffer.address)

    def set_steps(self, steps: int) -> None:
        """Sets the number of steps that were made, before the freeze. Local; to be called on every rank."""
        library.onebit_optimizer_set_steps(self._handle, steps)

    def reset_error(self) -> None:
        """Sets the errors of the compressed exchange to zero. Local; to be called on every rank."""
        library.onebit_optimizer_reset_error(self._handle)

    def errors(self):
        """The errors of the compressed exchange: (worker, server), float32 NumPy arrays of `info.count`. Local.

        Tensor after tensor. The server's is zero where another rank serves the element.
        """
        import numpy

        worker, server = numpy.empty((2, self.info.count), numpy.float32)
        library.onebit_optimizer_get_error(self._handle, worker.ctypes.data, server.ctypes.data)
        return worker, server

    @property
    def info(self) -> OptimizerInfo:
        """Steps, stage, bytes sent, memory, and what a freeze waits for. Local."""
        return _structs.read_info(
            _c.OptimizerInfo,
            OptimizerInfo,
            "onebit_optimizer_info_init",
            "onebit_optimizer_get_info",
            self._handle,
        )

    def pack_state(self) -> bytearray:
        """This rank's parameters, moments, errors and settings, for a checkpoint. Local."""
        return _state.packed(library.onebit_optimizer_state_size, library.onebit_optimizer_pack_state, self._handle)

    def unpack_state(self, states: Sequence) -> None:
        """Goes on from what `pack_state` returned. The parameters are overwritten. Collective; blocks.

          states  of as many ranks as there are, with the same algorithm and on the same nodes: at least this rank's
                  state. Otherwise all saved ranks' states, on every rank

        Raises BadState or Mismatch on every rank, and changes nothing, if any rank's states don't fit.
        """
        blobs = [_state.address(state, "states") for state in states]
        addresses = (ctypes.c_void_p * len(blobs))(*(address for address, _, _ in blobs))
        sizes = (ctypes.c_uint64 * len(blobs))(*(size for _, size, _ in blobs))
        library.onebit_optimizer_unpack_state(self._handle, addresses, sizes, len(blobs))

    def save(self, prefix) -> None:
        """Saves parameters, moments, errors and settings to PREFIX.RANK-of-SIZE.onebit. Collective; blocks."""
        library.onebit_optimizer_save(self._handle, str(prefix).encode())

    def load(self, prefix) -> None:
        """Loads the newest whole save, also one of another number of ranks. Collective; blocks.

        The parameters are overwritten. Nothing changes if it fails.
        """
        library.onebit_optimizer_load(self._handle, str(prefix).encode())

    def _checked(self, tensor, index) -> Tensor:
        """The tensor with Buffers in place of its arrays."""
        tensor = tensor if isinstance(tensor, Tensor) else Tensor(*tensor)
        name = tensor.name or f"tensor {index}"
        parameters = _buffers.view(tensor.parameters, f"{name}: parameters", writable=True)
        self._device = self._device or parameters.device
        if parameters.device != self._device:
            raise InvalidArgument(f"{name}: parameters are in {parameters.device} memory; {self._device} wanted")
        gradients = self._gradients(parameters, tensor.gradients)
        copy = tensor.copy
        if copy is not None:
            copy = self._like(parameters, copy, f"{name}: copy", writable=True)
        return tensor._replace(
            parameters=parameters,
            gradients=gradients,
            copy=copy,
            gradient_type=gradients.dtype if gradients else tensor.gradient_type,
        )

    def _gradients(self, parameters, gradients, dtype=None) -> Optional[_buffers.Buffer]:
        if gradients is None:
            return None
        return self._like(parameters, gradients, "gradients", dtypes=(dtype,) if dtype else _FLOATS)

    def _like(self, parameters, array, name, dtypes=_FLOATS, writable=False) -> _buffers.Buffer:
        buffer = _buffers.view(array, name, writable=writable, dtypes=dtypes)
        if buffer.size != parameters.size or buffer.device != parameters.device:
            raise InvalidArgument(
                f"{name}: {buffer.size} elements in {buffer.device} memory; "
                f"{parameters.size} in {parameters.device} memory wanted"
            )
        return buffer

    @staticmethod
    def _c_tensor(tensor: Tensor) -> _c.Tensor:
        c_tensor = _structs.initialised(
            _c.Tensor,
            library.onebit_tensor_init,
            tensor.parameters.address,
            tensor.gradients and tensor.gradients.address,
            tensor.parameters.size,
        )
        c_tensor.group = tensor.group
        c_tensor.gradient_type = _structs.enum_value(Datatype, "gradient_type", tensor.gradient_type)
        if tensor.copy is not None:
            c_tensor.copy = tensor.copy.address
            c_tensor.copy_type = _structs.enum_value(Datatype, "copy", tensor.copy.dtype)
        c_tensor.name = tensor.name and tensor.name.encode()
        return c_tensor


def set_options(config, options: dict) -> None:
    """Sets an optimizer's members by name, and its levels."""
    _structs.set_options(config, {name: value for name, value in options.items() if name != "levels"})
    set_levels(config, options.get("levels"))


def _config(kind, lr: float):
    kind = _structs.enum_value(OptimizerKind, "kind", kind)
    return _structs.initialised(_c.OptimizerConfig, library.onebit_optimizer_config_init, kind, lr)


def _refuse(comm: Communicator, error: Exception) -> None:
    """Takes part in the ranks' creation with an invalid tensor: creation fails on every rank, and no rank waits."""
    nothing = _structs.initialised(_c.Tensor, library.onebit_tensor_init, None, None, 1)
    nothing.name = f"{type(error).__name__}: {error}".encode()
    try:
        library.onebit_optimizer_create(
            comm._handle, ctypes.byref(_config("adam", 0.0)), ctypes.byref(nothing), 1, ctypes.byref(ctypes.c_void_p())
        )
    except Error:
        pass  # the caller knows why


def _param_group(options: dict, lr: float) -> _c.ParamGroup:
    group = _structs.initialised(_c.ParamGroup, library.onebit_param_group_init, lr)
    _structs.set_options(group, options)
    return group


def _array(struct_type, structs):
    return (struct_type * len(structs))(*structs)
