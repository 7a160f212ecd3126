// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"

namespace onebit {

/// A caller's tensor and where its elements lie in the fused buffers.
struct Tensor {
    std::string name;
    float* parameters = nullptr;
    const float* gradients = nullptr;
    std::size_t count = 0;
    std::size_t offset = 0;
};

/// The caller's tensors, one behind the other: what is one buffer to the exchange.
class TensorSet {
  public:
    /// INVALID_ARGUMENT with the tensor's name and number.
    static Status create(const onebit_tensor_t* tensors, std::size_t num_tensors, TensorSet* set);

    const std::vector<Tensor>& tensors() const { return tensors_; }
    std::size_t count() const { return count_; }

    /// Calls body(tensor, begin, length) for blocks of each tensor, from several threads.
    template <typename Body>
    void for_each_block(unsigned threads, const Body& body) const {
        for (const Tensor& tensor : tensors_) {
            parallel_for(0, ceil_divide(tensor.count, kBlockElements), threads, [&](std::size_t block) {
                const std::size_t begin = block * kBlockElements;
                body(tensor, begin, std::min(kBlockElements, tensor.count - begin));
            });
        }
    }

    /// NONFINITE with the tensor and the element where a gradient is a NaN or an infinity.
    Status check_gradients() const;

    /// Copies the gradients, one tensor behind the other.
    void gather_gradients(float* fused, unsigned threads) const;

  private:
    std::vector<Tensor> tensors_;
    std::size_t count_ = 0;
};

} // namespace onebit
