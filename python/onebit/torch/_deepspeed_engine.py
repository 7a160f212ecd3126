# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An optimizer of this package inside DeepSpeed's engine, as its client optimizer."""

from onebit.torch._optimizer import FusedOptimizer


def attach_to_deepspeed(engine):
    """Lets a DeepSpeed engine's optimizer, one of this package, do the averaging and clipping. Local; on every rank.

        optimizer = onebit.torch.OneBitAdam(model.parameters(), max_grad_norm=1.0)
        engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        onebit.torch.attach_to_deepspeed(engine)

    To be called before the first backward pass: until then the engine averages gradients itself, in float32. "bf16" and
    "fp16" of the configuration are taken; DeepSpeed makes one step without gradients there, which counts.
    Returns the engine. Raises ValueError if the engine can't do without its own averages: ZeRO, pipelines, gradients
    that it clips (each rank its own), bucket_size while it accumulates, an optimizer that isn't of this package.
    """
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)  # inside DeepSpeed's wrapper of 16 bits
    if not isinstance(optimizer, FusedOptimizer):
        raise ValueError(
            f"the engine's optimizer is {type(optimizer).__name__}: pass one of onebit.torch to initialize()"
        )
    if engine.zero_optimization():
        raise ValueError("ZeRO gives each rank a part of the gradients: set zero_optimization.stage to 0")
    if hasattr(engine, "pipeline_enable_backward_allreduce"):
        raise ValueError("a pipeline engine averages gradients between its stages: onebit can't take its place")
    if engine.gradient_clipping() > 0:
        raise ValueError(
            f"the engine would clip each rank's own gradients to {engine.gradient_clipping()}: give max_grad_norm= to "
            "the optimizer, and set gradient_clipping to 0.0 in the engine's configuration (absent, it is 1.0)"
        )
    if optimizer.options.get("bucket_size") and engine.gradient_accumulation_steps() > 1:
        raise ValueError("with bucket_size exchanges would begin in every backward pass: make the optimizer without it")
    engine.enable_backward_allreduce = False  # as DeepSpeed's own 1-bit optimizers set it
    return engine
