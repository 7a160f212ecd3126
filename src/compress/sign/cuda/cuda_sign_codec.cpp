// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/cuda/cuda_sign_codec.hpp"

#include "compress/sign/arithmetic.hpp"

namespace onebit {

// ------------------------------------------------------------------------------------------ CudaSignFeedback ----

CudaSignFeedback::CudaSignFeedback(std::span<const Chunk> chunks, onebit_group_t group, Memory& device)
    : SignPlaces(chunks, group),
      corrected(elements(), device),
      scales(scale_count(), device),
      sums(blocks(), device),
      device_(device),
      counts_(blocks(), device),
      valid_count_(packed_elements()) {
    trailers.reserve(this->chunks().size(), device);
}

void CudaSignFeedback::reset() {
    corrected.fill_zero();
    scales.fill_zero();
}

void CudaSignFeedback::get_error(float* error) const {
    const std::vector<std::uint32_t> mask = mask_on_host(mask_, device_);
    on_host(mask).get_error(error);
}

void CudaSignFeedback::set_error(const float* error) {
    const std::vector<std::uint32_t> mask = mask_on_host(mask_, device_);
    SignFeedback host = on_host(mask);
    host.set_error(error);
    take(host);
}

void CudaSignFeedback::set_mask(std::span<const std::uint32_t> mask) {
    const std::vector<std::uint32_t> old_mask = mask_on_host(mask_, device_);
    const std::vector<std::uint32_t> new_mask = mask_on_host(mask, device_);
    SignFeedback host = on_host(old_mask);
    host.set_mask(new_mask);
    take(host);
    mask_ = mask;
    std::vector<std::uint32_t> counts;
    for (const Chunk& chunk : chunks()) {
        for (std::size_t block = 0; block < chunk.blocks(); ++block) {
            counts.push_back(static_cast<std::uint32_t>(host.valid_count(chunk, block)));
        }
    }
    counts_.copy_from(counts.data());
    valid_count_ = host.valid_count();
}

SignFeedback CudaSignFeedback::on_host(std::span<const std::uint32_t> mask) const {
    SignFeedback host(chunks(), group());
    host.set_mask(mask); // the error is still zero: it does not change
    corrected.copy_to(host.corrected.data());
    scales.copy_to(host.scales.data());
    return host;
}

void CudaSignFeedback::take(const SignFeedback& host) {
    corrected.copy_from(host.corrected.data());
    scales.copy_from(host.scales.data());
}

cuda::ErrorBuffers CudaSignFeedback::buffers(const Chunk& chunk, CudaSignFeedback& after) const {
    const std::size_t element = element_index(chunk, 0);
    const std::size_t block = block_index(chunk, 0);
    const std::size_t scale = scale_index(chunk, 0);
    return {corrected.data() + element,  scales.data() + scale,     after.corrected.data() + element,
            after.scales.data() + scale, after.sums.data() + block, mask_at(mask_, chunk.begin),
            counts_.data() + block};
}

// --------------------------------------------------------------------------------------------- CudaSignCodec ----

std::unique_ptr<Feedback> CudaSignCodec::make_feedback(std::span<const Chunk> chunks) const {
    reserve_received(chunks.size()); // a worker's chunks are as many as there are ranks
    sealed_.reserve(chunks.size());
    return std::make_unique<CudaSignFeedback>(chunks, group_, device());
}

cuda::Encoding CudaSignCodec::encoding(const Feedback& before, Feedback& after, const Slice& slice,
                                       std::uint32_t* message) const {
    const auto& from = static_cast<const CudaSignFeedback&>(before);
    return {slice, scale_, group_, from.buffers(slice.chunk, static_cast<CudaSignFeedback&>(after)), message};
}

void CudaSignCodec::encode(const ValueSource& values, const Feedback& before, Feedback& after,
                           std::span<const SliceToEncode> slices) const {
    const auto read = [&](const Slice& slice) { return values.read({slice.chunk, slice.first_block}, nullptr); };
    const cuda::SliceEncoder* const encoder = slices.empty() ? nullptr : read(slices.front().slice).encoder;
    if (encoder != nullptr) { // then all slices have it
        const auto row_of = [&](const SliceToEncode& slice) {
            return cuda::BlendEncoding{encoding(before, after, slice.slice, slice.message), slice.last};
        };
        note(launch_rows(slices, row_of, [&](const auto& rows) { return encoder->encode(rows); }));
    } else {
        const auto row_of = [&](const SliceToEncode& slice) {
            return cuda::EncodeArguments{encoding(before, after, slice.slice, slice.message),
                                         of_chunk(read(slice.slice).data, slice.slice)};
        };
        note(launch_rows(slices, row_of, [&](const auto& rows) { return cuda::encode(rows, stream()); }));
    }
}

void CudaSignCodec::average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                                   Feedback& after, const Slice& slice, std::uint32_t* message) const {
    note(cuda::average_encode({encoding(before, after, slice, message), received(messages), messages.size(), share},
                              stream()));
}

void CudaSignCodec::seal(Feedback& after, std::span<std::uint32_t* const> messages) const {
    if (group_ == ONEBIT_GROUP_BLOCK) return;
    auto& error = static_cast<CudaSignFeedback&>(after);
    sealed_.clear();
    for (std::size_t j = 0; j < messages.size(); ++j) {
        const WordRange trailer = trailer_of(error.chunks()[j]);
        if (trailer.count > 0) sealed_.push_back(messages[j] + trailer.begin);
    }
    note(error.trailers.update(sealed_, stream()));
    note(cuda::seal({error.sums.data(), error.blocks(), error.valid_count(), scale_, error.scales.data(),
                     error.trailers.data(), sealed_.size()},
                    stream()));
}

void CudaSignCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                           const ValueSink& values) const {
    const auto row_of = [&](const EncodedSlice& encoded) {
        const auto& [slice, message] = encoded;
        const std::uint32_t* const valid = mask_at(mask, slice.chunk.begin);
        return cuda::DecodeArguments{slice, group_, message, valid,
                                     of_chunk(values.place(slice.begin(), nullptr), slice)};
    };
    note(launch_rows(slices, row_of, [&](const auto& rows) { return cuda::decode(rows, stream()); }));
}

std::size_t CudaSignCodec::first_overflowed(std::span<const EncodedSlice> slices) const {
    const auto row_of = [&](const EncodedSlice& encoded) {
        return cuda::FirstNonfiniteScaleArguments{encoded.slice, group_, encoded.message, overflow()};
    };
    note(launch_rows(slices, row_of,
                     [&](const auto& rows) { return cuda::first_nonfinite_scale(rows, !goes_on(), stream()); }));
    return slices.size();
}

Status make_cuda_sign_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    *codec = std::make_unique<CudaSignCodec>(config.scale, config.group, static_cast<cuda::Stream>(config.stream));
    return {};
}

} // namespace onebit
