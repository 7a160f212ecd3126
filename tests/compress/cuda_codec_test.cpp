// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The codec on a GPU compared with the codec on the CPU: whole averages over several ranks, in one process, for several
// steps. Runs on a GPU, and as a part of the unit tests on an emulated one, whose memory the host can't touch.

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "compress/sign/cuda/cuda_sign_codec.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"

namespace onebit {
namespace {

using onebit_test::same_bits;
using Values = std::vector<float>;
using Words = std::vector<std::uint32_t>;

/// The result of the codec's searches for overflowed scales since the last call of this function.
std::size_t overflow_of(const Codec& codec) {
    std::size_t element = 0;
    while (!codec.find_overflow(&element)) {
    }
    return element;
}

/// A codec, and for each rank the data for averages: the same code for both codecs.
class Ranks {
  public:
    Ranks(std::unique_ptr<Codec> codec, std::size_t count, std::size_t ranks)
        : codec_(std::move(codec)), chunks_(partition(count, ranks)), mask_(0), values_(array<float>(count)) {
        for (std::size_t r = 0; r < ranks; ++r) {
            workers_.push_back(codec_->make_feedback(chunks_));
            servers_.push_back(codec_->make_feedback({&chunks_[r], 1}));
            for (const Chunk& chunk : chunks_) messages_.push_back(array<std::uint32_t>(codec_->message_words(chunk)));
            results_.push_back(array<std::uint32_t>(codec_->message_words(chunks_[r])));
        }
    }

    /// The average of all ranks' values; NaN where a result reported that a server's error has overflowed.
    Values average(const std::vector<Values>& values) {
        const std::size_t ranks = chunks_.size();
        for (std::size_t r = 0; r < ranks; ++r) {
            values_.copy_from(values[r].data());
            std::vector<std::uint32_t*> messages;
            std::vector<SliceToEncode> slices;
            for (std::size_t j = 0; j < ranks; ++j) {
                messages.push_back(messages_[r * ranks + j].data());
                for_each_slice(chunks_[j], [&](const Slice& slice) {
                    slices.push_back({slice, nullptr, messages[j]});
                });
            }
            codec_->encode(ArraySource(values_.data()), *workers_[r], *workers_[r], slices);
            codec_->seal(*workers_[r], messages);
        }
        for (std::size_t r = 0; r < ranks; ++r) {
            std::vector<const std::uint32_t*> received;
            for (std::size_t i = 0; i < ranks; ++i) received.push_back(messages_[i * ranks + r].data());
            for_each_slice(chunks_[r], [&](const Slice& slice) {
                codec_->average_encode(received, 1.0F / static_cast<float>(received.size()), *servers_[r], *servers_[r],
                                       slice, results_[r].data());
            });
            std::uint32_t* const result = results_[r].data();
            codec_->seal(*servers_[r], {&result, 1});
        }
        return decoded();
    }

    void set_mask(const Words& mask) {
        AlignedBuffer<std::uint32_t> placed = array<std::uint32_t>(mask.size());
        placed.copy_from(mask.data());
        for (auto& feedback : workers_) feedback->set_mask(placed.view());
        for (auto& feedback : servers_) feedback->set_mask(placed.view());
        mask_ = std::move(placed);
    }

    /// The errors of all workers and servers.
    std::vector<Values> errors() const {
        std::vector<Values> all;
        for (const auto* feedbacks : {&workers_, &servers_}) {
            for (std::size_t r = 0; r < feedbacks->size(); ++r) {
                all.emplace_back(feedbacks == &workers_ ? values_.size() : chunks_[r].count);
                (*feedbacks)[r]->get_error(all.back().data());
            }
        }
        return all;
    }
    std::vector<Words> messages() const {
        std::vector<Words> all;
        for (const auto* buffers : {&messages_, &results_}) {
            for (const auto& buffer : *buffers) {
                all.emplace_back(buffer.size());
                buffer.copy_to(all.back().data());
            }
        }
        return all;
    }

    const Codec& codec() const { return *codec_; }
    Feedback& worker(std::size_t r) { return *workers_[r]; }

  private:
    template <typename T>
    AlignedBuffer<T> array(std::size_t count) {
        return AlignedBuffer<T>(count, codec_->memory());
    }

    /// Calls body for two parts of the chunk, the later one first.
    template <typename Body>
    static void for_each_slice(const Chunk& chunk, const Body& body) {
        const std::size_t middle = chunk.blocks() / 2;
        body(Slice{chunk, middle, chunk.blocks()});
        body(Slice{chunk, 0, middle});
    }

    Values decoded() {
        std::vector<EncodedSlice> slices;
        for (const Chunk& chunk : chunks_) {
            for_each_slice(chunk, [&](const Slice& slice) { slices.push_back({slice, results_[chunk.index].data()}); });
        }
        bool finite = codec_->first_overflowed(slices) == slices.size();
        codec_->decode(slices, mask_.view(), ArraySink(values_.data()));
        finite = overflow_of(*codec_) == Codec::kNoElement && finite;
        Values values(values_.size());
        values_.copy_to(values.data());
        if (!finite) values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
        return values;
    }

    std::unique_ptr<Codec> codec_;
    std::vector<Chunk> chunks_;
    AlignedBuffer<std::uint32_t> mask_;
    AlignedBuffer<float> values_;
    std::vector<std::unique_ptr<Feedback>> workers_;
    std::vector<std::unique_ptr<Feedback>> servers_;
    std::vector<AlignedBuffer<std::uint32_t>> messages_; ///< by sender, then by chunk
    std::vector<AlignedBuffer<std::uint32_t>> results_;
};

bool same_bits(const std::vector<Values>& a, const std::vector<Values>& b) {
    return std::ranges::equal(a, b, [](const Values& x, const Values& y) { return same_bits(x, y); });
}

struct Setting {
    onebit_scale_t scale;
    onebit_group_t group;
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
};

std::unique_ptr<Codec> on_cpu(const Setting& setting) {
    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec({setting.codec, setting.scale, setting.group, 1, "reference"}, &codec).ok());
    return codec;
}
std::unique_ptr<Codec> on_gpu(const Setting& setting) {
    CodecConfig config;
    config.codec = setting.codec;
    config.scale = setting.scale;
    config.group = setting.group;
    config.memory = ONEBIT_MEMORY_CUDA;
    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec(config, &codec).ok());
    return codec;
}

constexpr Setting kSettings[] = {
    {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK},
    {ONEBIT_SCALE_L1, ONEBIT_GROUP_BLOCK},
    {ONEBIT_SCALE_L2, ONEBIT_GROUP_BUFFER},
    {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER},
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, constant},
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
};

/// Every rank's values, different in every step; sometimes zeros, or huge.
std::vector<Values> values_for(std::size_t count, std::size_t ranks, unsigned step) {
    using onebit_test::Kind;
    constexpr Kind kKinds[] = {Kind::gaussian, Kind::huge, Kind::zeros, Kind::tiny, Kind::heavy_tailed};
    std::vector<Values> all;
    for (std::size_t r = 0; r < ranks; ++r) {
        all.push_back(onebit_test::make_data(kKinds[step % 5], count, 1, static_cast<int>(r), step));
    }
    return all;
}

Words mask_of(std::size_t count) {
    onebit_test::Random random(5, 0, 0);
    Words words(ceil_divide(count, kWordElements));
    for (auto& word : words) word = static_cast<std::uint32_t>(random.next());
    return words;
}

TEST_CASE("averages, messages and errors of a GPU's codec are the CPU's, also with a mask set in between", "[cuda]") {
    for (const Setting& setting : kSettings) {
        for (const std::size_t ranks : {1, 3, 9}) { // of 9 more slices than a launch takes
            for (const std::size_t count : {1, 33, 8193}) {
                CAPTURE(setting.codec, setting.scale, setting.group, ranks, count);
                Ranks cpu(on_cpu(setting), count, ranks);
                Ranks gpu(on_gpu(setting), count, ranks);
                for (unsigned step = 0; step < 5; ++step) {
                    CAPTURE(step);
                    if (step == 2) {
                        cpu.set_mask(mask_of(count));
                        gpu.set_mask(mask_of(count));
                    }
                    const std::vector<Values> values = values_for(count, ranks, step);
                    CHECK(same_bits(gpu.average(values), cpu.average(values)));
                    CHECK(gpu.messages() == cpu.messages());
                    CHECK(same_bits(gpu.errors(), cpu.errors()));
                }
                CHECK(gpu.codec().failure().ok());
            }
        }
    }
}

TEST_CASE("a GPU's error can be replaced and reset", "[cuda]") {
    constexpr std::size_t kCount = 9000;
    const Setting setting = GENERATE(Setting{ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK},
                                     Setting{ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT8});
    Ranks cpu(on_cpu(setting), kCount, 1);
    Ranks gpu(on_gpu(setting), kCount, 1);
    const Values error = values_for(kCount, 1, 1).front();
    cpu.worker(0).set_error(error.data());
    gpu.worker(0).set_error(error.data());
    CHECK(gpu.errors().front() == error);
    const std::vector<Values> values = values_for(kCount, 1, 0);
    CHECK(same_bits(gpu.average(values), cpu.average(values)));
    CHECK(same_bits(gpu.errors(), cpu.errors()));
    gpu.worker(0).reset();
    CHECK(gpu.errors().front() == Values(kCount));
    CHECK(gpu.worker(0).state_bytes() == cpu.worker(0).state_bytes());
}

/// Three messages, the new error beside the old one, in turn.
std::pair<Words, Values> encode_aside(const Codec& codec, const std::vector<Values>& inputs) {
    const Chunk chunk = {0, 0, inputs.front().size()};
    AlignedBuffer<std::uint32_t> message(codec.message_words(chunk), codec.memory());
    AlignedBuffer<float> on_device(chunk.count, codec.memory());
    std::unique_ptr<Feedback> before = codec.make_feedback({&chunk, 1});
    std::unique_ptr<Feedback> after = codec.make_feedback({&chunk, 1});
    for (const Values& values : inputs) {
        on_device.copy_from(values.data());
        codec.encode(ArraySource(on_device.data()), *before, *after,
                     only(SliceToEncode{Slice::whole(chunk), nullptr, message.data()}));
        std::uint32_t* const words = message.data();
        codec.seal(*after, {&words, 1});
        std::swap(before, after);
    }
    std::pair<Words, Values> outcome(message.size(), chunk.count);
    message.copy_to(outcome.first.data());
    before->get_error(outcome.second.data());
    return outcome;
}

TEST_CASE("a GPU's codec leaves the new error beside the old one", "[cuda]") {
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.codec, setting.scale, setting.group);
        std::vector<Values> inputs;
        for (unsigned step = 0; step < 4; ++step) inputs.push_back(values_for(8200, 1, 3 * step).front());
        const auto [gpu_message, gpu_error] = encode_aside(*on_gpu(setting), inputs);
        const auto [cpu_message, cpu_error] = encode_aside(*on_cpu(setting), inputs);
        CHECK(gpu_message == cpu_message);
        CHECK(same_bits(gpu_error, cpu_error));
    }
}

TEST_CASE("a GPU's codec finds scales that are not finite", "[cuda]") {
    constexpr std::size_t kCount = 300 * kBlockElements + 17; // more scales than a thread block has threads
    for (const Setting& setting : {kSettings[0], kSettings[2]}) {
        CAPTURE(setting.group);
        const std::unique_ptr<Codec> codec = on_gpu(setting);
        const Chunk chunk = {1, 1000, kCount};
        Words message(codec->message_words(chunk));
        AlignedBuffer<std::uint32_t> sent(message.size(), codec->memory());
        const auto first_bad = [&](std::vector<Slice> slices) {
            for (const Slice& slice : slices) {
                CHECK(codec->first_overflowed(only(EncodedSlice{slice, sent.data()})) == 1); // it can't know yet
            }
            return overflow_of(*codec);
        };
        CHECK(overflow_of(*codec) == Codec::kNoElement); // of no message at all
        CHECK(first_bad({Slice::whole(chunk)}) == Codec::kNoElement);
        message.back() = 0x7fc00000U; // the last block's scale, or the tensor's
        sent.copy_from(message.data());
        const bool by_block = setting.group == ONEBIT_GROUP_BLOCK;
        const std::size_t bad = 1000 + (by_block ? 300 * kBlockElements : 0);
        CHECK(first_bad({Slice::whole(chunk)}) == bad);
        CHECK(first_bad({{chunk, 300, 301}, {chunk, 0, 300}}) == bad);
        CHECK(first_bad({{chunk, 0, 300}}) == (by_block ? Codec::kNoElement : bad));
        CHECK(first_bad({{chunk, 0, 0}}) == Codec::kNoElement);
    }
}

TEST_CASE("a GPU's grouped codes find scales that are not finite, and keep what had none as error", "[cuda]") {
    constexpr std::size_t kCount = 20 * kBlockElements + 300; // more scales than a thread block has threads
    for (const Setting& setting : kSettings) {
        if (setting.codec == ONEBIT_CODEC_SIGN) continue;
        CAPTURE(setting.codec);
        for (const std::size_t spoiled : {std::size_t{0}, 5 * kBlockElements + 257, kCount - 1}) {
            std::vector<Values> inputs = {values_for(kCount, 1, 0).front()};
            inputs[0][spoiled] = std::numeric_limits<float>::infinity();
            const auto [gpu_message, gpu_error] = encode_aside(*on_gpu(setting), inputs);
            const auto [cpu_message, cpu_error] = encode_aside(*on_cpu(setting), inputs);
            CHECK(gpu_message == cpu_message);
            CHECK(same_bits(gpu_error, cpu_error));
            const std::unique_ptr<Codec> codec = on_gpu(setting);
            const Chunk chunk = {1, 1000, kCount};
            AlignedBuffer<std::uint32_t> sent(gpu_message.size(), codec->memory());
            sent.copy_from(gpu_message.data());
            const Slice halves[] = {{chunk, 10, chunk.blocks()}, {chunk, 0, 10}};
            for (const Slice& slice : halves) {
                CHECK(codec->first_overflowed(only(EncodedSlice{slice, sent.data()})) == 1); // it can't know yet
            }
            CHECK(overflow_of(*codec) == 1000 + spoiled / kBlockElements * kBlockElements);
        }
    }
}

} // namespace
} // namespace onebit
