# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""One parameter of a PyTorch optimizer, as the C optimizer knows it."""

from typing import Optional

import torch

from onebit.optimizer import Tensor
from onebit.torch import _dense

_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


class Parameter:
    """Where a parameter and its gradient lie. A 16-bit parameter is the copy of a float32 master."""

    __slots__ = (
        "tensor",
        "index",
        "name",
        "address",
        "master",
        "without_gradient",
        "_count",
        "_stride",
        "_contiguous",
        "_copy",
    )

    def __init__(self, tensor, index: int, name: str):
        """`index` counts the parameters of all groups. Raises TypeError for a type, ValueError for a place or a layout
        that can't be optimized."""
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"{name} is {tensor.dtype}; float32, float16 or bfloat16 wanted")
        if tensor.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{name} is in {tensor.device.type} memory: move the model to cpu or cuda first")
        if not _dense.is_dense(tensor):
            raise ValueError(f"{name} is not dense in memory: make it contiguous")
        self.tensor = tensor
        self.index = index
        self.name = name
        self.address = tensor.data_ptr()
        self.master = None if tensor.dtype is torch.float32 else _dense.flat(tensor).float()
        self.without_gradient = False
        self._count = tensor.numel()
        self._stride = tensor.stride()
        self._contiguous = tensor.is_contiguous()
        self._copy: Optional[torch.Tensor] = None

    def registered(self, group: int) -> Tensor:
        """What the C optimizer is told of the parameter."""
        flat = _dense.flat(self.tensor)
        parameters, copy = (flat, None) if self.master is None else (self.master, flat)
        return Tensor(parameters, None, group, copy, self.name, _DTYPES[self.tensor.dtype])

    def moved(self) -> torch.Tensor:
        """Its elements where they lie now, after its data was replaced. Raises RuntimeError if its kind has changed."""
        if self.master is not None or self.tensor.dtype is not torch.float32 or self.tensor.stride() != self._stride:
            raise RuntimeError(f"{self.name} was replaced by one of another kind or layout: make a new optimizer")
        if self.tensor.numel() != self._count or self.tensor.data_ptr() == 0:
            raise RuntimeError(
                f"{self.name} has no memory any more, or fewer elements: it was freed, or cut over ranks"
            )
        self.address = self.tensor.data_ptr()
        return _dense.flat(self.tensor)

    def gradient_address(self) -> Optional[int]:
        """Where the gradient lies, in the parameter's order of elements; None: there is none.

        Raises TypeError for a sparse gradient, RuntimeError for one without memory.
        """
        gradient = self.tensor.grad
        if gradient is None:
            self.without_gradient = True
            return None
        if gradient.layout is not torch.strided:
            raise TypeError(f"{self.name} has a sparse gradient: make the layer with sparse=False")
        if gradient.data_ptr() == 0:
            raise RuntimeError(
                f"{self.name} has a gradient whose memory was freed: keep it until the step, or set it None"
            )
        same = gradient.is_contiguous() if self._contiguous else gradient.stride() == self._stride
        return gradient.data_ptr() if same else self._in_order(gradient).data_ptr()

    def _in_order(self, gradient) -> torch.Tensor:
        """A copy of the gradient in the parameter's order of elements."""
        if self._copy is None:
            self._copy = torch.empty_like(self.tensor, memory_format=torch.preserve_format, requires_grad=False)
        return self._copy.copy_(gradient)


def mark_changed(tensors: list) -> None:
    """Tells autograd that the tensors were written to: a backward pass that needs the old values raises.

    PyTorch can be told from 2.1 on. Later versions can be told of many tensors at once.
    """
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is None:
        return
    try:
        increment(tensors)
    except (AttributeError, TypeError):
        for tensor in tensors:
            increment(tensor)
