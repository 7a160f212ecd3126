// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' passes on a GPU against the scalar reference kernels, which run segment by segment as in the
// optimizers: the same bits. Runs on a GPU, and on an emulated one as a part of the unit tests.

#include <algorithm>
#include <functional>

#include "compress/sign/sign_codec.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/pass_data.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

/// Odd sizes, tensors of several pieces, pieces that begin anywhere in a word; many pieces, for sketches.
std::vector<std::vector<std::size_t>> all_counts() {
    std::vector<std::size_t> many;
    for (std::size_t n = 0; n < 300; ++n) many.push_back(1 + n % 40);
    return {{1}, {31}, {33}, {4095}, {4096}, {1, 31, 33, 4095, 4096, 5000, 2, 12345, 64}, many};
}

/// A pass: the CPU's function for a segment, and the GPU's function.
struct Pass {
    const char* name;
    std::function<void(const OptimKernels&, HostModel&, const Segment&)> on_segment;
    std::function<Status(const DeviceModel&)> on_device;
};

void compare(const HostModel& host, const DeviceModel& device, const Values& before) {
    const Values actual = device.values();
    CHECK(actual == host.values);
    CHECK_FALSE(actual == before); // it did something
}

void check(const Pass& pass) {
    for (const auto& counts : all_counts()) {
        for (const std::size_t ranks : {1, 3}) {
            CAPTURE(pass.name, counts.size(), counts[0], ranks);
            HostModel host(counts, ranks);
            const DeviceModel device(host);
            const Values before = host.values;
            for (const Segment& segment : host.layout.segments()) {
                pass.on_segment(reference_optim_kernels(), host, segment);
            }
            REQUIRE(pass.on_device(device).ok());
            compare(host, device, before);
        }
    }
}

/// This rank's own gradients, as the CPU reads them.
struct OwnGradients {
    explicit OwnGradients(const Segment& segment)
        : values(segment.read_gradients(reference_numeric_kernels(), widened)) {}
    float widened[kBlockElements];
    const float* values;
};

TEST_CASE("a GPU's steps give the CPU's bits", "[cuda]") {
    check({"adam",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.adam(h.fused(0, s), 0.3F, h.fused(1, s), h.fused(kVariance, s), s.parameters(), s.count,
                      h.settings(s).betas, h.settings(s).update);
               s.write_copy(reference_numeric_kernels());
           },
           [](const DeviceModel& d) {
               return cuda::adam({d.pieces(), d.fused(0), d.factors(), d.fused(1), d.fused(kVariance)}, nullptr);
           }});
    for (const bool by_tensor : {false, true}) {
        check({"descend",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   k.descend(h.fused(0, s), by_tensor ? h.factor(s) : h.settings(s).update.lr, s.parameters(), s.count);
                   s.write_copy(reference_numeric_kernels());
               },
               [=](const DeviceModel& d) {
                   return cuda::descend({d.pieces(), d.fused(0), by_tensor ? d.factors() : nullptr}, nullptr);
               }});
    }
    for (const auto& way : {std::pair(false, true), {false, false}, {true, true}, {true, false}}) {
        const bool drifts = way.first;
        const bool of_momentum = way.second;
        check({"step_alone",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   AdamUpdate without_decay = h.settings(s).update;
                   without_decay.weight_decay = 0;
                   const OwnGradients own(s);
                   const float* const g = own.values;
                   const AdamBetas& betas = h.settings(s).betas;
                   if (drifts) {
                       k.drift(g, h.factor(s), h.fused(1, s), h.fused(kPrecondition, s), s.parameters(), h.fused(0, s),
                               s.count, betas, without_decay, of_momentum, h.fused(kOutput, s));
                       return;
                   }
                   if (of_momentum) {
                       k.momentum(g, h.factor(s), h.fused(1, s), s.count, betas);
                       k.frozen_update(h.fused(1, s), h.fused(kPrecondition, s), s.parameters(), s.count,
                                       without_decay);
                   } else {
                       k.weighted_momentum(g, h.factor(s), h.fused(kPrecondition, s), h.fused(1, s), s.count, betas);
                       k.exchanged_update(h.fused(1, s), s.parameters(), s.count, without_decay);
                   }
                   s.write_copy(reference_numeric_kernels());
               },
               [=](const DeviceModel& d) {
                   return cuda::step_alone(
                       {d.pieces(), d.factors(), d.fused(kPrecondition), d.fused(1), drifts ? d.fused(0) : nullptr,
                        drifts ? d.fused(kOutput) : nullptr, of_momentum},
                       nullptr);
               }});
    }
}

TEST_CASE("a GPU's moments and directions are the CPU's to the bit", "[cuda]") {
    check({"moments",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.moments(h.fused(0, s), 0.3F, h.fused(1, s), h.fused(kVariance, s), s.count, h.settings(s).betas);
           },
           [](const DeviceModel& d) {
               return cuda::moments({d.pieces(), d.fused(0), d.factors(), d.fused(1), d.fused(kVariance)}, nullptr);
           }});
    check({"thaw",
           [](const OptimKernels&, HostModel& h, const Segment& s) {
               for (std::size_t i = 0; i < s.count; ++i) {
                   float& v = h.fused(kPrecondition, s)[i];
                   float& m = h.fused(1, s)[i];
                   v = thawed_variance(v, h.factor(s), h.settings(s).update);
                   m = thawed_momentum(m, v, h.settings(s).update);
               }
           },
           [](const DeviceModel& d) {
               return cuda::thaw({d.pieces(), d.factors(), d.fused(kPrecondition), d.fused(1)}, nullptr);
           }});
    for (const bool own : {false, true}) {
        check({"momentum",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   k.momentum(own ? OwnGradients(s).values : h.fused(0, s), h.factor(s), h.fused(1, s), s.count,
                              h.settings(s).betas);
               },
               [=](const DeviceModel& d) {
                   return cuda::momentum({d.pieces(), own ? nullptr : d.fused(0), d.factors(), d.fused(1)}, nullptr);
               }});
        check({"weighted_momentum",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   k.weighted_momentum(own ? OwnGradients(s).values : h.fused(0, s), h.factor(s),
                                       h.fused(kPrecondition, s), h.fused(1, s), s.count, h.settings(s).betas);
               },
               [=](const DeviceModel& d) {
                   return cuda::momentum(
                       {d.pieces(), own ? nullptr : d.fused(0), d.factors(), d.fused(1), d.fused(kPrecondition)},
                       nullptr);
               }});
    }
    check({"weigh",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.weighted_momentum(h.fused(1, s), 1, h.fused(kPrecondition, s), h.fused(1, s), s.count,
                                   keeping_nothing(h.settings(s).betas));
           },
           [](const DeviceModel& d) {
               return cuda::weigh({d.pieces(), d.fused(kPrecondition), d.fused(1)}, nullptr);
           }});
    check({"gather_masked",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.gather_masked(OwnGradients(s).values, h.factor(s), h.fused(kPrecondition, s), h.fused(1, s), s.count);
           },
           [](const DeviceModel& d) {
               return cuda::gather_masked({d.pieces(), d.factors(), d.fused(kPrecondition), d.fused(1)}, nullptr);
           }});
    check({"direction",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.direction(h.fused(0, s), h.fused(kVariance, s), s.parameters(), s.count, h.settings(s).update,
                           h.fused(kOutput, s));
           },
           [](const DeviceModel& d) {
               return cuda::direction({d.pieces(), d.fused(0), d.fused(kVariance), d.fused(kOutput)}, nullptr);
           }});
    check({"invert_denominator, in place",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.invert_denominator(h.fused(kVariance, s), s.count, h.settings(s).update, h.fused(kVariance, s));
           },
           [](const DeviceModel& d) {
               return cuda::invert_denominator({d.pieces(), d.fused(kVariance), d.fused(kVariance)}, nullptr);
           }});
    for (const bool with_decay : {false, true}) {
        check({"frozen_direction",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   AdamUpdate update = h.settings(s).update;
                   if (!with_decay) update.weight_decay = 0;
                   k.frozen_direction(h.fused(0, s), h.fused(kPrecondition, s), s.parameters(), s.count, update,
                                      h.fused(kOutput, s));
               },
               [=](const DeviceModel& d) {
                   return cuda::frozen_direction(
                       {d.pieces(), d.fused(0), d.fused(kPrecondition), d.fused(kOutput), with_decay}, nullptr);
               }});
    }
    check({"refresh",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.refresh(h.fused(0, s), h.fused(1, s), h.fused(kPrecondition, s), h.fused(kVariance, s), s.count,
                         h.settings(s).betas, h.settings(s).update, h.fused(kOutput, s));
           },
           [](const DeviceModel& d) {
               return cuda::refresh(
                   {d.pieces(), d.fused(0), d.fused(1), d.fused(kPrecondition), d.fused(kVariance), d.fused(kOutput)},
                   nullptr);
           }});
}

TEST_CASE("what a GPU reads, writes and multiplies has the CPU's bits", "[cuda]") {
    check({"multiply, in place",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               k.multiply(h.fused(0, s), h.factor(s), s.count, h.fused(0, s));
           },
           [](const DeviceModel& d) {
               return cuda::multiply({d.pieces(), d.fused(0), d.factors(), d.fused(0)}, nullptr);
           }});
    const DeviceArray<unsigned long long> first({cuda::kAllFinite});
    check({"look",
           [](const OptimKernels&, HostModel& h, const Segment& s) {
               std::memcpy(h.fused(kOutput, s), OwnGradients(s).values, s.count * sizeof(float));
           },
           [&](const DeviceModel& d) {
               return cuda::look({d.pieces(), d.fused(kOutput), first.data()}, nullptr);
           }});
    CHECK(first.get()[0] == cuda::kAllFinite);
    check({"narrow",
           [](const OptimKernels&, HostModel&, const Segment& s) { s.write_copy(reference_numeric_kernels()); },
           [](const DeviceModel& d) { return cuda::narrow({d.pieces()}, nullptr); }});
}

TEST_CASE("a GPU's sums of squares and least values are the CPU's", "[cuda]") {
    for (const bool of_parameters : {false, true}) {
        check({"sum_squares",
               [=](const OptimKernels& k, HostModel& h, const Segment& s) {
                   h.values.numbers[s.index] = k.sum_squares(of_parameters ? s.parameters() : h.fused(0, s), s.count);
               },
               [=](const DeviceModel& d) {
                   return cuda::sum_squares({d.pieces(), of_parameters ? nullptr : d.fused(0), d.numbers()}, nullptr);
               }});
    }
    check({"least",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               h.values.numbers[s.index] = k.least(h.fused(kOutput, s), s.count);
           },
           [](const DeviceModel& d) {
               return cuda::least({d.pieces(), d.fused(kOutput), d.numbers()}, nullptr);
           }});
}

TEST_CASE("a GPU's sketches are the CPU's to the bit", "[cuda]") {
    check({"sketch",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               float* const sketch = h.values.sketches.data() + s.index / cuda::kSketchPieces * kSketchBuckets;
               if (s.index % cuda::kSketchPieces == 0) std::fill_n(sketch, kSketchBuckets, 0.0F);
               k.sketch(OwnGradients(s).values, s.count, h.seed(s), sketch);
           },
           [](const DeviceModel& d) {
               return cuda::sketch({d.pieces(), d.sketches()}, nullptr);
           }});
    check({"sketch_weighted",
           [](const OptimKernels& k, HostModel& h, const Segment& s) {
               const auto run = std::ranges::upper_bound(h.layout.runs(), s.index) - h.layout.runs().begin() - 1;
               float* const sketch = h.values.sketches.data() + static_cast<std::size_t>(run) * kSketchBuckets;
               const bool begins = h.layout.runs()[static_cast<std::size_t>(run)] == s.index;
               if (begins) std::fill_n(sketch, kSketchBuckets, 0.0F);
               std::vector<float> weighted(s.count);
               k.weighted_momentum(OwnGradients(s).values, h.factor(s), h.fused(kPrecondition, s), weighted.data(),
                                   s.count, keeping_nothing(h.settings(s).betas));
               k.sketch(weighted.data(), s.count, h.seed(s), sketch);
           },
           [](const DeviceModel& d) {
               return cuda::sketch_weighted(
                   {d.pieces(), d.runs(), d.num_runs(), d.factors(), d.fused(kPrecondition), d.sketches()}, nullptr);
           }});
    const std::size_t count = 5;
    onebit_test::Random random(1, 0, 0);
    std::vector<float> sketches(count * kSketchBuckets);
    for (float& x : sketches) x = awkward(random);
    std::vector<float> sum(kSketchBuckets);
    for (std::size_t i = 0; i < sketches.size(); ++i) sum[i % kSketchBuckets] += sketches[i];
    const DeviceArray<float> on_device(sketches);
    const DeviceArray<float> total(std::vector<float>(kSketchBuckets, 77.0F));
    REQUIRE(cuda::add_sketches({on_device.data(), count, total.data()}, nullptr).ok());
    CHECK(same_bits(total.get(), sum));
}

/// Gradients times their factors, or momenta whose last values are in the last message; of weighted gradients, too.
enum class Encoded { kGradients, kMomenta, kWeightedMomenta };
constexpr Encoded kAllEncoded[] = {Encoded::kGradients, Encoded::kMomenta, Encoded::kWeightedMomenta};

/// The values that the CPU encodes.
std::vector<float> values_to_encode(HostModel& host, const Codec& codec, const SomeMessages& last, Encoded what) {
    std::vector<float> values(host.layout.count());
    if (what != Encoded::kGradients) {
        for (const Chunk& chunk : host.chunks) {
            const EncodedSlice slice = {Slice::whole(chunk), last.words.data() + last.begins[chunk.index]};
            codec.decode(only(slice), {}, ArraySink(values.data()));
        }
    }
    for (const Segment& segment : host.layout.segments()) {
        const OptimKernels& kernels = reference_optim_kernels();
        const OwnGradients gradients(segment);
        const float factor = HostModel::factor(segment);
        const AdamBetas& betas = HostModel::settings(segment).betas;
        float* const place = values.data() + segment.offset;
        if (what == Encoded::kGradients) {
            kernels.multiply(gradients.values, factor, segment.count, place);
        } else if (what == Encoded::kMomenta) {
            kernels.momentum(gradients.values, factor, place, segment.count, betas);
        } else {
            kernels.weighted_momentum(gradients.values, factor, host.fused(kPrecondition, segment), place,
                                      segment.count, betas);
        }
    }
    return values;
}

void compare_encoders(const std::vector<std::size_t>& counts, std::size_t ranks, onebit_group_t group, Encoded what) {
    CAPTURE(counts.size(), counts[0], ranks, group, static_cast<int>(what));
    HostModel host(counts, ranks);
    const DeviceModel device(host);
    const SomeMessages last(host, group);
    const DeviceArray<std::uint32_t> words(last.words);
    const EncodedGradients encoded(host, group, last);
    REQUIRE(encoded
                .encode(device, what == Encoded::kGradients ? nullptr : words.data(), true, nullptr, FLT_MAX,
                        what == Encoded::kWeightedMomenta)
                .ok());
    CHECK(encoded.first() == cuda::kAllFinite);

    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, group, 1, "reference"}, &codec).ok());
    const std::vector<float> values = values_to_encode(host, *codec, last, what);
    const std::unique_ptr<Feedback> feedback = codec->make_feedback(host.chunks);
    std::vector<std::uint32_t> message(last.words.size());
    for (const Chunk& chunk : host.chunks) {
        codec->encode(ArraySource(values.data()), *feedback, *feedback,
                      only(SliceToEncode{Slice::whole(chunk), nullptr, message.data() + last.begins[chunk.index]}));
    }
    CHECK(encoded.message() == message); // a tensor's scale is left to seal, on either side
    const auto& error = static_cast<const SignFeedback&>(*feedback);
    const std::span<const float> corrected = error.corrected.view();
    CHECK(same_bits(encoded.corrected(), {corrected.begin(), corrected.end()}));
    if (group == ONEBIT_GROUP_BUFFER) CHECK(std::ranges::equal(encoded.sums(), error.sums.view()));
    if (group == ONEBIT_GROUP_BLOCK) CHECK(std::ranges::equal(encoded.scales(), error.scales.view()));
}

TEST_CASE("a GPU encodes gradients from where they lie, and momenta that they make, to the CPU's bits", "[cuda]") {
    for (const auto& counts : all_counts()) {
        for (const std::size_t ranks : {1, 3}) {
            for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
                for (const Encoded what : kAllEncoded) compare_encoders(counts, ranks, group, what);
            }
        }
    }
    for (const Encoded what : kAllEncoded) { // the first chunk has a block more
        compare_encoders({5000, 7320}, 3, ONEBIT_GROUP_BLOCK, what);
    }
}

TEST_CASE("a GPU finds the first gradient that isn't finite or is too large, gathering, searching or encoding",
          "[cuda]") {
    const bool finite = GENERATE(false, true);
    const float limit = finite ? 1e4F : FLT_MAX;
    const std::vector<std::size_t> counts = {3, 5000, 31, 9000}; // of floats, halves, bfloat16s, floats
    for (const auto& [tensor, index] :
         std::vector<std::pair<std::size_t, std::size_t>>{{0, 2}, {1, 4900}, {1, 4999}, {2, 0}}) {
        HostModel host(counts, 3);
        const auto spoil = [&](std::size_t number, std::size_t i) {
            const Tensor& at = *host.layout.tensors()[number];
            void* const gradients = const_cast<void*>(at.gradients);
            if (at.gradient_type == ONEBIT_FLOAT32) {
                static_cast<std::uint32_t*>(gradients)[i] = finite ? 0xff7fffffU : 0xff800000U; // -FLT_MAX, -inf
            }
            if (at.gradient_type == ONEBIT_FLOAT16) {
                static_cast<std::uint16_t*>(gradients)[i] = finite ? 0x7bffU : 0x7e00U; // 65504, NaN
            }
            if (at.gradient_type == ONEBIT_BFLOAT16) {
                static_cast<std::uint16_t*>(gradients)[i] = finite ? 0x7f7fU : 0x7f80U; // 3.4e38, inf
            }
        };
        spoil(tensor, index);
        if (index + 32 < counts[tensor]) spoil(tensor, index + 32); // the same thread's; never the first
        spoil(3, 8999);
        CAPTURE(tensor, index);
        const std::size_t expected = host.layout.tensors()[tensor]->offset + index;
        const DeviceModel device(host);
        for (const bool gathers : {false, true}) {
            const DeviceArray<unsigned long long> first({cuda::kAllFinite});
            float* const out = gathers ? device.fused(0) : nullptr;
            REQUIRE(cuda::look({device.pieces(), out, first.data(), limit}, nullptr).ok());
            CHECK(first.get()[0] == expected);
        }
        const SomeMessages last(host, ONEBIT_GROUP_BLOCK);
        const EncodedGradients encoded(host, ONEBIT_GROUP_BLOCK, last);
        REQUIRE(encoded.encode(device, nullptr, true, nullptr, limit).ok());
        CHECK(encoded.first() == expected);
    }
}

/// A pass with a message: the CPU's function for a decoded segment, and the GPU's function.
struct MessagePass {
    const char* name;
    std::function<void(const OptimKernels&, HostModel&, const Segment&, std::vector<float> decoded)> on_segment;
    std::function<Status(const DeviceModel&, const cuda::Messages&)> on_device;
    bool multiplies_variances = false; ///< by zeros, too
};

void check(const MessagePass& pass, const std::vector<std::size_t>& counts, std::size_t ranks, onebit_group_t group,
           bool masked) {
    CAPTURE(pass.name, counts.size(), counts[0], ranks, group, masked);
    HostModel host(counts, ranks);
    if (pass.multiplies_variances) host.limit_variances();
    DeviceModel device(host);
    const SomeMessages messages(host, group);
    device.set_messages(host, group, messages.begins);
    const DeviceArray<std::uint32_t> words(messages.words);
    const DeviceArray<std::uint32_t> mask(messages.mask);
    REQUIRE(pass.on_device(device, {words.data(), masked ? mask.data() : nullptr}).ok());

    std::unique_ptr<Codec> codec;
    REQUIRE(make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, group, 1, "reference"}, &codec).ok());
    std::vector<float> decoded(host.layout.count());
    for (const Chunk& chunk : host.chunks) {
        const EncodedSlice slice = {Slice::whole(chunk), messages.words.data() + messages.begins[chunk.index]};
        codec->decode(only(slice), masked ? messages.mask : std::vector<std::uint32_t>(), ArraySink(decoded.data()));
    }
    const Values before = host.values;
    for (const Segment& segment : host.layout.segments()) {
        const auto begin = decoded.begin() + static_cast<std::ptrdiff_t>(segment.offset);
        pass.on_segment(reference_optim_kernels(), host, segment,
                        {begin, begin + static_cast<std::ptrdiff_t>(segment.count)});
        segment.write_copy(reference_numeric_kernels());
    }
    compare(host, device, before);
}

void check(const MessagePass& pass) {
    for (const auto& counts : all_counts()) {
        for (const std::size_t ranks : {1, 3}) {
            for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
                for (const bool masked : {false, true}) check(pass, counts, ranks, group, masked);
            }
        }
    }
}

TEST_CASE("a GPU's step by a message gives the bits of the CPU's decoding and step", "[cuda]") {
    check({"exchanged_update",
           [](const OptimKernels& k, HostModel& h, const Segment& s, const std::vector<float>& m) {
               k.exchanged_update(m.data(), s.parameters(), s.count, h.settings(s).update);
           },
           [](const DeviceModel& d, const cuda::Messages& messages) {
               return cuda::compressed_update({d.pieces(), messages, nullptr, nullptr, nullptr}, nullptr);
           }});
    for (const bool by_tensor : {false, true}) { // as 1-bit Adam does; as LAMB: with a factor and a step of its own
        check({"compressed_update",
               [=](const OptimKernels& k, HostModel& h, const Segment& s, std::vector<float> m) {
                   AdamUpdate update = h.settings(s).update;
                   if (by_tensor) {
                       update.lr = h.factor(s);
                       k.multiply(m.data(), h.factor(s), s.count, m.data());
                   }
                   k.frozen_update(m.data(), h.fused(kPrecondition, s), s.parameters(), s.count, update);
               },
               [=](const DeviceModel& d, const cuda::Messages& messages) {
                   const float* const by = by_tensor ? d.factors() : nullptr;
                   return cuda::compressed_update({d.pieces(), messages, d.fused(kPrecondition), by, by}, nullptr);
               }});
    }
    for (const bool weighted : {false, true}) {
        check({"take_average",
               [=](const OptimKernels& k, HostModel& h, const Segment& s, std::vector<float> average) {
                   const auto& [betas, update] = h.settings(s);
                   const float* const v = h.fused(kVariance, s);
                   std::vector<float> u(s.count);
                   if (weighted) k.unweigh(average.data(), v, s.count, update, average.data());
                   k.momentum(average.data(), 1, h.fused(1, s), s.count, betas);
                   k.direction(h.fused(1, s), v, s.parameters(), s.count, update, u.data());
                   k.descend(u.data(), update.lr, s.parameters(), s.count);
               },
               [=](const DeviceModel& d, const cuda::Messages& messages) {
                   return cuda::take_average({d.pieces(), messages, d.fused(1), d.fused(kVariance), weighted}, nullptr);
               },
               weighted});
    }
}

TEST_CASE("a GPU's ranks meet where the CPU's do, to the bit", "[cuda]") {
    const auto to_momentum = [](const Segment& s) { return s.tensor->number % 3 == 1 ? 0.0F : -HostModel::factor(s); };
    for (const bool preconditioned : {true, false}) {
        check({"rejoin",
               [=](const OptimKernels& k, HostModel& h, const Segment& s, std::vector<float> average) {
                   if (to_momentum(s) != 0) k.multiply(average.data(), to_momentum(s), s.count, h.fused(1, s));
                   k.rejoin(average.data(), preconditioned ? h.fused(kPrecondition, s) : nullptr, h.factor(s),
                            h.fused(kOutput, s), s.parameters(), s.count);
               },
               [=](const DeviceModel& d, const cuda::Messages& messages) {
                   const DeviceArray<float> factors(d.by_tensor(to_momentum));
                   return cuda::rejoin({d.pieces(), messages, preconditioned ? d.fused(kPrecondition) : nullptr,
                                        factors.data(), d.factors(), d.fused(1), d.fused(kOutput)},
                                       nullptr);
               }});
    }
}

} // namespace
} // namespace onebit
