// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/device.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"
#include "numeric/cuda/kernels.hpp"
#include "numeric/cuda/rows.hpp"

/// The grouped codes on a GPU: GroupedCodec's verbs, each for all blocks of one or several slices at once, with the
/// same messages and errors to the bit. (Except for the payload of a NaN, which only an overflow can make.)
///
/// All pointers are to device memory, and all but `first` begin with the *chunk's* first element or word, whatever the
/// slice. Floats may have any alignment that a float may have. What numeric/cuda/kernels.hpp says of streams and
/// statuses is true of these functions, too.
namespace onebit::cuda {

/// Arguments that all encoders have: blocks, and where their results go.
struct GroupedEncoding {
    Slice slice;
    onebit_codec_t codec;
    const float* before;       ///< the error, one per element
    float* after;              ///< the error as it will be; the same, or not overlapping
    const std::uint32_t* mask; ///< one bit per element, 1 where it takes part; NULL: all do
    std::uint32_t* message;    ///< the chunk's
};

/// Worker: encodes values + error.
struct GroupedEncodeArguments {
    GroupedEncoding to;
    const float* values; ///< one per element
};
Status encode(const Rows<GroupedEncodeArguments>& slices, Stream stream);

/// Server: adds up what one message per rank stands for, in rank order, adds the error and encodes the sum.
struct GroupedAverageEncodeArguments {
    GroupedEncoding to;
    const std::uint32_t* const* messages; ///< one pointer per rank; the array lies in device memory too
    std::size_t ranks;
    float share; ///< 1 / ranks, rounded; for a sum: 1
};
Status average_encode(const GroupedAverageEncodeArguments& arguments, Stream stream);

/// Expands a message; 0 where the mask says so.
struct GroupedDecodeArguments {
    Slice slice;
    onebit_codec_t codec;
    const std::uint32_t* message;
    const std::uint32_t* mask; ///< one bit per element; NULL: all take part
    float* values;             ///< one per element
};
Status decode(const Rows<GroupedDecodeArguments>& slices, Stream stream);

/// Finds the first block with a scale that is a NaN or infinity. The result is the block's first element, counted from
/// the whole buffer's. A search continues from the results of searches before it; the first search needs `begin`.
struct FirstNonfiniteGroupArguments {
    Slice slice;
    onebit_codec_t codec;
    const std::uint32_t* message;
    unsigned long long* first; ///< as of first_nonfinite; the same for all slices
};
Status first_nonfinite_group(const Rows<FirstNonfiniteGroupArguments>& slices, bool begin, Stream stream);

} // namespace onebit::cuda
