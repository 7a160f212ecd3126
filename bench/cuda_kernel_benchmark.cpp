// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast the codecs' kernels are on a GPU, and how close to its memory's limit:
//
//     cuda_kernel_benchmark --json kernels.json
//
// The rival is a copy from device to device, in turn with the kernels: of_copy = a kernel's bytes per second over the
// copy's, which reads and writes 4 bytes per element; fill only writes them (cudaMemsetAsync), as decode nearly does.
// Times are medians, between events around each launch. The arrays should be several times as large as the L2 cache;
// with smaller arrays the ratios mean little. Without a GPU: one line, and exit status 77.

#include <vector>

#include "compress/grouped/codes.hpp"
#include "compress/grouped/cuda/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "compress/sign/arithmetic.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "core/partition.hpp"
#include "cuda_cases.hpp"

namespace onebit::bench {
namespace {

constexpr std::size_t kRanks = 8; // the server's kernel averages their messages

// One chunk, and all that the kernels read and write of it.
class Arena {
  public:
    explicit Arena(std::size_t elements)
        : chunk_{0, 0, elements},
          words_(sign_word(ONEBIT_GROUP_BLOCK, chunk_, chunk_.blocks())),
          values_(gaussians(elements)),
          corrected_(elements),
          output_(elements),
          scales_(chunk_.blocks()),
          sums_(chunk_.blocks()),
          message_(words_),
          incoming_(kRanks * words_),
          incoming_pointers_(pointers()),
          longest_message_(grouped_word(Bfloat16::kBits, chunk_, chunk_.blocks())),
          first_(1) {}

    std::vector<Case> cases() {
        constexpr double kScale = 4.0 / kBlockElements; // bytes of a block's scale, per element
        const cuda::Encoding to = {Slice::whole(chunk_), ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, error(), message_.data()};
        std::vector<Case> cases;
        cases.push_back(copy_case(values_.data(), output_.data(), chunk_.count));
        cases.push_back({"encode", 12 + 0.125 + 3 * kScale, [this, to] {
                             check(cuda::encode(cuda::Rows<cuda::EncodeArguments>({to, values_.data()}), nullptr));
                         }});
        cases.push_back({"encode, 16 rows", 12 + 0.125 + 3 * kScale, [this, to] { // as of 16 chunks, or pieces
                             check(cuda::encode(rows_of(to), nullptr));
                         }});
        cases.push_back(
            {"average_encode", 8 + 0.125 * (kRanks + 1) + (kRanks + 3) * kScale, [this, to] {
                 const cuda::AverageEncodeArguments arguments = {to, incoming_pointers_.data(), kRanks, 1.0F / kRanks};
                 check(cuda::average_encode(arguments, nullptr));
             }});
        cases.push_back({"fill", 4, [this] { // decode hardly reads, either
                             check(cudaMemsetAsync(output_.data(), 0, chunk_.count * sizeof(float), nullptr),
                                   "cudaMemsetAsync");
                         }});
        cases.push_back({"decode", 4 + 0.125 + kScale, [this] {
                             const cuda::DecodeArguments arguments = {Slice::whole(chunk_), ONEBIT_GROUP_BLOCK,
                                                                      message_.data(), nullptr, output_.data()};
                             check(cuda::decode(cuda::Rows<cuda::DecodeArguments>(arguments), nullptr));
                         }});
        cases.push_back({"first_nonfinite", 4, [this] {
                             check(cuda::first_nonfinite({values_.data(), chunk_.count, first_.data()}, nullptr));
                         }});
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) add_grouped(constant, #constant, scalar::kBits, &cases);
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
        return cases;
    }

  private:
    void add_grouped(onebit_codec_t codec, const std::string& name, unsigned bits, std::vector<Case>* cases) {
        const double message = bits / 8.0 + 4.0 / kGroupElements; // bytes per element
        cases->push_back({"encode/" + name, 12 + message, [this, codec] {
                              const cuda::GroupedEncoding to = {Slice::whole(chunk_), codec,   corrected_.data(),
                                                                corrected_.data(),    nullptr, longest_message_.data()};
                              const cuda::GroupedEncodeArguments arguments = {to, values_.data()};
                              check(cuda::encode(cuda::Rows<cuda::GroupedEncodeArguments>(arguments), nullptr));
                          }});
        cases->push_back({"decode/" + name, 4 + message, [this, codec] {
                              const cuda::GroupedDecodeArguments arguments = {
                                  Slice::whole(chunk_), codec, longest_message_.data(), nullptr, output_.data()};
                              check(cuda::decode(cuda::Rows<cuda::GroupedDecodeArguments>(arguments), nullptr));
                          }});
    }
    cuda::Rows<cuda::EncodeArguments> rows_of(cuda::Encoding to) const {
        constexpr std::size_t kRows = 16;
        cuda::Rows<cuda::EncodeArguments> rows;
        for (std::size_t row = 0; row < kRows; ++row) {
            to.slice.first_block = chunk_.blocks() * row / kRows;
            to.slice.end_block = chunk_.blocks() * (row + 1) / kRows;
            rows.add({to, values_.data()});
        }
        return rows;
    }
    cuda::ErrorBuffers error() const {
        return {corrected_.data(), scales_.data(), corrected_.data(), scales_.data(), sums_.data(), nullptr, nullptr};
    }
    std::vector<const std::uint32_t*> pointers() const {
        std::vector<const std::uint32_t*> all;
        for (std::size_t r = 0; r < kRanks; ++r) all.push_back(incoming_.data() + r * words_);
        return all;
    }

    Chunk chunk_;
    std::size_t words_;
    DeviceArray<float> values_;
    DeviceArray<float> corrected_;
    DeviceArray<float> output_;
    DeviceArray<float> scales_;
    DeviceArray<double> sums_;
    DeviceArray<std::uint32_t> message_;
    DeviceArray<std::uint32_t> incoming_;
    DeviceArray<const std::uint32_t*> incoming_pointers_;
    DeviceArray<std::uint32_t> longest_message_; // of grouped codes: has room for each code's
    DeviceArray<unsigned long long> first_;
};

} // namespace
} // namespace onebit::bench

int main(int argc, char** argv) {
    using namespace onebit::bench;
    CudaOptions options{{std::size_t{1} << 20, std::size_t{1} << 24, std::size_t{1} << 26, std::size_t{1} << 28}};
    CLI::App app("Measures the codecs' CUDA kernels beside a copy from device to device.", "cuda_kernel_benchmark");
    add_options(app, options);
    return run_benchmark(app, argc, argv, options, [&](nlohmann::ordered_json& report) {
        report["ranks"] = kRanks;
        print_cases_header();
        for (const std::size_t elements : options.elements) {
            Arena arena(elements);
            std::vector<Case> cases = arena.cases();
            report["sizes"].push_back(measure_cases(cases, elements, options.rounds));
            write_report(report, options.json);
        }
    });
}
