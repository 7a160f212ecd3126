// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels against the codec with the scalar reference kernels: the same messages, corrected values and
// scales, to the bit. Runs on a GPU, and on an emulated one as a part of the unit tests.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "compress/device_memory.hpp"
#include "compress/sign/arithmetic.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "compress/sign/sign_codec.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"

namespace onebit {
namespace {

using onebit_test::Kind;
using Words = std::vector<std::uint32_t>;

constexpr std::uint32_t kGuard = 0xdeadbeef;
constexpr std::size_t kGuards = 40; // elements behind an array's end, which must not change

template <typename T>
std::vector<T> guarded(std::vector<T> values) {
    values.resize(values.size() + kGuards, std::bit_cast<T>(kGuard));
    return values;
}

Words random_words(std::size_t count, std::uint64_t seed) {
    onebit_test::Random random(seed, 0, 0);
    Words words(count);
    for (auto& word : words) word = static_cast<std::uint32_t>(random.next());
    return words;
}

/// A new kind of data at every step; subnormal numbers too.
std::vector<float> values_for(std::size_t count, int rank, unsigned step) {
    constexpr Kind kKinds[] = {Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge};
    auto values = onebit_test::make_data(kKinds[step % 5], count, 1, rank, step);
    if (step % 7 == 5) {
        for (float& value : values) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x807fffffU);
    }
    return values;
}

struct Settings {
    std::size_t count;
    std::size_t ranks;
    onebit_scale_t scale;
    onebit_group_t group;
    bool masked;
};

std::unique_ptr<Codec> reference_codec(const Settings& settings) {
    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec({ONEBIT_CODEC_SIGN, settings.scale, settings.group, 1, "reference"}, &codec).ok());
    return codec;
}

/// A rank's error for some consecutive chunks and the messages of these, on the CPU and on the device.
class Sides {
  public:
    Sides(const Settings& settings, std::vector<Chunk> chunks)
        : settings_(settings),
          chunks_(std::move(chunks)),
          codec_(reference_codec(settings)),
          feedback_(chunks_, settings.group),
          mask_words_(settings.masked ? random_words(ceil_divide(settings.count, kWordElements), 9) : Words()) {
        feedback_.set_mask(mask_words_);
        std::vector<std::uint32_t> counts;
        std::vector<std::uint32_t*> trailers;
        for (const Chunk& chunk : chunks_) {
            for (std::size_t b = 0; b < chunk.blocks(); ++b) {
                counts.push_back(static_cast<std::uint32_t>(feedback_.valid_count(chunk, b)));
            }
            host_messages.push_back(guarded(Words(codec_->message_words(chunk), kGuard)));
            messages.push_back(std::make_unique<DeviceArray<std::uint32_t>>(host_messages.back()));
            if (chunk.count > 0) trailers.push_back(messages.back()->data() + codec_->trailer_of(chunk).begin);
        }
        corrected_ = device_copy(feedback_.corrected);
        scales_ = device_copy(feedback_.scales);
        sums_ = device_copy(feedback_.sums);
        mask_ = std::make_unique<DeviceArray<std::uint32_t>>(mask_words_);
        counts_ = std::make_unique<DeviceArray<std::uint32_t>>(counts);
        trailers_ = std::make_unique<DeviceArray<std::uint32_t*>>(trailers);
        trailer_count_ = trailers.size();
    }

    const Codec& codec() const { return *codec_; }
    const SignFeedback& feedback() const { return feedback_; }
    std::uint32_t* host_message(std::size_t j) { return host_messages[j].data(); }
    std::span<const std::uint32_t> mask() const { return mask_words_; }
    const std::uint32_t* device_mask(const Chunk& chunk) const {
        return settings_.masked ? mask_->data() + chunk.begin / kWordElements : nullptr;
    }

    /// Calls body(slice, index of the message, what the device's encoders take) for two parts of every chunk.
    template <typename Body>
    void for_each_slice(const Body& body) {
        for (std::size_t j = 0; j < chunks_.size(); ++j) {
            const Chunk& chunk = chunks_[j];
            const std::size_t middle = chunk.blocks() / 3;
            for (const Slice& slice : {Slice{chunk, middle, chunk.blocks()}, Slice{chunk, 0, middle}}) {
                body(slice, j, encoding(slice, j));
            }
        }
    }

    /// Seals the messages of both sides and compares all data.
    void seal_and_compare() {
        if (settings_.group == ONEBIT_GROUP_BUFFER) {
            std::vector<std::uint32_t*> pointers;
            for (auto& message : host_messages) pointers.push_back(message.data());
            codec_->seal(feedback_, pointers);
            REQUIRE(cuda::seal({sums_->data(), feedback_.sums.size(), feedback_.valid_count(), settings_.scale,
                                scales_->data(), trailers_->data(), trailer_count_},
                               nullptr)
                        .ok());
        }
        for (std::size_t j = 0; j < chunks_.size(); ++j) CHECK(messages[j]->get() == host_messages[j]);
        CHECK(same_bits(*corrected_, feedback_.corrected));
        CHECK(same_bits(*scales_, feedback_.scales));
    }

    void encode_on_host(const std::vector<float>& values, const Slice& slice, std::size_t j) {
        codec_->encode(ArraySource(values.data()), feedback_, feedback_,
                       only(SliceToEncode{slice, nullptr, host_message(j)}));
    }
    Feedback& host_error() { return feedback_; }

    std::vector<Words> host_messages; ///< one per chunk, with guards
    std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> messages;

  private:
    template <typename T>
    static std::unique_ptr<DeviceArray<T>> device_copy(const AlignedBuffer<T>& buffer) {
        return std::make_unique<DeviceArray<T>>(std::vector<T>(buffer.data(), buffer.data() + buffer.size()));
    }
    static bool same_bits(const DeviceArray<float>& device, const AlignedBuffer<float>& host) {
        return std::memcmp(device.get().data(), host.data(), host.bytes()) == 0;
    }

    cuda::Encoding encoding(const Slice& slice, std::size_t j) const {
        float* const corrected = corrected_->data() + feedback_.element_index(slice.chunk, 0);
        float* const scales = scales_->data() + feedback_.scale_index(slice.chunk, 0);
        const std::size_t first_block = feedback_.block_index(slice.chunk, 0);
        return {slice,
                settings_.scale,
                settings_.group,
                {corrected, scales, corrected, scales, sums_->data() + first_block, device_mask(slice.chunk),
                 counts_->data() + first_block},
                messages[j]->data()};
    }

    Settings settings_;
    std::vector<Chunk> chunks_;
    std::unique_ptr<Codec> codec_;
    SignFeedback feedback_;
    Words mask_words_;
    std::unique_ptr<DeviceArray<float>> corrected_;
    std::unique_ptr<DeviceArray<float>> scales_;
    std::unique_ptr<DeviceArray<double>> sums_;
    std::unique_ptr<DeviceArray<std::uint32_t>> mask_;
    std::unique_ptr<DeviceArray<std::uint32_t>> counts_;
    std::unique_ptr<DeviceArray<std::uint32_t*>> trailers_;
    std::size_t trailer_count_ = 0;
};

/// Calls body(settings) for every combination.
template <typename Body>
void for_each_setting(const std::vector<std::size_t>& counts, std::size_t ranks, const Body& body) {
    for (const std::size_t count : counts) {
        for (const onebit_scale_t scale : {ONEBIT_SCALE_L1, ONEBIT_SCALE_L2}) {
            for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
                for (const bool masked : {false, true}) {
                    CAPTURE(count, ranks, scale, group, masked);
                    body(Settings{count, ranks, scale, group, masked});
                }
            }
        }
    }
}

/// Values with only a float's alignment: they begin one element behind the beginning of an array.
std::vector<float> shifted(const std::vector<float>& values) {
    std::vector<float> result(values.size() + 1);
    std::copy(values.begin(), values.end(), result.begin() + 1);
    return result;
}

TEST_CASE("a GPU's worker gives the CPU's bits, step after step", "[cuda]") {
    for_each_setting({1, 31, 33, 4095, 4096, 4097, 12345}, 1, [](const Settings& settings) {
        Sides sides(settings, partition(settings.count, settings.ranks));
        for (unsigned step = 0; step < 6; ++step) {
            CAPTURE(step);
            const auto values = values_for(settings.count, 0, step);
            const DeviceArray<float> on_device(shifted(values));
            sides.for_each_slice([&](const Slice& slice, std::size_t j, const cuda::Encoding& to) {
                sides.encode_on_host(values, slice, j);
                REQUIRE(cuda::encode({{to, on_device.data() + 1 + slice.chunk.begin}}, nullptr).ok());
            });
            sides.seal_and_compare();
        }
    });
}

TEST_CASE("a GPU's worker gives the CPU's bits with several chunks, some of them empty", "[cuda]") {
    for (const std::size_t ranks : {2, 5}) {
        for_each_setting({40, 30011}, ranks, [](const Settings& settings) {
            Sides sides(settings, partition(settings.count, settings.ranks));
            for (unsigned step = 0; step < 2; ++step) {
                CAPTURE(step);
                const auto values = values_for(settings.count, 0, step);
                const DeviceArray<float> on_device(values);
                cuda::Rows<cuda::EncodeArguments> rows; // empty ones, too
                sides.for_each_slice([&](const Slice& slice, std::size_t j, const cuda::Encoding& to) {
                    sides.encode_on_host(values, slice, j);
                    rows.add({to, on_device.data() + slice.chunk.begin});
                });
                REQUIRE(cuda::encode(rows, nullptr).ok());
                sides.seal_and_compare();
            }
        });
    }
}

TEST_CASE("a GPU's server gives the CPU's bits, from any number of ranks", "[cuda]") {
    for (const std::size_t ranks : {1, 3, 8, 17}) {
        for_each_setting({33, 4099}, ranks, [](const Settings& settings) {
            const Chunk chunk = {0, 0, settings.count};
            Sides sides(settings, {chunk});
            for (unsigned step = 0; step < 2; ++step) {
                CAPTURE(step);
                std::vector<Words> received;
                std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> received_on_device;
                std::vector<const std::uint32_t*> pointers;
                std::vector<const std::uint32_t*> device_pointers;
                for (std::size_t r = 0; r < settings.ranks; ++r) {
                    received.push_back(random_words(sides.codec().message_words(chunk), r + 100 * (step + 1)));
                    for (std::size_t b = 0; b < chunk.blocks(); ++b) {
                        const float scale = 0.1F + static_cast<float>(r) / static_cast<float>(b + 3);
                        received[r][scale_word(settings.group, chunk, b)] = std::bit_cast<std::uint32_t>(scale);
                    }
                    received_on_device.push_back(std::make_unique<DeviceArray<std::uint32_t>>(received[r]));
                    device_pointers.push_back(received_on_device.back()->data());
                }
                pointers.reserve(received.size());
                for (const Words& message : received) pointers.push_back(message.data());
                const DeviceArray<const std::uint32_t*> table(device_pointers);
                const float share = 1.0F / static_cast<float>(settings.ranks);
                sides.for_each_slice([&](const Slice& slice, std::size_t j, const cuda::Encoding& to) {
                    sides.codec().average_encode(pointers, share, sides.host_error(), sides.host_error(), slice,
                                                 sides.host_message(j));
                    REQUIRE(cuda::average_encode({to, table.data(), settings.ranks, share}, nullptr).ok());
                });
                sides.seal_and_compare();
            }
        });
    }
}

TEST_CASE("a GPU leaves the new error beside the old one where it is told to", "[cuda]") {
    constexpr std::size_t kCount = 5000;
    const Chunk chunk = {0, 0, kCount};
    const auto values = values_for(kCount, 0, 2); // zeros of both signs
    const auto old = values_for(kCount, 1, 2);
    const std::vector<float> old_scales = {0.3F, 0.0F}; // so that zeros of both signs are encoded
    const auto codec = reference_codec({kCount, 1, ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, false});
    SignFeedback before({&chunk, 1}, ONEBIT_GROUP_BLOCK);
    SignFeedback after({&chunk, 1}, ONEBIT_GROUP_BLOCK);
    std::copy(old.begin(), old.end(), before.corrected.data());
    std::copy(old_scales.begin(), old_scales.end(), before.scales.data());
    Words message(codec->message_words(chunk));
    codec->encode(ArraySource(values.data()), before, after,
                  only(SliceToEncode{Slice::whole(chunk), nullptr, message.data()}));

    const DeviceArray<float> on_device(values);
    const DeviceArray<float> old_on_device(old);
    const DeviceArray<float> old_scales_on_device(old_scales);
    const DeviceArray<float> corrected(std::vector<float>(kCount, 5.0F)); // must not matter
    const DeviceArray<float> scales(std::vector<float>(2, 5.0F));
    const DeviceArray<std::uint32_t> sent(guarded(message));
    const cuda::ErrorBuffers error = {
        old_on_device.data(), old_scales_on_device.data(), corrected.data(), scales.data(), nullptr, nullptr, nullptr};
    const cuda::Encoding to = {Slice::whole(chunk), ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, error, sent.data()};
    REQUIRE(cuda::encode({{to, on_device.data()}}, nullptr).ok());
    CHECK(sent.get() == guarded(message));
    CHECK(std::memcmp(corrected.get().data(), after.corrected.data(), after.corrected.bytes()) == 0);
    CHECK(std::memcmp(scales.get().data(), after.scales.data(), after.scales.bytes()) == 0);
    CHECK(old_on_device.get() == old);
    CHECK(old_scales_on_device.get() == old_scales);
}

TEST_CASE("a GPU adds the blocks' sums as the wire format says, however many there are", "[cuda]") {
    for (const std::size_t blocks : {1, 255, 256, 257, 5000}) {
        CAPTURE(blocks);
        onebit_test::Random random(blocks, 0, 0);
        std::vector<double> sums(blocks);
        for (double& sum : sums) sum = std::exp(random.gaussian() * 20);
        std::vector<double> lanes(256, 0.0);
        for (std::size_t i = 0; i < blocks; ++i) lanes[i % 256] += sums[i];
        for (; lanes.size() > 1; lanes.resize(lanes.size() / 2)) {
            for (std::size_t k = 0; k < lanes.size() / 2; ++k) lanes[k] += lanes[k + lanes.size() / 2];
        }
        const double total = lanes[0];
        const DeviceArray<double> on_device(sums);
        const DeviceArray<float> scale({0.0F});
        const DeviceArray<std::uint32_t> words(Words(70, kGuard));
        std::vector<std::uint32_t*> places;
        for (std::size_t j = 0; j < 69; ++j) places.push_back(words.data() + j);
        const DeviceArray<std::uint32_t*> trailers(places);
        REQUIRE(cuda::seal({on_device.data(), blocks, blocks * 4096 - 17, ONEBIT_SCALE_L2, scale.data(),
                            trailers.data(), places.size()},
                           nullptr)
                    .ok());
        const float expected = scale_for(total, blocks * 4096 - 17, ONEBIT_SCALE_L2);
        CHECK(scale.get()[0] == expected);
        Words all(70, std::bit_cast<std::uint32_t>(expected));
        all.back() = kGuard;
        CHECK(words.get() == all);
    }
}

TEST_CASE("a GPU decodes to the CPU's bits", "[cuda]") {
    for_each_setting({1, 33, 4095, 4097, 20000}, 1, [](const Settings& settings) {
        const Chunk chunk = {0, 0, settings.count};
        Sides sides(settings, {chunk});
        Words message = random_words(sides.codec().message_words(chunk), 4);
        for (std::size_t b = 0; b < chunk.blocks(); ++b) {
            const float scale = 1.25F * static_cast<float>(b);
            message[scale_word(settings.group, chunk, b)] = std::bit_cast<std::uint32_t>(scale);
        }
        auto expected = guarded(std::vector<float>(settings.count));
        const DeviceArray<float> actual(shifted(expected));
        const DeviceArray<std::uint32_t> on_device(message);
        sides.for_each_slice([&](const Slice& slice, std::size_t, const cuda::Encoding&) {
            sides.codec().decode(only(EncodedSlice{slice, message.data()}), sides.mask(), ArraySink(expected.data()));
            const cuda::DecodeArguments arguments = {slice, settings.group, on_device.data(), sides.device_mask(chunk),
                                                     actual.data() + 1};
            REQUIRE(cuda::decode(arguments, nullptr).ok());
        });
        const auto bits = shifted(expected);
        CHECK(std::memcmp(actual.get().data(), bits.data(), bits.size() * sizeof(float)) == 0);
    });
}

TEST_CASE("a GPU finds the first value that is not finite", "[cuda]") {
    const float bad_values[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
    const DeviceArray<unsigned long long> first({7});
    for (const std::size_t count : {1, 31, 33, 4095, 4097, 20000}) {
        std::vector<float> values(count, std::numeric_limits<float>::max());
        values.front() = -std::numeric_limits<float>::denorm_min();
        const auto found = [&](const std::vector<float>& spoiled) {
            const DeviceArray<float> on_device(shifted(spoiled));
            REQUIRE(cuda::first_nonfinite({on_device.data() + 1, count, first.data()}, nullptr).ok());
            return first.get()[0];
        };
        CAPTURE(count);
        CHECK(found(values) == cuda::kAllFinite);
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            for (const float bad : bad_values) {
                auto spoiled = values;
                spoiled[at] = bad;
                spoiled[count - 1] = bad; // a later one as well
                CHECK(found(spoiled) == at);
            }
        }
    }
    std::vector<float> values(5000, -2.0F);
    values[4100] = std::nextafter(2.0F, 3.0F);
    REQUIRE(cuda::first_nonfinite({DeviceArray<float>(values).data(), values.size(), first.data(), 2}, nullptr).ok());
    CHECK(first.get()[0] == 4100);
    REQUIRE(cuda::first_nonfinite({nullptr, 0, first.data()}, nullptr).ok());
    CHECK(first.get()[0] == cuda::kAllFinite);
}

} // namespace
} // namespace onebit
