# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The five optimizers. docs/OPTIMIZERS.md has what each computes, formula by formula.

Arguments that all have are FusedOptimizer's.
"""

from onebit._values import OptimizerKind
from onebit.torch._optimizer import FusedOptimizer


class Adam(FusedOptimizer):
    """AdamW, whose gradients are averaged exactly in every step."""

    _kind = OptimizerKind.ADAM


class Lamb(FusedOptimizer):
    """LAMB (arXiv 1904.00962), whose gradients are averaged exactly in every step: one trust ratio for each parameter.

    Options: min_trust, max_trust.
    """

    _kind = OptimizerKind.LAMB


class OneBitAdam(FusedOptimizer):
    """1-bit Adam (arXiv 2102.02888): AdamW in a warm-up, then updates of one bit for each element.

    freeze_step: the last step of the warm-up; "auto" (once the variance has settled), "never", or "paper" (by the
    paper's rule). Other options: lr_warmup_steps, freeze_window, freeze_band, follow_interval, thaw_ratio, compressed.
    """

    _kind = OptimizerKind.ONEBIT_ADAM

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, freeze_step="auto", **kwargs):
        super().__init__(params, lr, betas, eps, weight_decay, freeze_step=freeze_step, **kwargs)


class OneBitLamb(FusedOptimizer):
    """1-bit LAMB (arXiv 2104.06069): LAMB in a warm-up, then updates of one bit for each element.

    freeze_step and other options: as for OneBitAdam; also min_trust, max_trust, trust_beta.
    """

    _kind = OptimizerKind.ONEBIT_LAMB

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, freeze_step="auto", **kwargs):
        super().__init__(params, lr, betas, eps, weight_decay, freeze_step=freeze_step, **kwargs)


class ZeroOneAdam(FusedOptimizer):
    """0/1 Adam (arXiv 2202.06009): after the warm-up steps that exchange nothing, more and more of them.

    Ranks' parameters differ after such local steps, and are equal again after each exchange.
    freeze_step and other options: as for OneBitAdam; also variance_updates, local_step_scaler, local_steps.
    """

    _kind = OptimizerKind.ZERO_ONE_ADAM

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, freeze_step="auto", **kwargs):
        super().__init__(params, lr, betas, eps, weight_decay, freeze_step=freeze_step, **kwargs)
