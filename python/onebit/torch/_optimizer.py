# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What all PyTorch optimizers of onebit share: they differ only in their kind and in their options."""

import contextlib
import itertools
import warnings
from typing import Dict, Optional

import torch

from onebit import _c, _structs
from onebit._errors import Error, Nonfinite
from onebit._library import library
from onebit._values import OptimizerInfo, OptimizerKind
from onebit.communicator import Communicator
from onebit.optimizer import Optimizer, set_options
from onebit.torch import _adam_state, _amp, _start
from onebit.torch._communicator import agree, attempt, require_initialised
from onebit.torch._communicator import communicator as communicator_of_group
from onebit.torch._early import EarlyGradients
from onebit.torch._parameter import Parameter, mark_changed
from onebit.torch._saved import SavedOptimizer, settings_of


class FusedOptimizer(SavedOptimizer):
    """Averages gradients over the ranks and moves the parameters, in one call of the C library. Not to be instantiated.

    It takes DistributedDataParallel's place: give it the bare model's parameters. Every method is collective, unless it
    is said to be local.
    """

    _kind: OptimizerKind
    _step_supports_amp_scaling = True  # GradScaler leaves infinities to us: see _amp.py

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas=(0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        group=None,
        communicator: Optional[Communicator] = None,
        max_grad_norm: float = 0.0,
        scale_group="block",
        bucket_size=0,
        exact_1d: bool = False,
        **options,
    ):
        """Takes the parameters' values from rank 0. Collective; blocks.

          params         parameters, or dictionaries of them with settings of their own: lr, betas, eps, weight_decay,
                         no_compress (True: averaged exactly in every step). float32, or float16 and bfloat16, for
                         which a float32 master is kept
          group          process group of torch.distributed; None: the default one
          communicator   in place of a group: an onebit communicator. Parameters must then be equal on every rank
          max_grad_norm  the averaged gradient is scaled down to this norm; 0: it is not
          scale_group    "block", "buffer" or "tensor": the elements that share a scale
          bucket_size    elements, about, whose exchange begins together in the backward pass, or "suggested"; 0: `step`
                         exchanges all. Worth it on slow networks (docs/ARCHITECTURE.md has figures): see `no_sync`
          exact_1d       True: parameters of at most one dimension, biases and normalisations as a rule, are averaged
                         exactly in every step, like those of no_compress groups. If these are fewer elements than
                         ranks, they are compressed, with a warning. It can't change from save to load
          options        other members of onebit_optimizer_config_t by name; docs/OPTIMIZERS.md says what they do
        """
        self.options = {
            "max_grad_norm": max_grad_norm,
            "group": scale_group,
            "bucket_size": bucket_size,
            "missing_gradients": True,
            **options,
        }
        """What the C optimizer is made with, besides the parameter groups."""
        self._exact_1d = bool(exact_1d)
        self._group = group
        self._is_ours = communicator is None  # then parameters are rank 0's, and `close` closes it
        if communicator is not None:
            self._communicator = communicator
        self._begin_without_state()
        if self._is_ours:
            require_initialised()
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, no_compress=False)
        self._add(lambda: self._construct(params, defaults))
        if self._is_ours:
            self._communicator = communicator_of_group(group)

    def __setattr__(self, name: str, value) -> None:
        if name == "step":
            _amp.keep_signature(self, value)
        super().__setattr__(name, value)

    def _construct(self, params, defaults) -> None:
        self._check_options(defaults["lr"])
        self._adding = True
        super().__init__(params, defaults)
        self._adding = False

    def add_param_group(self, param_group) -> None:
        """Adds parameters with rank 0's values. Raises RuntimeError after the first step. Collective."""
        if self._fused is not None:
            raise RuntimeError("a parameter group can't be added after the first step")
        add = super().add_param_group
        if self._adding:
            add(param_group)
        else:
            self._add(lambda: add(param_group))

    def _add(self, add) -> None:
        """Calls `add`, and gives the added parameter groups rank 0's values. If one rank raises, all ranks raise."""
        before = len(getattr(self, "param_groups", ()))
        _, failure = attempt(add)
        try:
            if self._is_ours:
                agree(self._group, failure)
                _start.require_same_shapes(self.param_groups[before:], self._group)
            elif failure is not None:
                raise failure
        except Exception:
            del getattr(self, "param_groups", [])[before:]
            raise
        for group in self.param_groups[before:] if self._is_ours else ():
            _start.broadcast(group["params"], self._group)

    @torch.no_grad()
    def step(self, closure=None, *, grad_scaler=None):
        """One step with the gradients as they now are. Collective; blocks. Returns the closure's result.

        A rank's gradients are its own: they are not averaged before. A missing gradient counts as zero. If no parameter
        of a rank has a gradient in the first step, this rank raises RuntimeError, and the others Cancelled.
        Raises Nonfinite on every rank for a NaN or an infinity in any rank's gradients: nothing has changed. With a
        GradScaler it isn't raised: every rank's scaler lowers its scale. An exception that the closure raises on this
        rank is Cancelled on the others.
        """
        _amp.require_scaler(self)
        self._ready()
        try:
            loss = self._loss(closure)
            self._pass_step(grad_scaler)
        except Exception as error:
            self._cancel(f"{type(error).__name__}: {error}")
            raise
        skipped = self._step_fused(quietly=grad_scaler is not None)
        if grad_scaler is not None:
            _amp.record(grad_scaler, self, skipped)
        if not skipped:
            mark_changed([parameter.tensor for parameter in self._parameters])
        return loss

    @contextlib.contextmanager
    def no_sync(self):
        """For all of a step's backward passes but the last, where gradients are accumulated and there is a bucket_size.

        Exchanges begin in the backward passes outside. A step that begins in such a pass reads the gradients, and has
        the settings, as they are then. If they have changed since, `step` raises RuntimeError, and Cancelled on other
        ranks. Local. Without a bucket_size it does nothing.
        """
        early = self._early
        paused = early is not None and early.paused
        if early is not None:
            early.paused = True
        try:
            yield
        finally:
            if early is not None:
                early.paused = paused

    def cancel_step(self, reason: str = "") -> None:
        """In place of `step`: cancels it on all ranks, for example if a backward pass ran out of memory.

        Other ranks call `step`, and get Cancelled. Nothing has changed, and the next step may follow.
        """
        self._ready()
        self._cancel(reason)

    def freeze(self) -> None:
        """Ends the warm-up: the next step is the first compressed one. Local; to be called on every rank."""
        self._created().freeze()
        self._gathered = None

    @property
    def info(self) -> OptimizerInfo:
        """Steps, stage, bytes sent, memory, and what a freeze waits for. After the first step. Local."""
        return self._created().info

    def moments(self, parameter) -> Dict[str, torch.Tensor]:
        """A parameter's "exp_avg" and "exp_avg_sq" as Adam has them, float32, copied. After the first step. Local."""
        fused = self._created()
        for number, each in enumerate(self._parameters):
            if each.tensor is parameter:
                return _adam_state.read(fused, number, each)
        raise ValueError("the optimizer doesn't have this parameter, or it required no gradient at the first step")

    def close(self) -> None:
        """Releases the state and the communicator. Garbage collection does this, too, except over NCCL."""
        if self._early is not None:
            self._early.close()
        if self._fused is not None:
            self._fused.close()
        if self._is_ours:
            self._communicator.close()

    # ---- the first step ----

    def _check_options(self, lr) -> None:
        """Raises for options that don't exist, before anything is collective."""
        config = _structs.initialised(_c.OptimizerConfig, library.onebit_optimizer_config_init, self._kind, float(lr))
        set_options(config, self.options)

    def _ready(self, check: bool = True) -> None:
        """Makes the C optimizer if there is none; this is collective. `check`: parameters must be equal."""
        if self._fused is not None:
            return
        fused = self._fused = self._create(check and not self._packed)
        try:
            self._take_over_packed()
        except Exception:
            fused.close()
            self._fused = None
            raise
        if self.options["bucket_size"]:
            self._early = EarlyGradients(fused, self._parameters, self._stream, self._begin_early)

    def _found(self) -> list:
        """((its group, exact?), Parameter) of each parameter to be optimized. May fail on one rank alone."""
        numbers = itertools.count()
        exact_1d = self._keeps_1d_exact()
        found = [
            (
                (index, bool(group["no_compress"] or exact_1d and tensor.dim() <= 1)),
                Parameter(tensor, number, f"parameter {i} of group {index}, {tuple(tensor.shape)}"),
            )
            for index, group in enumerate(self.param_groups)
            for (i, tensor), number in zip(enumerate(group["params"]), numbers)
            if tensor.requires_grad and tensor.numel() > 0
        ]
        if not found:
            raise ValueError("no parameter requires a gradient")
        self._parts = [(index, bool(group["no_compress"])) for index, group in enumerate(self.param_groups)]
        if exact_1d:
            self._parts += [(index, True) for index, exact in self._parts if not exact]
        self._settings = [settings_of(group) for group in self.param_groups]
        return found

    def _keeps_1d_exact(self) -> bool:
        """Whether parameters of one dimension are averaged exactly: only if each rank has an element to add up."""
        if not self._exact_1d:
            return False
        exact = sum(
            tensor.numel()
            for group in self.param_groups
            for tensor in group["params"]
            if tensor.requires_grad and (group["no_compress"] or tensor.dim() <= 1)
        )
        if exact < self._communicator.size:
            warnings.warn(
                f"exact_1d: {exact} elements are fewer than the {self._communicator.size} ranks: they are compressed",
                stacklevel=2,
            )
        return exact >= self._communicator.size

    def _create(self, check: bool) -> Optimizer:
        found, failure = attempt(self._found)
        _start.agree(self._communicator, failure)
        self._parameters = [parameter for _, parameter in found]
        self._frozen = [t for group in self.param_groups for t in group["params"] if not t.requires_grad]
        tensors = [parameter.tensor for parameter in self._parameters]
        if check:
            _start.require_equal(tensors, self._communicator)
        self._stream = self._current_stream()
        on_gpu = tensors[0].is_cuda
        return Optimizer(
            self._communicator.on_gpu(self._stream) if on_gpu else self._communicator,
            self._kind,
            [parameter.registered(self._parts.index(part)) for part, parameter in found],
            groups=[dict(self._settings[index], no_compress=exact) for index, exact in self._parts],
            stream=self._stream,
            **self.options,
        )

    def _created(self) -> Optimizer:
        if self._fused is None:
            raise RuntimeError("call step() first: the optimizer's state is made by the first step")
        return self._fused

    # ---- each step ----

    @staticmethod
    def _loss(closure):
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def _pass_step(self, grad_scaler) -> None:
        """Hands the C library what the step needs. Raises if the step can't be made."""
        self._scaler = grad_scaler
        scale = 1.0 if grad_scaler is None else _amp.scale_of(grad_scaler, self)
        self._check_parameters()
        if self._early is None or not self._early.begun:
            self._pass_settings(scale)
            self._pass_gradients()
        else:
            self._require_same_settings(scale)
            self._early.complete()
        if not self._warned:
            self._look_at_missing_gradients()

    def _require_same_settings(self, scale: float) -> None:
        if scale != self._gradient_scale or [settings_of(group) for group in self.param_groups] != self._settings:
            raise RuntimeError(
                "settings, or a GradScaler's scale, were changed between the backward pass, in which the step began, "
                "and step(): change them before, or make the optimizer without bucket_size"
            )

    def _begin_early(self) -> None:
        """The first gradient of a step is there. The scale is that of the last step's scaler."""
        self._check_parameters()
        self._pass_settings(1.0 if self._scaler is None else _amp.scale_of(self._scaler, self))

    def _check_parameters(self) -> None:
        """Tells the C library of parameters that lie elsewhere now. Raises RuntimeError if it can't follow a change."""
        for number, parameter in enumerate(self._parameters):
            if parameter.tensor.data_ptr() != parameter.address:
                self._created().set_parameters(number, parameter.moved())
        if any(tensor.requires_grad for tensor in self._frozen):
            raise RuntimeError("a parameter requires a gradient that did not at the first step: make a new optimizer")
        if self._stream != self._current_stream():
            raise RuntimeError("each step must be called in the CUDA stream that the first one was called in")

    def _current_stream(self) -> int:
        """Address of the CUDA stream that work goes into now; 0 for parameters in the host's memory."""
        tensor = self._parameters[0].tensor
        return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0

    def _pass_settings(self, gradient_scale: float) -> None:
        """Hands changed settings to the C library."""
        fused = self._created()
        settings = [settings_of(group) for group in self.param_groups]
        for number, (index, exact) in enumerate(self._parts):
            now, before = settings[index], self._settings[index]
            if now == before:
                continue
            if dict(now, lr=None) == dict(before, lr=None):
                fused.set_lr(now["lr"], number)
            else:
                fused.set_group(number, no_compress=exact, **now)
        self._settings = settings
        if gradient_scale != self._gradient_scale:
            fused.set_gradient_scale(gradient_scale)
            self._gradient_scale = gradient_scale

    def _pass_gradients(self) -> None:
        addresses = [parameter.gradient_address() for parameter in self._parameters]
        if addresses != self._addresses:
            self._created().set_gradient_addresses(addresses)
            self._addresses = addresses

    def _look_at_missing_gradients(self) -> None:
        if all(parameter.tensor.grad is None for parameter in self._parameters) and self._created().info.steps == 0:
            raise RuntimeError(
                "step() before backward(): no parameter has a gradient on this rank. Call backward() first, or give the "
                "parameters gradients of zeros"
            )
        missing = [parameter.name for parameter in self._parameters if parameter.without_gradient]
        if missing:
            self._warned = True
            warnings.warn(
                f"{len(missing)} parameters have no gradient on this rank, first {missing[0]}: they count as zero",
                stacklevel=4,
            )

    def _step_fused(self, quietly: bool) -> bool:
        """Whether it was skipped because gradients aren't finite. Raises Nonfinite then, unless `quietly`."""
        self._gathered = None
        try:
            self._created().step()
        except Nonfinite:
            if not quietly:
                raise
            return True
        finally:
            self._forget_early()
        return False

    def _cancel(self, reason: str) -> None:
        try:
            self._created().cancel_step(reason)
        except Error:
            pass  # the caller knows why
        finally:
            self._forget_early()

    def _forget_early(self) -> None:
        if self._early is not None and self._early.begun:
            self._early.forget()
            self._addresses = []  # they were passed one by one
