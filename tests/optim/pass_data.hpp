// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The data of the optimizers' passes, twice: on the CPU, where the reference kernels go through the data segment by
// segment, and on a device.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compress/device_memory.hpp"
#include "compress/sign/arithmetic.hpp"
#include "core/partition.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/tensors.hpp"
#include "support/data.hpp"

namespace onebit {

/// Some fused arrays' contents.
constexpr std::size_t kVariance = 2;     ///< nothing below 0, some infinities
constexpr std::size_t kPrecondition = 3; ///< nothing below 0
constexpr std::size_t kOutput = 4;       ///< no -0: of two zeros either may be the lesser

inline const cuda::GroupSettings kSettings[] = {
    {{0.9F, 0.1F, 0.99F, 0.01F, 5.0F}, {0.01F, 1e-6F, 0.1F, 1.7F, 1.3F}},
    {{0.8F, 0.2F, 0.999F, 0.001F, 20.0F}, {0.3F, 1e-8F, 0, 1, 1}},
};

inline float awkward(onebit_test::Random& random) {
    const auto x = static_cast<float>(random.gaussian());
    switch (random.next() % 16) {
        case 0:
            return 0.0F;
        case 1:
            return -0.0F;
        case 2:
            return x * 1e-20F;
        case 3:
            return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x807fffffU); // subnormal
        case 4:
            return x * 1e9F;
        case 5:
            return x * 1e25F; // the square is infinite
        case 6:
            return std::clamp(x, -1.0F, 1.0F) * 1e38F; // much that is made of it overflows
        default:
            return x;
    }
}

/// Everything that a pass may read or write. Tensors lie in it with guards between them, at addresses that suit a
/// float and no vector.
struct Values {
    std::vector<float> parameters;
    std::vector<std::uint32_t> gradients; ///< in the tensors' own types
    std::vector<std::uint32_t> copies;
    std::array<std::vector<float>, 5> fused;
    std::vector<double> numbers; ///< one per piece
    std::vector<float> sketches;
    std::vector<float> total;
};

/// NaNs are alike: a GPU's have other payloads.
template <typename Real>
bool same_bits(std::vector<Real> a, std::vector<Real> b) {
    for (auto* values : {&a, &b}) {
        for (Real& x : *values) {
            if (std::isnan(x)) x = std::numeric_limits<Real>::quiet_NaN();
        }
    }
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0;
}

inline bool operator==(const Values& a, const Values& b) {
    for (std::size_t i = 0; i < a.fused.size(); ++i) {
        if (!same_bits(a.fused[i], b.fused[i])) return false;
    }
    return same_bits(a.parameters, b.parameters) && a.gradients == b.gradients && a.copies == b.copies &&
           same_bits(a.numbers, b.numbers) && same_bits(a.sketches, b.sketches) && same_bits(a.total, b.total);
}

/// Tensors of so many elements, of several types and both groups, on the CPU.
class HostModel {
  public:
    HostModel(const std::vector<std::size_t>& counts, std::size_t ranks) {
        static constexpr onebit_datatype_t kTypes[] = {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16};
        onebit_test::Random random(counts.size(), 0, 0);
        std::size_t elements = 0;
        for (const std::size_t count : counts) elements += count;
        const auto fill = [&](std::vector<float>& array, std::size_t length) {
            array.assign(length, 77.0F);
            array[1] = 0.75F; // so that a pass over a single element does something
            for (std::size_t i = 2; i < length; ++i) array[i] = awkward(random);
        };
        const std::size_t with_guards = elements + kGuards * (counts.size() + 1);
        fill(values.parameters, with_guards);
        for (auto& array : values.fused) fill(array, 1 + elements + kGuards);
        for (const std::size_t array : {kVariance, kPrecondition}) {
            for (float& x : values.fused[array]) x = std::fabs(x);
        }
        values.fused[kPrecondition][1] = 0; // a masked one
        for (float& x : values.fused[kOutput]) x += 0.0F;
        for (std::size_t i = 9; i < elements; i += 50) {
            values.fused[kVariance][i] = std::numeric_limits<float>::infinity();
        }
        for (std::size_t i = 0; i < with_guards; ++i) values.gradients.push_back(finite_word(random));
        values.gradients[kGuards] = std::bit_cast<std::uint32_t>(0.5F); // the first element's: not too small to count
        values.copies.assign(with_guards, 0x77777777U);
        std::size_t offset = 0;
        for (std::size_t n = 0; n < counts.size(); ++n) {
            const std::size_t at = offset + kGuards * (n + 1);
            const onebit_datatype_t copy_type = kTypes[n / 2 % 3];
            tensors_.push_back({"", n, n % 2, counts[n], offset, values.parameters.data() + at,
                                place(values.gradients, at, kTypes[n % 3]), kTypes[n % 3], copy_type,
                                n % 5 == 4 ? nullptr : place(values.copies, at, copy_type)});
            offset += counts[n];
        }
        std::vector<const Tensor*> pointers;
        for (const Tensor& tensor : tensors_) pointers.push_back(&tensor);
        chunks = partition(elements, ranks);
        layout = Layout(pointers);
        layout.cut(chunks);
        values.numbers.assign(layout.segments().size() + kGuards, 77.0);
        values.sketches.assign(sketches() * kSketchBuckets + kGuards, 77.0F);
        values.total.assign(kSketchBuckets + kGuards, 77.0F);
    }
    HostModel(const HostModel&) = delete;
    HostModel& operator=(const HostModel&) = delete;

    /// Limits values whose product with zero is a NaN: a GPU gives a NaN in a 16-bit copy another payload.
    void limit_variances() {
        for (float& v : values.fused[kVariance]) v = std::min(v, 1e37F);
    }

    std::size_t sketches() const { return layout.runs().size() - 1; } ///< at least as many as by kSketchPieces
    float* fused(std::size_t array, const Segment& segment) { return values.fused[array].data() + 1 + segment.offset; }
    static const cuda::GroupSettings& settings(const Segment& segment) { return kSettings[segment.tensor->group]; }
    static float factor(const Segment& segment) { return 0.3F + static_cast<float>(segment.tensor->number % 7); }
    static std::uint64_t seed(const Segment& segment) { return 0x123456789abcdef5U * (segment.index + 1); }

    Values values;
    Layout layout;
    std::vector<Chunk> chunks;

  private:
    static constexpr std::size_t kGuards = 3;

    /// Two halves that are finite in both 16-bit formats, and a finite float.
    static std::uint32_t finite_word(onebit_test::Random& random) {
        const auto bits = static_cast<std::uint32_t>(random.next()) & 0xbfffbfffU;
        return random.next() % 8 == 0 ? bits & 0x80038003U : bits;
    }
    /// Halves begin in the middle of a word.
    static void* place(std::vector<std::uint32_t>& words, std::size_t at, onebit_datatype_t type) {
        std::uint32_t* const word = words.data() + at;
        return type == ONEBIT_FLOAT32 ? static_cast<void*>(word) : reinterpret_cast<std::uint16_t*>(word) + 1;
    }

    std::vector<Tensor> tensors_;
};

/// A message for each chunk, one behind the other.
struct SomeMessages {
    SomeMessages(const HostModel& host, onebit_group_t group) {
        static constexpr float kScales[] = {0.8F, 0.0F, 1e-42F, 3e-7F, 1e25F};
        onebit_test::Random random(host.layout.count(), 1, 0);
        for (const Chunk& chunk : host.chunks) {
            begins.push_back(words.size());
            for (std::size_t i = 0; i <= scale_word(group, chunk, chunk.blocks()); ++i) {
                words.push_back(static_cast<std::uint32_t>(random.next()));
            }
            for (std::size_t b = 0; b < chunk.blocks(); ++b) {
                const float scale = kScales[group == ONEBIT_GROUP_BLOCK ? b % 5 : 0];
                words[begins.back() + scale_word(group, chunk, b)] = std::bit_cast<std::uint32_t>(scale);
            }
        }
        for (std::size_t i = 0; i < ceil_divide(host.layout.count(), kWordElements); ++i) {
            mask.push_back(static_cast<std::uint32_t>(random.next()));
        }
    }
    std::vector<std::uint32_t> words;
    std::vector<std::uint32_t> mask;
    std::vector<std::size_t> begins;
};

/// The same data on a device, for the device's passes.
class DeviceModel {
  public:
    explicit DeviceModel(const HostModel& host)
        : parameters_(host.values.parameters),
          gradients_(host.values.gradients),
          copies_(host.values.copies),
          fused_{DeviceArray<float>(host.values.fused[0]), DeviceArray<float>(host.values.fused[1]),
                 DeviceArray<float>(host.values.fused[2]), DeviceArray<float>(host.values.fused[3]),
                 DeviceArray<float>(host.values.fused[4])},
          numbers_(host.values.numbers),
          sketches_(host.values.sketches),
          total_(host.values.total),
          settings_({kSettings[0], kSettings[1]}),
          host_(host),
          factors_(by_tensor(HostModel::factor)),
          pieces_(make_pieces(host)),
          runs_(std::vector<std::size_t>(host.layout.runs().begin(), host.layout.runs().end())) {}

    cuda::Pieces pieces() const { return {pieces_.data(), host_.layout.segments().size(), settings_.data()}; }
    float* fused(std::size_t array) const { return fused_[array].data() + 1; }
    double* numbers() const { return numbers_.data(); }
    float* sketches() const { return sketches_.data(); }
    const std::size_t* runs() const { return runs_.data(); } ///< the layout's
    std::size_t num_runs() const { return host_.layout.runs().size() - 1; }
    float* total() const { return total_.data(); }
    /// One for each tensor, as HostModel::factor has them; the first one also serves as one for all tensors.
    const float* factors() const { return factors_.data(); }
    /// The value for the first segment of each tensor.
    template <typename FactorOf>
    std::vector<float> by_tensor(const FactorOf& factor_of) const {
        std::vector<float> factors;
        for (std::size_t i = 0; i < host_.layout.tensors().size(); ++i) {
            factors.push_back(factor_of(host_.layout.segments_of_tensor(i).front()));
        }
        return factors;
    }

    Values values() const {
        return {
            parameters_.get(), gradients_.get(),
            copies_.get(),     {fused_[0].get(), fused_[1].get(), fused_[2].get(), fused_[3].get(), fused_[4].get()},
            numbers_.get(),    sketches_.get(),
            total_.get()};
    }

    void set_settings(const std::vector<cuda::GroupSettings>& settings) { settings_.set(settings); }

    /// The layout's messages lie one behind the other, each beginning at such a word.
    void set_messages(const HostModel& host, onebit_group_t group, const std::vector<std::size_t>& begins) {
        std::vector<cuda::Piece> pieces = pieces_.get();
        for (const Chunk& chunk : host.chunks) {
            for (std::size_t b = 0; b < chunk.blocks(); ++b) {
                const Block block = {chunk, b};
                const std::size_t signs = begins[chunk.index] + sign_word(group, chunk, b);
                for (const Segment& segment : host.layout.segments(block)) {
                    cuda::Piece& piece = pieces[segment.index];
                    piece.first_sign = signs * kWordElements + (segment.offset - block.begin());
                    piece.scale_word = begins[chunk.index] + scale_word(group, chunk, b);
                }
            }
        }
        pieces_.set(pieces);
    }

  private:
    std::vector<cuda::Piece> make_pieces(const HostModel& host) const {
        std::vector<cuda::Piece> pieces;
        for (const Segment& segment : host.layout.segments()) {
            const Tensor& tensor = *segment.tensor;
            // As far from the device's beginning as the host's is from the host's.
            const auto moved = [&](auto* base, const auto& from, const void* place, onebit_datatype_t type) {
                const auto* const element =
                    static_cast<const char*>(place) + segment.begin * (type == ONEBIT_FLOAT32 ? 4 : 2);
                return reinterpret_cast<char*>(base) + (element - reinterpret_cast<const char*>(from.data()));
            };
            cuda::Piece piece = {};
            piece.offset = segment.offset;
            piece.parameters = reinterpret_cast<float*>(
                moved(parameters_.data(), host.values.parameters, tensor.parameters, ONEBIT_FLOAT32));
            piece.gradients = moved(gradients_.data(), host.values.gradients, tensor.gradients, tensor.gradient_type);
            if (tensor.copy != nullptr) {
                piece.copy = moved(copies_.data(), host.values.copies, tensor.copy, tensor.copy_type);
            }
            piece.seed = HostModel::seed(segment);
            piece.gradient_type = tensor.gradient_type;
            piece.copy_type = tensor.copy_type;
            piece.count = static_cast<unsigned>(segment.count);
            piece.group = static_cast<unsigned>(tensor.group);
            piece.tensor = static_cast<unsigned>(tensor.number);
            pieces.push_back(piece);
        }
        return pieces;
    }

    DeviceArray<float> parameters_;
    DeviceArray<std::uint32_t> gradients_;
    DeviceArray<std::uint32_t> copies_;
    std::array<DeviceArray<float>, 5> fused_;
    DeviceArray<double> numbers_;
    DeviceArray<float> sketches_;
    DeviceArray<float> total_;
    DeviceArray<cuda::GroupSettings> settings_;
    const HostModel& host_;
    DeviceArray<float> factors_;
    DeviceArray<cuda::Piece> pieces_;
    DeviceArray<std::size_t> runs_;
};

/// The output of a device's encoder for the pieces' gradients, chunk by chunk.
class EncodedGradients {
  public:
    EncodedGradients(const HostModel& host, onebit_group_t group, const SomeMessages& messages)
        : host_(host),
          group_(group),
          begins_(messages.begins),
          first_piece_({host.layout.first_segments().begin(), host.layout.first_segments().end()}),
          corrected_(std::vector<float>(host.layout.count())),
          scales_(std::vector<float>(blocks())),
          sums_(std::vector<double>(blocks())),
          message_(std::vector<std::uint32_t>(messages.words.size())),
          first_({cuda::kAllFinite}) {}

    /// `last`: the messages of all chunks, or NULL. `looks`: whether to check the gradients.
    Status encode(const DeviceModel& model, const std::uint32_t* last, bool looks, cuda::Stream stream,
                  float limit = FLT_MAX, bool weighted = false) const {
        cuda::EncodeGradientsArguments arguments = {{},
                                                    model.pieces(),
                                                    model.factors(),
                                                    looks ? first_.data() : nullptr,
                                                    limit,
                                                    weighted ? model.fused(kPrecondition) : nullptr};
        for (const Chunk& chunk : host_.chunks) {
            const std::size_t block = host_.layout.number_of({chunk, 0});
            float* const corrected = corrected_.data() + chunk.begin;
            float* const scales = scales_.data() + (group_ == ONEBIT_GROUP_BLOCK ? block : 0);
            const std::size_t begin = begins_[chunk.index];
            const cuda::Encoding to = {Slice::whole(chunk),
                                       ONEBIT_SCALE_L2,
                                       group_,
                                       {corrected, scales, corrected, scales, sums_.data() + block, nullptr, nullptr},
                                       message_.data() + begin};
            arguments.slices.add({to, last != nullptr ? last + begin : nullptr, first_piece_.data() + block});
        }
        return cuda::encode_gradients(arguments, stream);
    }

    std::vector<std::uint32_t> message() const { return message_.get(); }
    std::vector<float> corrected() const { return corrected_.get(); }
    std::vector<float> scales() const { return scales_.get(); }
    std::vector<double> sums() const { return sums_.get(); }
    unsigned long long first() const { return first_.get()[0]; }

  private:
    std::size_t blocks() const { return host_.layout.first_segments().size() - 1; }

    const HostModel& host_;
    onebit_group_t group_;
    std::vector<std::size_t> begins_;
    DeviceArray<std::size_t> first_piece_;
    DeviceArray<float> corrected_;
    DeviceArray<float> scales_;
    DeviceArray<double> sums_;
    DeviceArray<std::uint32_t> message_;
    DeviceArray<unsigned long long> first_;
};

} // namespace onebit
