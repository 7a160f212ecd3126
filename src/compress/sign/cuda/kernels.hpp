// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>

#include "compress/codec.hpp"
#include "core/cuda/device.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"
#include "numeric/cuda/kernels.hpp"
#include "numeric/cuda/rows.hpp"

/// The sign codec on a GPU: SignCodec's verbs, each for all blocks of one or several slices at once, with the same
/// messages and errors to the bit. (Except for the payload of a NaN, which only an overflow can make.)
///
/// All pointers are to device memory, and all but `first` and what `seal` takes begin with the *chunk's* first element,
/// block or word, whatever the slice. Floats may have any alignment that a float may have. What
/// numeric/cuda/kernels.hpp says of streams and statuses is true of these functions, too.
namespace onebit::cuda {

/// The error of a chunk, in the one-pass form of SignFeedback.
struct ErrorBuffers {
    const float* before;         ///< what was sent last, one per element
    const float* before_scales;  ///< the scales `before` was sent with: one per block, or the tensor's
    float* corrected;            ///< `before` as it will be; the same, or not overlapping
    float* scales;               ///< `before_scales` as they will be, likewise; of a tensor: left to `seal`
    double* sums;                ///< one per block, for `seal`; used for tensors only
    const std::uint32_t* mask;   ///< one bit per element, 1 where it takes part; NULL: all do
    const std::uint32_t* counts; ///< elements that take part, one per block; used where there is a mask
};

/// Arguments that all encoders have: blocks, and where their results go.
struct Encoding {
    Slice slice;
    onebit_scale_t scale;
    onebit_group_t group;
    ErrorBuffers error;
    std::uint32_t* message; ///< the chunk's: signs, and scales where they are a block's
};

/// Worker: encodes values + error.
struct EncodeArguments {
    Encoding to;
    const float* values; ///< one per element
};
Status encode(const Rows<EncodeArguments>& slices, Stream stream);

/// Arguments of an encoder that blends.
struct BlendEncoding {
    Encoding to;
    const std::uint32_t* last; ///< the message that blends refer to; may be the one that is written
};

/// encode for values that lie in no array: puts an encoder of its own into its stream, which is the codec's.
class SliceEncoder {
  public:
    virtual ~SliceEncoder() = default;
    virtual Status encode(const Rows<BlendEncoding>& slices) const = 0;
};

/// Server: averages one message per rank, in rank order, adds the error and encodes the sum.
struct AverageEncodeArguments {
    Encoding to;
    const std::uint32_t* const* messages; ///< one pointer per rank; the array lies in device memory too
    std::size_t ranks;
    float share; ///< 1 / ranks, rounded; for a sum: 1
};
Status average_encode(const AverageEncodeArguments& arguments, Stream stream);

/// Completes the messages of tensors when every slice is encoded: one scale for all.
struct SealArguments {
    const double* sums; ///< of all blocks of all the feedback's chunks, in order
    std::size_t blocks;
    std::size_t elements; ///< that take part, in all chunks
    onebit_scale_t scale;
    float* scales;                  ///< one: the feedback's scale
    std::uint32_t* const* trailers; ///< one pointer per message, to its last word; the array in device memory too
    std::size_t messages;
};
Status seal(const SealArguments& arguments, Stream stream);

/// Expands a message: +-scale, and 0 where the mask says so.
struct DecodeArguments {
    Slice slice;
    onebit_group_t group;
    const std::uint32_t* message;
    const std::uint32_t* mask; ///< one bit per element; NULL: all take part
    float* values;             ///< one per element
};
Status decode(const Rows<DecodeArguments>& slices, Stream stream);

/// Finds the first block whose scale is a NaN or infinity. The result is the block's first element, counted from the
/// whole buffer's. A search continues from the results of searches before it; the first search needs `begin`.
struct FirstNonfiniteScaleArguments {
    Slice slice;
    onebit_group_t group;
    const std::uint32_t* message;
    unsigned long long* first; ///< as of first_nonfinite; the same for all slices
};
Status first_nonfinite_scale(const Rows<FirstNonfiniteScaleArguments>& slices, bool begin, Stream stream);

} // namespace onebit::cuda
