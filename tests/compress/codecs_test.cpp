// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Properties of every codec in the host's memory, above the kernels: threads, instruction sets, slices.

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "compress/codec.hpp"
#include "numeric/kernels.hpp"
#include "numeric/scaled_bytes.hpp"
#include "support/catch2.hpp"
#include "support/sanitized.hpp"

namespace onebit {
namespace {

std::unique_ptr<Codec> codec_with(onebit_codec_t which, unsigned threads, const std::string& kernels,
                                  onebit_datatype_t error_type = ONEBIT_FLOAT32) {
    std::unique_ptr<Codec> codec;
    CodecConfig config;
    config.codec = which;
    config.error_type = error_type;
    config.threads = threads;
    config.kernels = kernels;
    REQUIRE(make_codec(config, &codec).ok());
    return codec;
}

std::vector<onebit_codec_t> all_codecs() {
    std::vector<onebit_codec_t> codecs;
    for (int which = 0;; ++which) {
        CodecConfig config;
        config.codec = static_cast<onebit_codec_t>(which);
        std::unique_ptr<Codec> codec;
        if (!make_codec(config, &codec).ok()) return codecs;
        codecs.push_back(config.codec);
    }
}

/// Encodes `values` in two chunks, twice, `blocks` blocks at a time, averages the message with itself and decodes it.
/// Returns all results: messages, errors, values.
std::vector<std::uint32_t> everything_of(const Codec& codec, const std::vector<float>& values, std::size_t blocks,
                                         bool backwards) {
    const std::vector<Chunk> chunks = partition(values.size(), 2);
    const auto worker = codec.make_feedback(chunks);
    std::vector<std::uint32_t> all;
    std::vector<std::vector<std::uint32_t>> messages;
    std::vector<std::uint32_t*> pointers;
    for (const Chunk& chunk : chunks) messages.emplace_back(codec.message_words(chunk), 0x5a5a5a5a);
    for (auto& message : messages) pointers.push_back(message.data());
    std::vector<Slice> slices;
    SliceCursor cursor(blocks);
    for (Slice slice; cursor.next(chunks, &slice);) slices.push_back(slice);
    if (backwards) std::reverse(slices.begin(), slices.end());
    for (std::uint64_t call = 0; call < 2; ++call) {
        worker->set_call(call);
        for (const Slice& slice : slices) {
            const SliceToEncode one = {slice, nullptr, pointers[slice.chunk.index]};
            codec.encode(ArraySource(values.data()), *worker, *worker, only(one));
            CHECK(codec.encoded_finite(*worker, slice, one.message));
        }
        codec.seal(*worker, pointers);
    }
    for (const auto& message : messages) all.insert(all.end(), message.begin(), message.end());
    std::vector<float> floats(2 * values.size());
    worker->get_error(floats.data());
    for (const Chunk& chunk : chunks) {
        const auto server = codec.make_feedback(only(chunk));
        std::vector<std::uint32_t> result(codec.message_words(chunk), 0xa5a5a5a5);
        const std::uint32_t* const received[] = {messages[chunk.index].data(), messages[chunk.index].data()};
        for (const Slice& slice : slices) {
            if (slice.chunk.index == chunk.index)
                codec.average_encode(received, 0.5F, *server, *server, slice, result.data());
        }
        std::vector<float> average(values.size());
        for (const Slice& slice : slices) {
            if (slice.chunk.index == chunk.index) codec.average(received, 0.5F, slice, ArraySink(average.data()));
        }
        floats.insert(floats.end(), average.begin(), average.end());
        std::uint32_t* const sealed = result.data();
        codec.seal(*server, only(sealed));
        all.insert(all.end(), result.begin(), result.end());
        codec.decode(only(EncodedSlice{Slice::whole(chunk), result.data()}), {},
                     ArraySink(floats.data() + values.size()));
        std::vector<float> block(kBlockElements);
        codec.decode_block(result.data(), {chunk, 1}, {}, block.data());
        CHECK(std::equal(block.begin(), block.begin() + 100, floats.data() + values.size() + Block{chunk, 1}.begin()));
    }
    for (const float value : floats) all.push_back(std::bit_cast<std::uint32_t>(value));
    return all;
}

TEST_CASE("any number of threads, any kernels and any slices give the same bits of every codec", "[codec]") {
    REQUIRE(all_codecs().size() >= 5);
    std::mt19937 random(1);
    std::normal_distribution<float> gaussian;
    std::vector<float> values(300'003);
    for (float& value : values) value = gaussian(random);
    const onebit_datatype_t error_type = GENERATE(ONEBIT_FLOAT32, ONEBIT_BFLOAT16, ONEBIT_INT8);
    for (const onebit_codec_t which : all_codecs()) {
        const auto expected = everything_of(*codec_with(which, 1, "reference", error_type), values, 128, false);
        for (const NumericKernels* kernels : available_numeric_kernels()) {
            for (const unsigned threads : {1U, 2U, 3U}) {
                for (const std::size_t blocks : {1, 7, 128}) {
                    if (onebit_test::is_sanitized() && (threads != 3 || blocks != 7))
                        continue; // takes ten times as long
                    CAPTURE(which, error_type, kernels->name, threads, blocks);
                    const auto codec = codec_with(which, threads, kernels->name, error_type);
                    CHECK(everything_of(*codec, values, blocks, blocks == 7) == expected);
                }
            }
        }
    }
}

/// Rounds a chunk.
void round_to_bytes(float* values, std::size_t count) {
    std::vector<std::int8_t> bytes(count);
    std::vector<std::uint8_t> exponents(ceil_divide(count, kScaledGroup));
    const NumericKernels& kernels = reference_numeric_kernels();
    kernels.narrow_to_bytes(values, count, bytes.data(), exponents.data());
    kernels.widen_bytes(bytes.data(), exponents.data(), count, values);
}

TEST_CASE("errors of chunks that begin and end anywhere are each where they belong, of every codec", "[codec]") {
    const std::size_t counts[] = {1, 0, 4097, 33, 31, 12289, 5};
    std::vector<Chunk> chunks;
    std::size_t count = 0;
    for (const std::size_t own : counts) {
        chunks.push_back({chunks.size(), count, own});
        count += own;
    }
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(1 + i % 7);
    const onebit_datatype_t error_type = GENERATE(ONEBIT_FLOAT32, ONEBIT_INT8);
    if (error_type == ONEBIT_INT8) {
        for (const Chunk& chunk : chunks) round_to_bytes(values.data() + chunk.begin, chunk.count);
    }
    for (const onebit_codec_t which : all_codecs()) {
        CAPTURE(which, error_type);
        const auto codec = codec_with(which, 1, "", error_type);
        const auto error = codec->make_feedback(chunks);
        error->set_error(values.data());
        std::vector<float> same(count, 7.0F);
        error->get_error(same.data());
        CHECK(same == values);
        if (error_type == ONEBIT_INT8) continue; // rounding changes the errors below
        // No new values: the decoded values and the errors add up to the earlier errors.
        const std::vector<float> nothing(count);
        std::vector<float> decoded(count);
        for (const Chunk& chunk : chunks) {
            std::vector<std::uint32_t> message(codec->message_words(chunk));
            const SliceToEncode slice = {Slice::whole(chunk), nullptr, message.data()};
            codec->encode(ArraySource(nothing.data()), *error, *error, only(slice));
            codec->decode(only(EncodedSlice{slice.slice, message.data()}), {}, ArraySink(decoded.data()));
        }
        std::vector<float> left(count);
        error->get_error(left.data());
        for (std::size_t i = 0; i < count; ++i) {
            CAPTURE(i);
            REQUIRE(std::fabs(decoded[i] + left[i] - values[i]) <= 1e-5F * (1 + std::fabs(decoded[i])));
        }
    }
}

TEST_CASE("slices of every codec's messages lie in order without gaps, and a trailer behind them", "[codec]") {
    for (const onebit_codec_t which : all_codecs()) {
        const auto codec = codec_with(which, 1, "");
        for (const std::size_t count : {1, 31, 33, 255, 257, 4095, 4096, 4097, 12289, 300003}) {
            for (const Chunk& chunk : partition(count, 3)) {
                std::size_t next = 0;
                for (std::size_t block = 0; block < chunk.blocks(); ++block) {
                    const WordRange words = codec->words_of({chunk, block, block + 1});
                    CAPTURE(which, count, chunk.index, block);
                    CHECK(words.begin == next);
                    CHECK(words.count > 0);
                    next += words.count;
                }
                CHECK(codec->trailer_of(chunk).begin == next);
                CHECK(codec->message_words(chunk) == next + codec->trailer_of(chunk).count);
            }
        }
    }
}

/// Decodes and averages `message`, sent by a peer, in a buffer between guards. Returns whether the guards are intact.
bool stays_inside(const Codec& codec, const Chunk& chunk, const std::vector<std::uint32_t>& message) {
    constexpr std::size_t kGuards = 64;
    constexpr float kGuard = 12345.0F;
    std::vector<float> buffer(kGuards + chunk.begin + chunk.count + kGuards, kGuard);
    const ArraySink values(buffer.data() + kGuards);
    const auto server = codec.make_feedback(only(chunk));
    std::vector<std::uint32_t> result(message.size() + 1, 0xa5a5a5a5);
    const std::uint32_t* const received[] = {message.data(), message.data()};
    const std::vector<Chunk> chunks = {chunk};
    SliceCursor cursor(128);
    for (Slice slice; cursor.next(chunks, &slice);) {
        codec.average(received, 0.5F, slice, values);
        codec.average_encode(received, 0.5F, *server, *server, slice, result.data());
    }
    codec.decode(only(EncodedSlice{Slice::whole(chunk), message.data()}), {}, values);
    std::vector<float> block(kBlockElements);
    codec.decode_block(message.data(), {chunk, 0}, {}, block.data());
    const auto is_guard = [](float value) { return value == kGuard; };
    const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(kGuards + chunk.begin);
    return std::all_of(buffer.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(chunk.count), buffer.end(), is_guard) &&
           result.back() == 0xa5a5a5a5;
}

TEST_CASE("whatever words a peer's message has, nothing outside its elements is touched, by any codec", "[codec]") {
    std::mt19937 random(5);
    for (const onebit_codec_t which : all_codecs()) {
        for (const NumericKernels* kernels : available_numeric_kernels()) {
            const auto codec = codec_with(which, 1, kernels->name);
            for (const std::size_t count : {1, 100, 4096, 5001, 20'003}) {
                for (const Chunk& chunk : partition(count, 2)) {
                    if (chunk.count == 0) continue;
                    CAPTURE(which, kernels->name, count, chunk.begin);
                    std::vector<std::uint32_t> message(codec->message_words(chunk));
                    for (std::uint32_t& word : message) word = random();
                    CHECK(stays_inside(*codec, chunk, message));
                    std::fill(message.begin(), message.end(), ~0U);
                    CHECK(stays_inside(*codec, chunk, message));
                }
            }
        }
    }
}

TEST_CASE("a call of two ranks leaves the error that codecs are chosen by", "[codec]") {
    constexpr std::size_t kCount = 1 << 17;
    const Slice all = Slice::whole({0, 0, kCount});
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> inputs(2, std::vector<float>(kCount));
    for (auto& input : inputs) {
        for (float& x : input) x = normal(random);
    }
    for (const onebit_codec_t which : all_codecs()) {
        const auto codec = codec_with(which, 1, "");
        std::vector<std::vector<std::uint32_t>> messages(3);
        std::vector<std::uint32_t*> pointers;
        for (auto& message : messages) {
            message.resize(codec->message_words(all.chunk));
            pointers.push_back(message.data());
        }
        for (std::size_t rank = 0; rank < 2; ++rank) {
            const auto worker = codec->make_feedback(only(all.chunk));
            codec->encode(ArraySource(inputs[rank].data()), *worker, *worker,
                          only(SliceToEncode{all, nullptr, pointers[rank]}));
            codec->seal(*worker, only(pointers[rank]));
        }
        const auto server = codec->make_feedback(only(all.chunk));
        const std::uint32_t* const received[] = {pointers[0], pointers[1]};
        codec->average_encode(received, 0.5F, *server, *server, all, pointers[2]);
        codec->seal(*server, only(pointers[2]));
        std::vector<float> result(kCount);
        codec->decode(only(EncodedSlice{all, pointers[2]}), {}, ArraySink(result.data()));
        double lost = 0;
        double of_all = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
            const double average = (static_cast<double>(inputs[0][i]) + static_cast<double>(inputs[1][i])) / 2;
            lost += std::pow(static_cast<double>(result[i]) - average, 2);
            of_all += std::pow(average, 2);
        }
        INFO(name_of(which));
        CHECK(std::sqrt(lost / of_all) == Approx(error_of_call(which)).epsilon(0.03));
    }
}

TEST_CASE("a codec's settings that are another's are refused by name", "[codec]") {
    for (const onebit_codec_t which : all_codecs()) {
        if (which == ONEBIT_CODEC_SIGN) continue;
        std::unique_ptr<Codec> codec;
        CodecConfig config;
        config.codec = which;
        config.group = ONEBIT_GROUP_BUFFER;
        CHECK(make_codec(config, &codec).code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(make_codec(config, &codec).message(), ContainsSubstring("config.group"));
        config.group = ONEBIT_GROUP_BLOCK;
        config.scale = ONEBIT_SCALE_L1;
        CHECK_THAT(make_codec(config, &codec).message(), ContainsSubstring("config.scale"));
        config.scale = ONEBIT_SCALE_L2;
        config.memory = ONEBIT_MEMORY_CUDA;
        config.error_type = ONEBIT_BFLOAT16;
        CHECK(make_codec(config, &codec).code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(make_codec(config, &codec).message(), ContainsSubstring("config.error_type"));
        config.error_type = ONEBIT_FLOAT32;
        if (which != ONEBIT_CODEC_TOPK && which != ONEBIT_CODEC_RANDOMK) continue; // of the host's memory alone
        CHECK(make_codec(config, &codec).code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(make_codec(config, &codec).message(),
                   ContainsSubstring("config.codec") && ContainsSubstring("ONEBIT_CODEC_SIGN"));
    }
}

} // namespace
} // namespace onebit
