# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""torch's GradScaler, on many ranks.

GradScaler looks for infinities in this rank's gradients only. A rank that finds one would skip the step and lower its
scale, others would wait for it. So the optimizers here take the scaler into their step: the C library divides by the
scale and finds infinities on all ranks together, and every rank's scaler hears the same.
"""

import inspect
import types
import warnings

import torch

# GradScaler hands itself to a step that has a parameter `grad_scaler`, and announces that it may stop doing so. What it
# would set instead, found_inf, is this rank's alone and can't be corrected.
warnings.filterwarnings("ignore", message="GradScaler is going to stop passing itself", category=FutureWarning)


def keep_signature(optimizer, step) -> None:
    """A function is to be `optimizer.step`: it takes what the class's takes, and says so to the scaler.

    Accelerate's has any arguments, which it passes on; GradScaler would see no parameter `grad_scaler`.
    """
    if isinstance(step, types.FunctionType) and "grad_scaler" not in inspect.signature(step).parameters:
        own = inspect.signature(types.MethodType(type(optimizer).step, optimizer))
        step.__signature__ = own  # type: ignore[attr-defined]


def scale_of(scaler, optimizer) -> float:
    """What the gradients are still multiplied by: 1 if `scaler.unscale_(optimizer)` has been called."""
    unscaled = scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED"
    return 1.0 if unscaled else scaler.get_scale()


def record(scaler, optimizer, skipped: bool) -> None:
    """Tells the scaler whether the step was skipped, as it was on every rank: `update()` lowers the scale then."""
    device = scaler._get_scale_async().device
    found = torch.full((1,), float(skipped), device=device)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {device: found}


def require_scaler(optimizer) -> None:
    """Raises RuntimeError where a GradScaler doesn't hand itself over: ranks could not agree on skipped steps."""
    if getattr(optimizer, "found_inf", None) is not None:
        raise RuntimeError("this version's GradScaler doesn't pass itself to step(): onebit can't use it yet")
