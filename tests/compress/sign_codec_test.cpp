// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The codec above the kernels: threads, groups, extreme magnitudes.

#include "compress/sign/sign_codec.hpp"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/catch2.hpp"

namespace onebit {
namespace {

std::unique_ptr<Codec> codec_with(unsigned threads, const std::string& kernels, onebit_scale_t scale,
                                  onebit_group_t group) {
    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec({ONEBIT_CODEC_SIGN, scale, group, threads, kernels}, &codec).ok());
    return codec;
}

/// Encodes `values` in two chunks, twice, and returns all results: both messages and the error.
std::vector<std::uint32_t> encode_twice(const Codec& codec, const std::vector<float>& values) {
    const auto chunks = partition(values.size(), 2);
    const auto feedback = codec.make_feedback(chunks);
    std::vector<std::vector<std::uint32_t>> messages;
    std::vector<std::uint32_t*> pointers;
    for (const Chunk& chunk : chunks) messages.emplace_back(codec.message_words(chunk));
    for (auto& message : messages) pointers.push_back(message.data());
    for (int call = 0; call < 2; ++call) {
        SliceCursor cursor;
        for (std::vector<Slice> slices; cursor.next(chunks, &slices);) {
            std::vector<SliceToEncode> parts;
            for (const Slice& slice : slices) parts.push_back({slice, nullptr, pointers[slice.chunk.index]});
            codec.encode(ArraySource(values.data()), *feedback, *feedback, parts);
        }
        codec.seal(*feedback, pointers);
    }
    std::vector<std::uint32_t> all(values.size());
    feedback->get_error(reinterpret_cast<float*>(all.data()));
    for (const auto& message : messages) all.insert(all.end(), message.begin(), message.end());
    return all;
}

std::vector<float> gaussian(std::size_t count, float magnitude) {
    std::mt19937 random(1);
    std::normal_distribution<float> distribution;
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random) * magnitude;
    return values;
}

TEST_CASE("any number of threads and any kernels give the same messages and errors", "[codec]") {
    const auto values = gaussian(1'000'003, 1);
    for (const onebit_scale_t scale : {ONEBIT_SCALE_L1, ONEBIT_SCALE_L2}) {
        for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            const auto expected = encode_twice(*codec_with(1, "reference", scale, group), values);
            for (const SignKernels* kernels : available_sign_kernels()) {
                for (const unsigned threads : {1U, 2U, 4U}) {
                    CAPTURE(scale, group, kernels->name, threads);
                    CHECK(encode_twice(*codec_with(threads, kernels->name, scale, group), values) == expected);
                }
            }
        }
    }
}

TEST_CASE("scales survive magnitudes whose squares a float can't hold", "[codec]") {
    for (const float magnitude : {1e-30F, 1e-22F, 1e22F, 1e34F}) {
        for (const onebit_scale_t scale : {ONEBIT_SCALE_L1, ONEBIT_SCALE_L2}) {
            const auto values = gaussian(kBlockElements, magnitude);
            const auto codec = codec_with(1, "", scale, ONEBIT_GROUP_BLOCK);
            const auto chunks = partition(values.size(), 1);
            const auto feedback = codec->make_feedback(chunks);
            std::vector<std::uint32_t> message(codec->message_words(chunks[0]));
            codec->encode(ArraySource(values.data()), *feedback, *feedback,
                          only(SliceToEncode{{chunks[0], 0, 1}, nullptr, message.data()}));
            double sum = 0;
            for (const double x : values) sum += scale == ONEBIT_SCALE_L2 ? x * x : std::fabs(x);
            const double mean = sum / static_cast<double>(values.size());
            const double expected = scale == ONEBIT_SCALE_L2 ? std::sqrt(mean) : mean;
            CAPTURE(magnitude, scale);
            CHECK(std::bit_cast<float>(message.back()) == Approx(expected).epsilon(1e-6));
        }
    }
}

TEST_CASE("the sums of a tensor's blocks are added up in 256 lanes", "[codec]") {
    // 1 + 2^-24 lies between two floats, and so far from the next double that each of the rest would be lost.
    std::vector<float> values(512 * kBlockElements);
    for (std::size_t block = 2; block < 512; ++block) values[block * kBlockElements] = 0x1p-54F;
    values[0] = 1;
    values[kBlockElements] = 0x1p-24F;
    const auto codec = codec_with(1, "", ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER);
    const auto chunks = partition(values.size(), 1);
    const auto feedback = codec->make_feedback(chunks);
    std::vector<std::uint32_t> message(codec->message_words(chunks[0]));
    std::vector<std::uint32_t*> messages = {message.data()};
    codec->encode(ArraySource(values.data()), *feedback, *feedback,
                  only(SliceToEncode{Slice::whole(chunks[0]), nullptr, message.data()}));
    codec->seal(*feedback, messages);
    CHECK(std::bit_cast<float>(message.back()) == (1 + 0x1p-23F) / static_cast<float>(values.size()));
}

TEST_CASE("unknown kernels are refused with the names of those there are", "[codec]") {
    std::unique_ptr<Codec> codec;
    const Status status = make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L1, ONEBIT_GROUP_BLOCK, 1, "mmx"}, &codec);
    CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK_THAT(status.message(), ContainsSubstring("mmx") && ContainsSubstring("reference"));
}

} // namespace
} // namespace onebit
