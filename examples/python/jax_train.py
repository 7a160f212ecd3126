#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small JAX network on several processes with 1-bit Adam, and prints what it has sent.

  python3 jax_train.py --coordinator 127.0.0.1:9876 --size 2 --rank 0 &
  python3 jax_train.py --coordinator 127.0.0.1:9876 --size 2 --rank 1

The gradients are computed inside jit. The optimizer reads them where JAX has them, and moves the parameters, NumPy
arrays, which the next step is given. Its warm-up ends after a fifth of the steps: so short a training would not settle.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import onebit
import onebit.jax

INPUTS, WIDTH, BATCH = 64, 256, 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinator", default="127.0.0.1:9876", help="[%(default)s]")
    parser.add_argument("--size", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--rank", type=int, default=0, help="[%(default)s]")
    parser.add_argument("--steps", type=int, default=1000, help="[%(default)s]")
    parser.add_argument("--lr", type=float, default=2e-3, help="[%(default)s]")
    return parser.parse_args()


def initial_parameters():
    rng = np.random.default_rng()
    sizes = [INPUTS, WIDTH, WIDTH, 1]
    return [
        (rng.standard_normal((rows, columns), np.float32) / rows**0.5, np.zeros(columns, np.float32))
        for rows, columns in zip(sizes, sizes[1:])
    ]


@jax.jit
def loss_and_gradients(parameters, inputs, targets):
    def loss(parameters):
        values = inputs
        for weights, bias in parameters[:-1]:
            values = jax.nn.gelu(values @ weights + bias)
        weights, bias = parameters[-1]
        return jnp.mean((values @ weights + bias - targets) ** 2)

    return jax.value_and_grad(loss)(parameters)


def batch(rng):
    """A function that a network has to learn: products of neighbouring inputs, summed."""
    inputs = rng.standard_normal((BATCH, INPUTS), np.float32)
    return inputs, (inputs[:, :-1] * inputs[:, 1:]).sum(axis=1, keepdims=True) / INPUTS**0.5


def main():
    options = parse_arguments()
    jax.distributed.initialize(options.coordinator, options.size, options.rank)
    comm = onebit.jax.communicator()
    parameters = onebit.jax.broadcast(comm, initial_parameters())
    tensors = [onebit.Tensor(array) for array in jax.tree_util.tree_leaves(parameters)]
    optimizer = onebit.Optimizer(comm, "onebit_adam", tensors, options.lr, freeze_step=options.steps // 5)
    rng = np.random.default_rng(100 + options.rank)
    for step in range(1, options.steps + 1):
        loss, gradients = loss_and_gradients(parameters, *batch(rng))
        for number, gradient in enumerate(jax.tree_util.tree_leaves(gradients)):
            optimizer.set_gradients(number, np.asarray(gradient))  # waits for JAX; copies nothing on the CPU
        optimizer.step()
        if options.rank == 0 and step % (options.steps // 10) == 0:
            info = optimizer.info
            sent = (info.warmup_bytes_sent + info.compressed_bytes_sent) / 1e6
            dense = step * info.count * 8 * (1 - 1 / options.size) / 1e6
            print(f"step {step}: loss {loss:.4f}, sent {sent:.1f} MB (dense: {dense:.1f} MB)", flush=True)


if __name__ == "__main__":
    main()
