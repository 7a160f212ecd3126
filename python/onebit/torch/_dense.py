# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors whose elements fill one piece of memory, in whatever order of dimensions (channels_last, say)."""

import torch


def is_dense(tensor) -> bool:
    """Whether no two elements share memory and no memory lies between them."""
    if tensor.layout is not torch.strided:
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def flat(tensor):
    """The elements in the order in which they lie in memory: a contiguous view of one dimension."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
