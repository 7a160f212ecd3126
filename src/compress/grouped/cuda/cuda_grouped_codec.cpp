// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/grouped/cuda/cuda_grouped_codec.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "compress/block_loops.hpp"
#include "compress/grouped/grouped_codec.hpp"
#include "compress/grouped/layout.hpp"

namespace onebit {

// ------------------------------------------------------------------------------------------- CudaStoredError ----

StoredError CudaStoredError::on_host(std::span<const std::uint32_t> mask) const {
    StoredError host(chunks(), ONEBIT_FLOAT32, numeric_kernels(""));
    host.set_mask(mask); // the error is still zero: it does not change
    error.copy_to(host.floats(0));
    return host;
}

void CudaStoredError::get_error(float* values) const {
    on_host({}).get_error(values);
}

void CudaStoredError::set_error(const float* values) {
    const std::vector<std::uint32_t> mask = mask_on_host(mask_, device_);
    StoredError host = on_host(mask);
    host.set_error(values);
    error.copy_from(host.floats(0));
}

void CudaStoredError::set_mask(std::span<const std::uint32_t> mask) {
    const std::vector<std::uint32_t> words = mask_on_host(mask, device_);
    StoredError host = on_host({});
    host.set_mask(words);
    error.copy_from(host.floats(0));
    mask_ = mask;
}

// ------------------------------------------------------------------------------------------ CudaGroupedCodec ----

CudaGroupedCodec::CudaGroupedCodec(onebit_codec_t codec, cuda::Stream stream)
    : GpuCodec(stream),
      codec_(codec),
      bits_(std::ranges::find(reference_grouped_kernels().codes, codec, &GroupedKernels::codec)->bits) {}

std::size_t CudaGroupedCodec::message_words(const Chunk& chunk) const {
    return grouped_word(bits_, chunk, chunk.blocks());
}

WordRange CudaGroupedCodec::words_of(const Slice& slice) const {
    const std::size_t begin = grouped_word(bits_, slice.chunk, slice.first_block);
    return {begin, grouped_word(bits_, slice.chunk, slice.end_block) - begin};
}

std::unique_ptr<Feedback> CudaGroupedCodec::make_feedback(std::span<const Chunk> chunks) const {
    reserve_received(chunks.size()); // a worker's chunks are as many as there are ranks
    return std::make_unique<CudaStoredError>(chunks, device());
}

cuda::GroupedEncoding CudaGroupedCodec::encoding(const Feedback& before, Feedback& after, const Slice& slice,
                                                 std::uint32_t* message) const {
    const auto& from = static_cast<const CudaStoredError&>(before);
    const std::size_t at = from.element_index(slice.chunk, 0);
    return {slice,
            codec_,
            from.error.data() + at,
            static_cast<CudaStoredError&>(after).error.data() + at,
            mask_at(from.mask(), slice.chunk.begin),
            message};
}

void CudaGroupedCodec::encode(const ValueSource& values, const Feedback& before, Feedback& after,
                              std::span<const SliceToEncode> slices) const {
    const auto row_of = [&](const SliceToEncode& encoded) {
        const Slice& slice = encoded.slice;
        const BlockValues from = values.read({slice.chunk, slice.first_block}, nullptr);
        assert(!from.blend && !from.mean && from.encoder == nullptr); // see takes_blends
        return cuda::GroupedEncodeArguments{encoding(before, after, slice, encoded.message),
                                            of_chunk(from.data, slice)};
    };
    note(launch_rows(slices, row_of, [&](const auto& rows) { return cuda::encode(rows, stream()); }));
}

void CudaGroupedCodec::average_encode(std::span<const std::uint32_t* const> messages, float share,
                                      const Feedback& before, Feedback& after, const Slice& slice,
                                      std::uint32_t* message) const {
    note(cuda::average_encode({encoding(before, after, slice, message), received(messages), messages.size(), share},
                              stream()));
}

void CudaGroupedCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                              const ValueSink& values) const {
    const auto row_of = [&](const EncodedSlice& encoded) {
        const auto& [slice, message] = encoded;
        return cuda::GroupedDecodeArguments{slice, codec_, message, mask_at(mask, slice.chunk.begin),
                                            of_chunk(values.place(slice.begin(), nullptr), slice)};
    };
    note(launch_rows(slices, row_of, [&](const auto& rows) { return cuda::decode(rows, stream()); }));
}

std::size_t CudaGroupedCodec::first_overflowed(std::span<const EncodedSlice> slices) const {
    const auto row_of = [&](const EncodedSlice& encoded) {
        return cuda::FirstNonfiniteGroupArguments{encoded.slice, codec_, encoded.message, overflow()};
    };
    note(launch_rows(slices, row_of,
                     [&](const auto& rows) { return cuda::first_nonfinite_group(rows, !goes_on(), stream()); }));
    return slices.size();
}

Status make_cuda_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    *codec = std::make_unique<CudaGroupedCodec>(config.codec, static_cast<cuda::Stream>(config.stream));
    return {};
}

} // namespace onebit
