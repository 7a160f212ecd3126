// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"
#include "numeric/elements.hpp"

namespace onebit {

class MemoryBackend;

/// Segments that share a sketch before all sketches are added up: half a million elements in 4 KiB.
inline constexpr std::size_t kSketchSegments = 128;

/// A caller's tensor.
struct Tensor {
    std::string name;
    std::size_t number = 0; ///< in the order of registration
    std::size_t group = 0;
    std::size_t count = 0;
    std::size_t offset = 0; ///< of its first element among all tensors' elements
    float* parameters = nullptr;
    const void* gradients = nullptr;
    onebit_datatype_t gradient_type = ONEBIT_FLOAT32;
    onebit_datatype_t copy_type = ONEBIT_FLOAT32;
    void* copy = nullptr;

    /// The gradients [begin, begin + length) as floats, a block at most: where they lie, or in `scratch`; zeros if
    /// there are none.
    const float* read_gradients(std::size_t begin, std::size_t length, const NumericKernels& kernels,
                                float* scratch) const;
    /// Writes the parameters [begin, begin + length) to the copy, if there is one.
    void write_copy(std::size_t begin, std::size_t length, const NumericKernels& kernels) const;
};

/// Checks the caller's tensors and takes them over. INVALID_ARGUMENT with the tensor's name and number.
Status make_tensors(const onebit_tensor_t* tensors, std::size_t num_tensors, std::size_t num_groups,
                    std::vector<Tensor>* made);

/// INVALID_ARGUMENT where memory that the tensors name overlaps.
Status check_disjoint(const std::vector<Tensor>& tensors);

/// INVALID_ARGUMENT unless the pointer is aligned for the type. NULL is aligned.
Status check_alignment(const Tensor& tensor, const char* member, const void* pointer, onebit_datatype_t type);

/// INVALID_ARGUMENT unless the pointer, or each pointer of the tensor, is NULL or points to memory of this kind.
Status check_place(const Tensor& tensor, const char* member, const void* pointer, const MemoryBackend& backend);
Status check_place(const Tensor& tensor, const MemoryBackend& backend);

/// The part of one tensor in one block.
struct Segment {
    const Tensor* tensor = nullptr;
    std::size_t index = 0;  ///< among the layout's segments
    std::size_t begin = 0;  ///< in the tensor
    std::size_t offset = 0; ///< in the layout
    std::size_t count = 0;

    /// The part of it that lies within [from, from + length) of the layout; `count` 0 if there is none.
    Segment within(std::size_t from, std::size_t length) const {
        const std::size_t first = std::max(offset, from);
        const std::size_t end = std::min(offset + count, from + length);
        return {tensor, index, begin + (first - offset), first, end > first ? end - first : 0};
    }
    float* parameters() const { return tensor->parameters + begin; }
    const float* read_gradients(const NumericKernels& kernels, float* scratch) const {
        return tensor->read_gradients(begin, count, kernels, scratch);
    }
    void write_copy(const NumericKernels& kernels) const { tensor->write_copy(begin, count, kernels); }
};

/// Some tensors, one after the other: one buffer for an exchange. It is cut into the exchange's chunks and blocks, and
/// blocks are cut at the ends of tensors into segments. All of an optimizer's passes go from segment to segment.
class Layout {
  public:
    Layout() = default;
    /// The tensors must outlive it, in their places. Before cut() only tensors() and count() may be called.
    explicit Layout(std::vector<const Tensor*> tensors);
    /// Called once. The chunks lie one after the other.
    void cut(std::span<const Chunk> chunks);

    std::size_t count() const { return count_; }
    std::size_t bytes() const {
        return segments_.size() * sizeof(Segment) + (first_segment_.size() + runs_.size()) * sizeof(std::size_t);
    }
    const std::vector<const Tensor*>& tensors() const { return tensors_; }
    std::span<const Segment> segments() const { return segments_; }
    std::span<const Segment> segments(const Block& block) const {
        const std::size_t number = number_of(block);
        return segments().subspan(first_segment_[number], first_segment_[number + 1] - first_segment_[number]);
    }
    /// A block's number in the layout. first_segments() has a block's first segment by this number, and one past all.
    std::size_t number_of(const Block& block) const { return first_block_[block.chunk.index] + block.index; }
    std::span<const std::size_t> first_segments() const { return first_segment_; }
    /// The segments of tensors()[i].
    std::span<const Segment> segments_of_tensor(std::size_t i) const {
        return segments().subspan(tensor_segment_[i], tensor_segment_[i + 1] - tensor_segment_[i]);
    }
    /// Runs of segments, each of one tensor and at most kSketchSegments long: the first segment of each run, and one
    /// past the last segment.
    std::span<const std::size_t> runs() const { return runs_; }

    /// The whole tensor as one segment, longer than any block.
    Segment whole_tensor(std::size_t i) const {
        const Segment& first = segments_[tensor_segment_[i]];
        return {first.tensor, first.index, 0, first.offset, first.tensor->count};
    }

    /// Calls body(segment) for all of them, from several threads.
    template <typename Body>
    void for_each_segment(unsigned threads, const Body& body) const {
        parallel_for_blocks(0, segments_.size(), threads, [&](std::size_t i) { body(segments_[i]); });
    }

  private:
    void cut(const Block& block);

    std::vector<const Tensor*> tensors_;
    std::size_t count_ = 0;
    std::vector<std::size_t> first_block_;    ///< by chunk
    std::vector<std::size_t> first_segment_;  ///< by block, and one past the last
    std::vector<std::size_t> tensor_segment_; ///< by tensor: its first segment, and one past the last
    std::vector<std::size_t> runs_;
    std::vector<Segment> segments_;
};

} // namespace onebit
