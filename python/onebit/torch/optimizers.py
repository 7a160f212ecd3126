# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The five optimizers. docs/OPTIMIZERS.md has what each computes, formula by formula.

Arguments that all have are FusedOptimizer's.
"""

from onebit._values import OptimizerKind
from onebit.torch._optimizer import FusedOptimizer


class Adam(FusedOptimizer):
    """AdamW, whose gradients are averaged in every step: exactly, or compressed by an option, codec="int8" say."""

    _kind = OptimizerKind.ADAM


class Lamb(FusedOptimizer):
    """LAMB (arXiv 1904.00962), whose gradients are averaged as Adam's: one trust ratio for each parameter.

    Options: min_trust, max_trust.
    """

    _kind = OptimizerKind.LAMB


class FreezingOptimizer(FusedOptimizer):
    """What the compressed kinds share: a warm-up that averages exactly. Not to be instantiated."""

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas=(0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        freeze_step="auto",
        **kwargs,
    ):
        """FusedOptimizer's arguments, and

          freeze_step  the last step of the warm-up; "auto": once the variance has settled; "never": `freeze` ends it;
                       "paper": by the rule of 1-bit Adam's authors

        Other options: lr_warmup_steps, freeze_window, freeze_band, follow_interval, thaw_ratio, compressed, codec.
        """
        super().__init__(params, lr, betas, eps, weight_decay, freeze_step=freeze_step, **kwargs)


class OneBitAdam(FreezingOptimizer):
    """1-bit Adam (arXiv 2102.02888): AdamW in the warm-up, then updates of one bit for each element, or by codec."""

    _kind = OptimizerKind.ONEBIT_ADAM


class OneBitLamb(FreezingOptimizer):
    """1-bit LAMB (arXiv 2104.06069): LAMB in the warm-up, then updates of one bit for each element, or by codec.

    Options: min_trust, max_trust, trust_beta.
    """

    _kind = OptimizerKind.ONEBIT_LAMB


class ZeroOneAdam(FreezingOptimizer):
    """0/1 Adam (arXiv 2202.06009): after the warm-up steps that exchange nothing, more and more of them.

    Ranks' parameters differ after such local steps, and are equal again after each exchange.
    Options: variance_updates, local_step_scaler, local_steps.
    """

    _kind = OptimizerKind.ZERO_ONE_ADAM
