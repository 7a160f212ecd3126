// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast the optimizers' passes are on a GPU, how close to its memory's limit, and how long whole steps take:
//
//     cuda_passes_benchmark --json passes.json
//
// The rival is a copy from device to device. Columns and conditions are those of cuda_kernel_benchmark. The steps are
// the launches of one rank of 8, one after the other, without the network: dense Adam's, and 1-bit Adam's in its
// compression stage. They are of a model that is one tensor of floats, and of a model of several tensors. Single passes
// are of the model of several tensors.

#include <bit>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compress/sign/arithmetic.hpp"
#include "core/partition.hpp"
#include "cuda_cases.hpp"
#include "optim/cuda/cuda_passes.hpp"
#include "optim/kernels/cuda/kernels.hpp"

namespace onebit::bench {
namespace {

constexpr std::size_t kRanks = 8; // the step is that of one of them

std::vector<float> squares(std::vector<float> values) {
    for (float& value : values) value *= value;
    return values;
}

// A chunk's place in the messages of all chunks, and in their blocks.
struct ChunkPlace {
    Chunk chunk;
    std::size_t first_word, first_block;
};

std::vector<ChunkPlace> place_chunks(std::size_t elements) {
    std::vector<ChunkPlace> places;
    std::size_t word = 0;
    std::size_t block = 0;
    for (const Chunk& chunk : partition(elements, kRanks)) {
        places.push_back({chunk, word, block});
        word += sign_word(ONEBIT_GROUP_BLOCK, chunk, chunk.blocks());
        block += chunk.blocks();
    }
    return places;
}

// One way to cut all elements into tensors.
class Model {
  public:
    Model(const std::vector<std::size_t>& sizes, const std::vector<ChunkPlace>& places, float* parameters,
          const float* gradients, std::uint16_t* copies)
        : tensors_(sizes.size()),
          settings_(std::vector<cuda::GroupSettings>{{{0.9F, 0.1F, 0.999F, 0.001F}, {1e-6F, 1e-8F, 0.01F, 1, 1}}}),
          ones_(std::vector<float>(sizes.size(), 1.0F)),
          steps_(std::vector<float>(sizes.size(), 1e-6F)) {
        std::vector<const Tensor*> pointers;
        std::size_t at = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            Tensor& tensor = tensors_[i];
            tensor.count = sizes[i];
            tensor.parameters = parameters + at;
            tensor.gradients = gradients + at;
            tensor.copy = copies != nullptr ? copies + at : nullptr;
            tensor.copy_type = ONEBIT_BFLOAT16;
            at += sizes[i];
            pointers.push_back(&tensor);
        }
        Layout layout(pointers);
        layout.cut(partition(layout.count(), kRanks));
        std::vector<cuda::Piece> pieces(layout.segments().size());
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            for (const Segment& segment : layout.segments_of_tensor(i)) pieces[segment.index] = make_piece(segment, i);
        }
        for (const ChunkPlace& place : places) place_in_message(layout, place, pieces);
        count_ = pieces.size();
        pieces_ = std::make_unique<DeviceArray<cuda::Piece>>(pieces);
        const std::span<const std::size_t> first = layout.first_segments();
        first_piece_ = std::make_unique<DeviceArray<std::size_t>>(std::vector<std::size_t>(first.begin(), first.end()));
    }

    cuda::Pieces pieces() const { return {pieces_->data(), count_, settings_.data()}; }
    // For each tensor: factors that change nothing, and small steps.
    const float* ones() const { return ones_.data(); }
    const float* steps() const { return steps_.data(); }
    // By block, of all chunks.
    const std::size_t* first_piece() const { return first_piece_->data(); }

  private:
    static void place_in_message(const Layout& layout, const ChunkPlace& place, std::vector<cuda::Piece>& pieces) {
        for (std::size_t b = 0; b < place.chunk.blocks(); ++b) {
            const Block block = {place.chunk, b};
            const std::size_t signs = place.first_word + sign_word(ONEBIT_GROUP_BLOCK, place.chunk, b);
            for (const Segment& segment : layout.segments(block)) {
                cuda::Piece& piece = pieces[segment.index];
                piece.first_sign = signs * kWordElements + (segment.offset - block.begin());
                piece.scale_word = place.first_word + scale_word(ONEBIT_GROUP_BLOCK, place.chunk, b);
            }
        }
    }

    std::vector<Tensor> tensors_;
    DeviceArray<cuda::GroupSettings> settings_;
    DeviceArray<float> ones_;
    DeviceArray<float> steps_;
    std::size_t count_ = 0;
    std::unique_ptr<DeviceArray<cuda::Piece>> pieces_;
    std::unique_ptr<DeviceArray<std::size_t>> first_piece_;
};

// All that the passes read and write.
class Arena {
  public:
    explicit Arena(std::size_t elements)
        : elements_(elements),
          places_(place_chunks(elements)),
          gradients_(gaussians(elements)),
          sum_(gaussians(elements)),
          parameters_(elements),
          m_(elements),
          v_(squares(gaussians(elements))),
          precondition_(std::vector<float>(elements, 1.0F)),
          anchor_(elements),
          out_(elements),
          copies_(elements),
          corrected_(elements),
          scales_(blocks()),
          messages_(words()),
          served_(own().chunk.count),
          served_scales_(own().chunk.blocks()),
          served_message_(own_words()),
          incoming_(some_messages()),
          incoming_pointers_(pointers()),
          first_(1),
          one_({elements}, places_, parameters_.data(), gradients_.data(), nullptr),
          several_(cut_into_tensors(elements), places_, parameters_.data(), gradients_.data(), nullptr),
          copied_(cut_into_tensors(elements), places_, parameters_.data(), gradients_.data(), copies_.data()),
          numbers_(several_.pieces().count),
          sketches_(sketches() * kSketchBuckets),
          total_(kSketchBuckets) {}

    // Bytes of the GPU's memory that an element takes, about.
    static constexpr std::size_t kBytes = 10 * sizeof(float) + sizeof(std::uint16_t) + 2;

    std::vector<Case> cases() {
        std::vector<Case> all = {copy_case(gradients_.data(), out_.data(), elements_)};
        add_steps_of_optimizers(all);
        add_what_they_are_made_of(all);
        add_whole_steps(all);
        return all;
    }

  private:
    void add_steps_of_optimizers(std::vector<Case>& all) const {
        const cuda::Pieces pieces = several_.pieces();
        add(all, "adam", 28, [=, this] {
            return cuda::adam({pieces, sum_.data(), several_.ones(), m_.data(), v_.data()}, nullptr);
        });
        add(all, "compressed_update", 12.125, [=, this] { return compressed_update(pieces); });
        add(all, "take_average", 20.125, [=, this] {
            return cuda::take_average({pieces, {messages_.data(), nullptr}, m_.data(), v_.data()}, nullptr);
        });
        add(all, "step_alone", 24, [=, this] {
            return cuda::step_alone({pieces, several_.ones(), precondition_.data(), m_.data(), nullptr, nullptr},
                                    nullptr);
        });
        add(all, "step_alone, before a round", 24, [=, this] {
            return cuda::step_alone(
                {pieces, several_.ones(), precondition_.data(), m_.data(), anchor_.data(), out_.data()}, nullptr);
        });
        add(all, "rejoin", 20.125, [=, this] {
            return cuda::rejoin({pieces,
                                 {messages_.data(), nullptr},
                                 precondition_.data(),
                                 several_.ones(),
                                 several_.steps(),
                                 m_.data(),
                                 anchor_.data()},
                                nullptr);
        });
        add(all, "descend", 12, [=, this] { return cuda::descend({pieces, sum_.data(), several_.steps()}, nullptr); });
    }

    void add_what_they_are_made_of(std::vector<Case>& all) const {
        const cuda::Pieces pieces = several_.pieces();
        const cuda::Pieces copied = copied_.pieces();
        add(all, "invert_denominator", 8, [=, this] {
            return cuda::invert_denominator({pieces, v_.data(), out_.data()}, nullptr);
        });
        add(all, "moments", 20, [=, this] {
            return cuda::moments({pieces, sum_.data(), several_.ones(), m_.data(), v_.data()}, nullptr);
        });
        add(all, "direction", 16, [=, this] {
            return cuda::direction({pieces, m_.data(), v_.data(), out_.data()}, nullptr);
        });
        add(all, "momentum", 12, [=, this] {
            return cuda::momentum({pieces, nullptr, several_.ones(), m_.data()}, nullptr);
        });
        add(all, "frozen_direction", 16, [=, this] {
            return cuda::frozen_direction({pieces, m_.data(), precondition_.data(), out_.data(), true}, nullptr);
        });
        add(all, "refresh", 24, [=, this] {
            return cuda::refresh({pieces, m_.data(), sum_.data(), precondition_.data(), v_.data(), out_.data()},
                                 nullptr);
        });
        add(all, "sum_squares", 4, [=, this] {
            return cuda::sum_squares({pieces, sum_.data(), numbers_.data()}, nullptr);
        });
        add(all, "least", 4, [=, this] { return cuda::least({pieces, v_.data(), numbers_.data()}, nullptr); });
        add(all, "multiply", 8, [=, this] {
            return cuda::multiply({pieces, sum_.data(), several_.ones(), out_.data()}, nullptr);
        });
        add(all, "look", 4, [=, this] { return cuda::look({pieces, nullptr, first_.data()}, nullptr); });
        add(all, "look and gather", 8, [=, this] { return cuda::look({pieces, sum_.data(), first_.data()}, nullptr); });
        add(all, "encode_gradients", 12.25, [=, this] { return encode(several_); });
        add(all, "narrow", 4 + 2, [=] { return cuda::narrow({copied}, nullptr); });
        add(all, "sketch", 4, [=, this] { return cuda::sketch({pieces, sketches_.data()}, nullptr); });
        const double sketched = static_cast<double>(sketches() * kSketchBuckets * sizeof(float));
        add(all, "add_sketches", sketched / static_cast<double>(elements_), [=, this] {
            return cuda::add_sketches({sketches_.data(), sketches(), total_.data()}, nullptr);
        });
    }

    void add_whole_steps(std::vector<Case>& all) const {
        constexpr double kServer = (8 + kRanks / 8.0) / kRanks;
        constexpr double kCompressed = 12.25 + 12.125 + kServer;
        add(all, "Adam, one tensor", 8 + 28, [this] { return adam_step(one_); });
        add(all, "1-bit Adam, one tensor", kCompressed, [this] { return compressed_step(one_); });
        add(all, "Adam, several tensors", 8 + 28, [this] { return adam_step(several_); });
        add(all, "1-bit Adam, several tensors", kCompressed, [this] { return compressed_step(several_); });
    }

    template <typename Launch>
    static void add(std::vector<Case>& all, const char* name, double bytes_per_element, const Launch& launch) {
        all.push_back({name, bytes_per_element, [launch] { check(launch()); }});
    }

    Status adam_step(const Model& model) const {
        ONEBIT_RETURN_IF_ERROR(cuda::look({model.pieces(), sum_.data(), first_.data()}, nullptr));
        return cuda::adam({model.pieces(), sum_.data(), model.ones(), m_.data(), v_.data()}, nullptr);
    }

    // As worker of all chunks and server of one.
    Status compressed_step(const Model& model) const {
        ONEBIT_RETURN_IF_ERROR(encode(model));
        const cuda::Encoding to = encoding(own(), served_.data(), served_scales_.data(), served_message_.data());
        ONEBIT_RETURN_IF_ERROR(cuda::average_encode({to, incoming_pointers_.data(), kRanks, 1.0F / kRanks}, nullptr));
        return compressed_update(model.pieces());
    }

    // Momenta, of all chunks.
    Status encode(const Model& model) const {
        cuda::EncodeGradientsArguments arguments = {{}, model.pieces(), model.ones(), first_.data()};
        for (const ChunkPlace& place : places_) {
            std::uint32_t* const message = messages_.data() + place.first_word;
            const cuda::Encoding to =
                encoding(place, corrected_.data() + place.chunk.begin, scales_.data() + place.first_block, message);
            arguments.slices.add({to, message, model.first_piece() + place.first_block});
        }
        return cuda::encode_gradients(arguments, nullptr);
    }

    Status compressed_update(const cuda::Pieces& pieces) const {
        return cuda::compressed_update({pieces, {messages_.data(), nullptr}, precondition_.data(), nullptr, nullptr},
                                       nullptr);
    }

    static cuda::Encoding encoding(const ChunkPlace& place, float* corrected, float* scales, std::uint32_t* message) {
        return {Slice::whole(place.chunk),
                ONEBIT_SCALE_L2,
                ONEBIT_GROUP_BLOCK,
                {corrected, scales, corrected, scales, nullptr, nullptr, nullptr},
                message};
    }

    const ChunkPlace& own() const { return places_.front(); }
    std::size_t own_words() const { return sign_word(ONEBIT_GROUP_BLOCK, own().chunk, own().chunk.blocks()); }
    std::size_t blocks() const { return places_.back().first_block + places_.back().chunk.blocks(); }
    std::size_t words() const {
        const ChunkPlace& last = places_.back();
        return last.first_word + sign_word(ONEBIT_GROUP_BLOCK, last.chunk, last.chunk.blocks());
    }
    std::size_t sketches() const { return ceil_divide(several_.pieces().count, cuda::kSketchPieces); }
    // One from each rank.
    std::vector<std::uint32_t> some_messages() const {
        std::mt19937 random(20260001U);
        std::vector<std::uint32_t> words(kRanks * own_words());
        for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
        for (std::size_t r = 0; r < kRanks; ++r) {
            for (std::size_t b = 0; b < own().chunk.blocks(); ++b) {
                words[r * own_words() + scale_word(ONEBIT_GROUP_BLOCK, own().chunk, b)] =
                    std::bit_cast<std::uint32_t>(0.8F);
            }
        }
        return words;
    }
    std::vector<const std::uint32_t*> pointers() const {
        std::vector<const std::uint32_t*> all;
        for (std::size_t r = 0; r < kRanks; ++r) all.push_back(incoming_.data() + r * own_words());
        return all;
    }

    std::size_t elements_;
    std::vector<ChunkPlace> places_;
    DeviceArray<float> gradients_, sum_, parameters_, m_, v_, precondition_, anchor_, out_;
    DeviceArray<std::uint16_t> copies_;
    DeviceArray<float> corrected_, scales_; // of the worker
    DeviceArray<std::uint32_t> messages_;
    DeviceArray<float> served_, served_scales_; // of the server
    DeviceArray<std::uint32_t> served_message_, incoming_;
    DeviceArray<const std::uint32_t*> incoming_pointers_;
    DeviceArray<unsigned long long> first_;
    Model one_, several_, copied_;
    DeviceArray<double> numbers_;
    DeviceArray<float> sketches_, total_;
};

bool fits(std::size_t elements) {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return elements < free / Arena::kBytes;
}

// Ratios of times, which are printed, too.
nlohmann::ordered_json compare_steps(const nlohmann::ordered_json& rows, std::size_t elements) {
    nlohmann::ordered_json ratios;
    for (const char* const model : {"one tensor", "several tensors"}) {
        const std::string end = std::string(", ") + model;
        const double dense = rows.at("Adam" + end).at("microseconds");
        const double compressed = rows.at("1-bit Adam" + end).at("microseconds");
        const double ratio = compressed / dense;
        std::printf("# %zu elements, %s: 1-bit Adam's step takes %.3f of Adam's\n", elements, model, ratio);
        ratios[model] = ratio;
    }
    return ratios;
}

} // namespace
} // namespace onebit::bench

int main(int argc, char** argv) {
    using namespace onebit::bench;
    CudaOptions options{{std::size_t{1} << 24, std::size_t{1} << 26, std::size_t{1} << 28}};
    CLI::App app("Measures the optimizers' passes on a GPU beside a copy from device to device.",
                 "cuda_passes_benchmark");
    add_options(app, options);
    return run_benchmark(app, argc, argv, options, [&](nlohmann::ordered_json& report) {
        report["ranks"] = kRanks;
        report["tensor_sizes"] = kTensorSizes;
        report["sizes"] = nlohmann::ordered_json::array();
        print_cases_header();
        for (const std::size_t elements : options.elements) {
            if (!fits(elements)) {
                std::printf("# %zu elements: left out, for they don't fit into the GPU's memory\n", elements);
                continue;
            }
            Arena arena(elements);
            std::vector<Case> cases = arena.cases();
            nlohmann::ordered_json size = measure_cases(cases, elements, options.rounds);
            size["one_bit_over_dense"] = compare_steps(size.at("cases"), elements);
            report["sizes"].push_back(std::move(size));
            write_report(report, options.json);
        }
    });
}
