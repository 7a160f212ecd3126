# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges that begin in the backward pass: the C optimizer is told of each gradient as soon as it is accumulated.

A step that has begun keeps its settings, and reads the gradients as they were. So `step` finds every change between the
backward pass and `step`, and such a change ends the step on all ranks: it is never silently left out.
"""

import functools
import warnings
import weakref
from typing import Callable, Dict, List, Tuple

import torch

from onebit.optimizer import Optimizer
from onebit.torch._parameter import Parameter

CAN_BEGIN = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


class EarlyGradients:
    """The gradients of the coming step that the C optimizer has been told of."""

    def __init__(self, fused: Optimizer, parameters: List[Parameter], stream: int, begin: Callable[[], None]):
        """
        stream  that of the optimizer's work on a GPU
        begin   called before a step's first gradient: passes on what the step begins with
        """
        self.paused = False
        self._fused = fused
        self._parameters = parameters
        self._stream = stream
        self._begin = begin
        self._told: Dict[int, Tuple[torch.Tensor, int]] = {}  # gradients, kept, and their versions
        self._spoiled = ""
        if not CAN_BEGIN:
            warnings.warn(
                f"PyTorch {torch.__version__} has no hook after a gradient's accumulation: bucket_size has no exchange "
                "begin in the backward pass",
                stacklevel=6,
            )
        self._hooks = [
            tensor.register_post_accumulate_grad_hook(functools.partial(_on_gradient, weakref.ref(self), number))
            for number, tensor in enumerate(parameter.tensor for parameter in (parameters if CAN_BEGIN else ()))
        ]

    @property
    def begun(self) -> bool:
        """Whether the coming step has begun."""
        return bool(self._told)

    def tell(self, number: int) -> None:
        """A parameter's gradient is complete. Raises RuntimeError if it was complete already."""
        tensor = self._parameters[number].tensor
        if tensor.is_cuda and torch.cuda.current_stream(tensor.device).cuda_stream != self._stream:
            return  # the optimizer's stream isn't ordered after this gradient's: `step` is
        if number in self._told:
            self._spoiled = (
                f"{self._parameters[number].name} got its gradient twice: all backward passes of a step but the last "
                "belong into `with optimizer.no_sync():`"
            )
            raise RuntimeError(self._spoiled)
        if not self._told:
            self._begin()
        self._fused.set_gradient_address(number, self._parameters[number].gradient_address())
        self._fused.grad_ready(number)
        self._told[number] = tensor.grad, tensor.grad._version

    def complete(self) -> None:
        """Passes on the other gradients, for the step. Raises RuntimeError if one on its way has changed."""
        if self._spoiled:
            raise RuntimeError(self._spoiled)
        for number, parameter in enumerate(self._parameters):
            if number not in self._told:
                self._fused.set_gradient_address(number, parameter.gradient_address())
                continue
            gradient, version = self._told[number]
            if parameter.tensor.grad is not gradient or gradient._version != version:
                raise RuntimeError(
                    f"{parameter.name}: its gradient was changed after the backward pass, which has sent it: make the "
                    "optimizer without bucket_size (max_grad_norm clips, and a GradScaler needs no unscale_)"
                )

    def forget(self) -> None:
        """The step is over."""
        self._told.clear()
        self._spoiled = ""

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _on_gradient(reference, number: int, parameter) -> None:
    early = reference()  # the parameter outlives the optimizer
    if early is not None and not early.paused:
        early.tell(number)
