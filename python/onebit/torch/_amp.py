# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""torch's GradScaler, on many ranks.

GradScaler looks for infinities in this rank's gradients only. A rank that finds one would skip the step and lower its
scale, while other ranks would wait for it. So the optimizers here take the scaler into their step: the C library
divides by the scale and finds infinities on all ranks together, and every rank's scaler is told the same.
"""

import inspect
import types
import warnings

import torch

# GradScaler passes itself to a step that has a parameter `grad_scaler`, and warns that it may stop doing so. It would
# set found_inf instead, which holds only this rank's result and can't be corrected.
warnings.filterwarnings("ignore", message="GradScaler is going to stop passing itself", category=FutureWarning)


def keep_signature(optimizer, step) -> None:
    """Gives a function that becomes `optimizer.step` the signature of the class's step, for the scaler.

    Accelerate's function takes any arguments and passes them on: GradScaler would see no `grad_scaler`.
    """
    if isinstance(step, types.FunctionType) and "grad_scaler" not in inspect.signature(step).parameters:
        own = inspect.signature(types.MethodType(type(optimizer).step, optimizer))
        step.__signature__ = own  # type: ignore[attr-defined]


def scale_of(scaler, optimizer) -> float:
    """The factor that the gradients still contain: 1 if `scaler.unscale_(optimizer)` has been called."""
    unscaled = scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED"
    return 1.0 if unscaled else scaler.get_scale()


def record(scaler, optimizer, skipped: bool) -> None:
    """Tells the scaler whether the step was skipped, on every rank alike. If it was, `update()` lowers the scale."""
    device = scaler._get_scale_async().device
    found = torch.full((1,), float(skipped), device=device)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {device: found}


def require_scaler(optimizer) -> None:
    """Raises RuntimeError if a GradScaler doesn't pass itself: ranks could not agree on skipped steps."""
    if getattr(optimizer, "found_inf", None) is not None:
        raise RuntimeError("this version's GradScaler doesn't pass itself to step(): onebit can't use it yet")
