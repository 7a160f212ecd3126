// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast the sign codec's kernels are, on one core, and how close to memory's limit:
//
//     taskset -c 1 kernel_benchmark                     Google Benchmark, every kernel and instruction set
//     taskset -c 1 kernel_benchmark --ratio             a table of medians and their ratios
//     taskset -c 1 kernel_benchmark --benchmark_filter=encode --elements 4194304
//
// Each kernel runs as the codec runs it: block by block over arrays far larger than the caches, with the scales of its
// last run. Its rival is the memory floor of its access pattern (memory_floor.hpp) over arrays of the same size and
// kind (2 MiB-aligned, huge pages). Floor and kernel take turns in one process, so that the machine's other work
// affects both. of_floor = median time of the floor / median time of the kernel; 1 is the best possible value. With
// arrays that fit into a cache the ratios mean little: each pass finds there what the pass before left.

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.hpp"
#include "compress/grouped/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "compress/lowrank/kernels.hpp"
#include "compress/sign/kernels.hpp"
#include "core/aligned_buffer.hpp"
#include "core/kernel_tables.hpp"
#include "core/partition.hpp"
#include "memory_floor.hpp"
#include "numeric/kernels.hpp"
#include "numeric/scaled_bytes.hpp"
#include "samples.hpp"

namespace onebit::bench {

namespace {

// Ranks whose bits the server's kernel averages.
constexpr std::size_t kRanks = 4;

// The arrays of all kernels. A pass leaves them fit for the next pass.
struct Arena {
    explicit Arena(std::size_t elements)
        : count(ceil_divide(elements, kBlockElements) * kBlockElements),
          values(count),
          corrected(count),
          beside(count),
          output(count),
          bits(count / kWordElements),
          scales(count / kBlockElements) {
        std::mt19937 generator(20260000U);
        fill_with_gaussians(values.data(), count, generator);
        for (AlignedBuffer<std::uint32_t>& message : messages) {
            message = AlignedBuffer<std::uint32_t>(bits.size() + scales.size());
            for (std::size_t w = 0; w < bits.size(); ++w) message[w] = static_cast<std::uint32_t>(generator());
            for (std::size_t w = bits.size(); w < message.size(); ++w) message[w] = std::bit_cast<std::uint32_t>(0.8F);
        }
    }

    std::size_t count;
    AlignedBuffer<float> values;
    AlignedBuffer<float> corrected; // the kernels' error buffer
    AlignedBuffer<float> beside;    // where a tentative call would write the next one
    AlignedBuffer<float> output;    // decode's, and the floors' y
    AlignedBuffer<std::uint32_t> bits;
    AlignedBuffer<float> scales;
    std::uint8_t exponents[kBlockElements / kScaledGroup] = {}; // of a block's bytes
    std::array<AlignedBuffer<std::uint32_t>, kRanks> messages;  // the ranks' sign words, then their blocks' scales
};

struct Case {
    std::string name;
    Floor floor;
    double bytes_per_element; // read and written
    std::function<void(const SignKernels&)> pass;
};

// The scale from a block's sum, almost as the codec computes it: near enough for a benchmark.
float scale_of(float sum, onebit_scale_t scale) {
    const float mean = sum / static_cast<float>(kBlockElements);
    return scale == ONEBIT_SCALE_L2 ? std::sqrt(mean) : mean;
}

void encode_all(Arena& arena, const SignKernels& k, onebit_scale_t scale, Stores stores, float* corrected) {
    for (std::size_t b = 0; b < arena.scales.size(); ++b) {
        const std::size_t i = b * kBlockElements;
        const float sum = k.encode(arena.values.data() + i, arena.corrected.data() + i, arena.scales[b], corrected + i,
                                   stores, nullptr, kBlockElements, scale, arena.bits.data() + i / kWordElements);
        arena.scales[b] = scale_of(sum, scale);
    }
}

// One function per row of each kernels.def, by name: a row without one doesn't compile.

void add_encode(Arena& arena, std::vector<Case>& cases) {
    for (const onebit_scale_t scale : {ONEBIT_SCALE_L1, ONEBIT_SCALE_L2}) {
        const char* const suffix = scale == ONEBIT_SCALE_L1 ? "l1" : "l2";
        cases.push_back({std::string("encode/") + suffix, Floor::kAxpy, 12.125, [&arena, scale](const SignKernels& k) {
                             encode_all(arena, k, scale, Stores::kCached, arena.corrected.data());
                         }});
    }
    cases.push_back({"encode/l2/beside", Floor::kAxpy, 12.125, [&arena](const SignKernels& k) {
                         const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
                         encode_all(arena, k, ONEBIT_SCALE_L2, stores, arena.beside.data());
                         order_stores(stores);
                         std::swap(arena.corrected, arena.beside);
                     }});
}

void add_blend_encode(Arena& arena, std::vector<Case>& cases) {
    cases.push_back({"blend_encode", Floor::kAxpy, 12.25, [&arena](const SignKernels& k) {
                         for (std::size_t b = 0; b < arena.scales.size(); ++b) {
                             const std::size_t i = b * kBlockElements;
                             std::uint32_t* const bits = arena.bits.data() + i / kWordElements;
                             const float sum =
                                 k.blend_encode(arena.values.data() + i, {0.9F, 0.1F, 1}, bits, arena.scales[b],
                                                arena.corrected.data() + i, arena.scales[b], arena.corrected.data() + i,
                                                Stores::kCached, nullptr, kBlockElements, ONEBIT_SCALE_L2, bits);
                             arena.scales[b] = scale_of(sum, ONEBIT_SCALE_L2);
                         }
                     }});
}

// Of two ranks' values. The other rank's values come from a slot that stays in the caches.
void add_mean_encode(Arena& arena, std::vector<Case>& cases) {
    cases.push_back({"mean_encode/parts:2", Floor::kAxpy, 12.125, [&arena](const SignKernels& k) {
                         for (std::size_t b = 0; b < arena.scales.size(); ++b) {
                             const std::size_t i = b * kBlockElements;
                             const float* const parts[] = {arena.values.data() + i, arena.output.data()};
                             const float sum =
                                 k.mean_encode(parts, std::size(parts), 0.5F, arena.corrected.data() + i,
                                               arena.scales[b], arena.corrected.data() + i, Stores::kCached, nullptr,
                                               kBlockElements, ONEBIT_SCALE_L2, arena.bits.data() + i / kWordElements);
                             arena.scales[b] = scale_of(sum, ONEBIT_SCALE_L2);
                         }
                     }});
}

void add_average_encode(Arena& arena, std::vector<Case>& cases) {
    const double bytes = 8 + static_cast<double>(kRanks + 1) / 8;
    cases.push_back({"average_encode/ranks:4", Floor::kScale, bytes, [&arena](const SignKernels& k) {
                         std::array<const std::uint32_t*, kRanks> messages{};
                         for (std::size_t r = 0; r < kRanks; ++r) messages[r] = arena.messages[r].data();
                         for (std::size_t b = 0; b < arena.scales.size(); ++b) {
                             const std::size_t i = b * kBlockElements;
                             const float sum = k.average_encode(
                                 messages.data(), kRanks, i / kWordElements, arena.bits.size() + b,
                                 1.0F / static_cast<float>(kRanks), arena.corrected.data() + i, arena.scales[b],
                                 arena.corrected.data() + i, Stores::kCached, nullptr, kBlockElements, ONEBIT_SCALE_L1,
                                 arena.bits.data() + i / kWordElements);
                             arena.scales[b] = scale_of(sum, ONEBIT_SCALE_L1);
                         }
                     }});
}

void add_average(Arena& arena, std::vector<Case>& cases) {
    const double bytes = 4 + static_cast<double>(kRanks) / 8;
    cases.push_back({"average/ranks:4", Floor::kFill, bytes, [&arena](const SignKernels& k) {
                         std::array<const std::uint32_t*, kRanks> messages{};
                         for (std::size_t r = 0; r < kRanks; ++r) messages[r] = arena.messages[r].data();
                         const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
                         for (std::size_t b = 0; b < arena.scales.size(); ++b) {
                             const std::size_t i = b * kBlockElements;
                             k.average(messages.data(), kRanks, i / kWordElements, arena.bits.size() + b,
                                       1.0F / static_cast<float>(kRanks), kBlockElements, stores,
                                       arena.output.data() + i);
                         }
                         order_stores(stores);
                     }});
}

void add_decode(Arena& arena, std::vector<Case>& cases) {
    cases.push_back({"decode", Floor::kFill, 4.125, [&arena](const SignKernels& k) {
                         const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
                         for (std::size_t i = 0; i < arena.count; i += kBlockElements) {
                             k.decode(arena.messages[0].data() + i / kWordElements, 0.5F, nullptr, kBlockElements,
                                      stores, arena.output.data() + i);
                         }
                         order_stores(stores);
                     }});
}

void add_all_within(Arena& arena, std::vector<Case>& cases) {
    cases.push_back({"all_within", Floor::kRead, 4, [&arena](const SignKernels& sign) {
                         const NumericKernels& k = numeric_kernels(sign.name);
                         bool finite = true;
                         constexpr std::size_t kSlice = SliceCursor::kSliceBlocks * kBlockElements; // as the library
                         for (std::size_t i = 0; i < arena.count; i += kSlice) {
                             const std::size_t length = std::min(kSlice, arena.count - i);
                             finite = k.all_within(arena.values.data() + i, length, FLT_MAX) && finite;
                         }
                         benchmark::DoNotOptimize(finite);
                     }});
}

void add_copy(Arena& arena, std::vector<Case>& cases) {
    cases.push_back(
        {"copy", Floor::kScale, 8, [&arena](const SignKernels& sign) {
             const NumericKernels& k = numeric_kernels(sign.name);
             const Stores stores = stores_for_other_cores(); // as the library
             bool finite = true;
             for (std::size_t i = 0; i < arena.count; i += kBlockElements) {
                 finite = k.copy(arena.values.data() + i, kBlockElements, stores, arena.output.data() + i) && finite;
             }
             order_stores(stores);
             benchmark::DoNotOptimize(finite);
         }});
}

// Of two ranks' values. The other rank's come from a slot that stays in the caches. To such a slot, and to the output.
void add_mean(Arena& arena, std::vector<Case>& cases) {
    cases.push_back({"mean/parts:2", Floor::kScale, 8, [&arena](const SignKernels& sign) {
                         const NumericKernels& k = numeric_kernels(sign.name);
                         const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
                         for (std::size_t i = 0; i < arena.count; i += kBlockElements) {
                             const float* const parts[] = {arena.values.data() + i, arena.corrected.data()};
                             k.mean(parts, std::size(parts), 0, 0.5F, kBlockElements, Stores::kCached,
                                    arena.corrected.data(), stores, arena.output.data() + i);
                         }
                         order_stores(stores);
                     }});
}

// ---- 16-bit formats ----

std::uint16_t* halves(AlignedBuffer<float>& floats) {
    return reinterpret_cast<std::uint16_t*>(floats.data());
}
std::int8_t* bytes(AlignedBuffer<float>& floats) {
    return reinterpret_cast<std::int8_t*>(floats.data());
}

// A kernel that goes over `values` block by block: work(kernels, the block's first element).
template <class Work>
void add_by_block(Arena& arena, std::vector<Case>& cases, const char* name, Floor floor, double bytes,
                  const Work& work) {
    cases.push_back({name, floor, bytes, [&arena, work](const SignKernels& sign) {
                         const NumericKernels& k = numeric_kernels(sign.name);
                         for (std::size_t i = 0; i < arena.count; i += kBlockElements) work(k, i);
                         order_stores(Stores::kPastCaches);
                     }});
}

template <class Kernel>
void add_widen(Arena& arena, std::vector<Case>& cases, const char* name, Kernel NumericKernels::*kernel) {
    add_by_block(arena, cases, name, Floor::kScale, 6, [&arena, kernel](const NumericKernels& k, std::size_t i) {
        (k.*kernel)(halves(arena.values) + i, kBlockElements, arena.output.data() + i);
    });
}
void add_widen_float16(Arena& arena, std::vector<Case>& cases) {
    add_widen(arena, cases, "widen_float16", &NumericKernels::widen_float16);
}
void add_widen_bfloat16(Arena& arena, std::vector<Case>& cases) {
    add_widen(arena, cases, "widen_bfloat16", &NumericKernels::widen_bfloat16);
}

template <class Kernel>
void add_narrow(Arena& arena, std::vector<Case>& cases, const char* name, Kernel NumericKernels::*kernel) {
    add_by_block(arena, cases, name, Floor::kScale, 6, [&arena, kernel](const NumericKernels& k, std::size_t i) {
        (k.*kernel)(arena.values.data() + i, kBlockElements, halves(arena.output) + i);
    });
}
void add_narrow_float16(Arena& arena, std::vector<Case>& cases) {
    add_narrow(arena, cases, "narrow_float16", &NumericKernels::narrow_float16);
}
void add_narrow_bfloat16(Arena& arena, std::vector<Case>& cases) {
    add_narrow(arena, cases, "narrow_bfloat16", &NumericKernels::narrow_bfloat16);
}

// Exponents are few, and stay in the cache.
void add_narrow_to_bytes(Arena& arena, std::vector<Case>& cases) {
    add_by_block(arena, cases, "narrow_to_bytes", Floor::kScale, 5, [&arena](const NumericKernels& k, std::size_t i) {
        k.narrow_to_bytes(arena.values.data() + i, kBlockElements, bytes(arena.output) + i, arena.exponents);
    });
}
void add_widen_bytes(Arena& arena, std::vector<Case>& cases) {
    add_by_block(arena, cases, "widen_bytes", Floor::kScale, 5, [&arena](const NumericKernels& k, std::size_t i) {
        k.widen_bytes(bytes(arena.values) + i, arena.exponents, kBlockElements, arena.output.data() + i);
    });
}

// The output stays in the cache, as in the library, which rounds it next.
template <class Kernel>
void add_mean_of_halves(Arena& arena, std::vector<Case>& cases, const char* name, Kernel NumericKernels::*kernel) {
    add_by_block(arena, cases, name, Floor::kRead, 2, [&arena, kernel](const NumericKernels& k, std::size_t i) {
        const std::uint16_t* const parts[] = {halves(arena.values) + i, halves(arena.corrected)};
        (k.*kernel)(parts, std::size(parts), 0, 0.5F, kBlockElements, arena.output.data());
    });
}
void add_mean_float16(Arena& arena, std::vector<Case>& cases) {
    add_mean_of_halves(arena, cases, "mean_float16/parts:2", &NumericKernels::mean_float16);
}
void add_mean_bfloat16(Arena& arena, std::vector<Case>& cases) {
    add_mean_of_halves(arena, cases, "mean_bfloat16/parts:2", &NumericKernels::mean_bfloat16);
}

template <class Kernel>
void add_mean_in_halves(Arena& arena, std::vector<Case>& cases, const char* name, Kernel NumericKernels::*kernel) {
    add_by_block(arena, cases, name, Floor::kScale, 4, [&arena, kernel](const NumericKernels& k, std::size_t i) {
        const Stores stores = stores_for(arena.count * sizeof(std::uint16_t)); // as the library
        const std::uint16_t* const parts[] = {halves(arena.values) + i, halves(arena.corrected)};
        (k.*kernel)(parts, std::size(parts), 0, 0.5F, kBlockElements, Stores::kCached, halves(arena.corrected), stores,
                    halves(arena.output) + i);
    });
}
void add_mean_in_float16(Arena& arena, std::vector<Case>& cases) {
    add_mean_in_halves(arena, cases, "mean_in_float16/parts:2", &NumericKernels::mean_in_float16);
}
void add_mean_in_bfloat16(Arena& arena, std::vector<Case>& cases) {
    add_mean_in_halves(arena, cases, "mean_in_bfloat16/parts:2", &NumericKernels::mean_in_bfloat16);
}

constexpr std::uint16_t kAnyHalf = 0x7fff;

void add_halves_within(Arena& arena, std::vector<Case>& cases) {
    add_by_block(arena, cases, "halves_within", Floor::kRead, 2, [&arena](const NumericKernels& k, std::size_t i) {
        if (!k.halves_within(halves(arena.values) + i, kBlockElements, kAnyHalf)) std::abort();
    });
}

void add_copy_halves(Arena& arena, std::vector<Case>& cases) {
    add_by_block(arena, cases, "copy_halves", Floor::kScale, 4, [&arena](const NumericKernels& k, std::size_t i) {
        const Stores stores = stores_for_other_cores(); // as the library
        if (!k.copy_halves(halves(arena.values) + i, kBlockElements, kAnyHalf, stores, halves(arena.output) + i)) {
            std::abort();
        }
    });
}

// A grouped code, by its place in the tables.
void add_grouped(Arena& arena, std::size_t code, const std::string& name, std::vector<Case>& cases) {
    const unsigned bits = reference_grouped_kernels().codes[code].bits;
    const double message = bits / 8.0 + 4.0 / kGroupElements; // bytes for an element
    const auto message_of =
        std::make_shared<AlignedBuffer<std::uint32_t>>(scale_words(arena.count) + code_words(bits, arena.count));
    const auto kernels_of = [code](const SignKernels& sign) -> const GroupedKernels& {
        return table_named(available_grouped_kernels(), sign.name)->codes[code];
    };
    // Calls body(the block's groups, its first element) for each block.
    const auto for_each_block = [&arena, bits, message_of](const auto& body) {
        std::uint32_t* next = message_of->data();
        for (std::size_t i = 0; i < arena.count; i += kBlockElements) {
            body(GroupsToWrite{next, next + scale_words(kBlockElements)}, i);
            next += scale_words(kBlockElements) + code_words(bits, kBlockElements);
        }
    };
    if (reference_grouped_kernels().codes[code].encode_stochastic != nullptr) {
        cases.push_back(
            {"stochastic/" + name, Floor::kAxpy, 12 + message, [&arena, kernels_of, for_each_block](const auto& k) {
                 for_each_block([&](const GroupsToWrite& to, std::size_t i) {
                     kernels_of(k).encode_stochastic({static_cast<std::uint32_t>(i), 0}, arena.values.data() + i,
                                                     arena.corrected.data() + i, arena.corrected.data() + i,
                                                     Stores::kCached, nullptr, kBlockElements, to);
                 });
             }});
    }
    cases.push_back({"encode/" + name, Floor::kAxpy, 12 + message, [&arena, kernels_of, for_each_block](const auto& k) {
                         for_each_block([&](const GroupsToWrite& to, std::size_t i) {
                             kernels_of(k).encode(arena.values.data() + i, arena.corrected.data() + i,
                                                  arena.corrected.data() + i, Stores::kCached, nullptr, kBlockElements,
                                                  to);
                         });
                     }});
    cases.push_back({"decode/" + name, Floor::kFill, 4 + message, [&arena, kernels_of, for_each_block](const auto& k) {
                         const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
                         for_each_block([&](const GroupsToWrite& from, std::size_t i) {
                             kernels_of(k).decode({from.scales, from.codes}, nullptr, kBlockElements, stores,
                                                  arena.output.data() + i);
                         });
                         order_stores(stores);
                     }});
    cases.push_back({"add/" + name, Floor::kRead, message, [&arena, kernels_of, for_each_block](const auto& k) {
                         for_each_block([&](const GroupsToWrite& from, std::size_t) { // to sums that stay in the cache
                             kernels_of(k).add({from.scales, from.codes}, 0.25F, kBlockElements, arena.output.data());
                         });
                     }});
}

// A code of few elements through its codec, because the kernels are only a part of it.
void add_sparse(Arena& arena, onebit_codec_t which, std::vector<Case>& cases) {
    const auto codec_of = [which](const SignKernels& k) {
        CodecConfig config;
        config.codec = which;
        config.kernels = k.name;
        std::unique_ptr<Codec> codec;
        if (!make_codec(config, &codec).ok()) std::abort();
        return codec;
    };
    const std::unique_ptr<Codec> any = codec_of(reference_sign_kernels());
    const Slice all = Slice::whole({0, 0, arena.count});
    const std::shared_ptr<Feedback> error = any->make_feedback(only(all.chunk));
    const auto message = std::make_shared<AlignedBuffer<std::uint32_t>>(any->message_words(all.chunk));
    const double bytes = static_cast<double>(message->bytes()) / static_cast<double>(arena.count);
    const std::string name = name_of(which);
    cases.push_back(
        {"encode/" + name, Floor::kAxpy, 12 + bytes, [&arena, codec_of, all, error, message](const SignKernels& k) {
             codec_of(k)->encode(ArraySource(arena.values.data()), *error, *error,
                                 only(SliceToEncode{all, nullptr, message->data()}));
         }});
    cases.push_back(
        {"decode/" + name, Floor::kFill, 4 + bytes, [&arena, codec_of, all, message](const SignKernels& k) {
             const Stores stores = stores_for(arena.count * sizeof(float)); // as the library
             codec_of(k)->decode(only(EncodedSlice{all, message->data()}), {}, ArraySink(arena.output.data(), stores));
         }});
}

// The three passes of POWERSGD, over rows of 4096 elements, in its default number of directions.
void add_low_rank(Arena& arena, std::vector<Case>& cases) {
    constexpr std::size_t kColumns = kBlockElements;
    constexpr std::size_t kRank = 4;
    using Factors = std::shared_ptr<AlignedBuffer<float>>;
    const auto drawn = [](std::size_t count) {
        std::mt19937 generator(20260001U);
        const auto factors = std::make_shared<AlignedBuffer<float>>(count);
        fill_with_gaussians(factors->data(), count, generator);
        return factors;
    };
    const Factors left = drawn(arena.count / kColumns * kRank);
    const Factors right = drawn(kColumns * kRank);
    // Calls body(rows, number of the first one, number of their first column).
    const auto for_each_window = [&arena](const auto& body) {
        for (std::size_t row = 0; (row + kRowsAtOnce) * kColumns <= arena.count; row += kRowsAtOnce) {
            for (std::size_t column = 0; column < kColumns; column += kStripColumns) {
                RowPart rows[kRowsAtOnce];
                for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                    const std::size_t first = (row + r) * kColumns + column;
                    rows[r] = {arena.values.data() + first, arena.corrected.data() + first};
                }
                body(rows, row, column);
            }
        }
    };
    cases.push_back({"project/rank 4", Floor::kRead, 8, [=](const SignKernels& k) {
                         float sums[kRowsAtOnce * kRank] = {};
                         for_each_window([&](const RowPart* rows, std::size_t, std::size_t column) {
                             low_rank_kernels(k.name).project(rows, kRowsAtOnce, kStripColumns,
                                                              right->data() + column * kRank, kRank, sums);
                         });
                         benchmark::DoNotOptimize(sums);
                     }});
    const Factors sums = drawn(kColumns * kRank);
    cases.push_back({"add_rows/rank 4", Floor::kRead, 8, [=](const SignKernels& k) {
                         sums->fill_zero();
                         for_each_window([&](const RowPart* rows, std::size_t row, std::size_t column) {
                             low_rank_kernels(k.name).add_rows(rows, kRowsAtOnce, kStripColumns,
                                                               left->data() + row * kRank, kRank,
                                                               sums->data() + column * kRank);
                         });
                         benchmark::DoNotOptimize(sums->data());
                     }});
    cases.push_back({"expand/rank 4", Floor::kAxpy, 16, [=, &arena](const SignKernels& k) {
                         for_each_window([&](const RowPart* rows, std::size_t row, std::size_t column) {
                             ExpandedRow to[kRowsAtOnce];
                             for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                                 const std::size_t first = (row + r) * kColumns + column;
                                 to[r] = {arena.output.data() + first, arena.corrected.data() + first};
                             }
                             const float* const factors = right->data() + column * kRank;
                             low_rank_kernels(k.name).expand(rows, kRowsAtOnce, kStripColumns,
                                                             left->data() + row * kRank, kRank, factors, factors, 1,
                                                             to);
                         });
                     }});
}

std::vector<Case> make_cases(Arena& arena) {
    std::vector<Case> cases;
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) add_##kernel(arena, cases);
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) add_##kernel(arena, cases);
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    std::size_t code = 0;
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) add_grouped(arena, code++, #constant, cases);
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
    for (const onebit_codec_t which : {ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK}) add_sparse(arena, which, cases);
    add_low_rank(arena, cases);
    return cases;
}

template <class Work>
double seconds(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The times of one floor's candidates.
class FloorTimes {
  public:
    FloorTimes(Floor floor, Arena& arena) : candidates_(floor_candidates(floor)), arena_(arena) {
        times_.resize(candidates_.size());
    }

    // Times every candidate once.
    void measure() {
        for (std::size_t c = 0; c < candidates_.size(); ++c) {
            times_[c].push_back(seconds([&] {
                float result = candidates_[c].run(arena_.values.data(), arena_.output.data(), arena_.count);
                benchmark::DoNotOptimize(result);
            }));
        }
    }

    std::pair<const char*, double> best() const {
        std::pair<const char*, double> best{candidates_[0].name, median(times_[0])};
        for (std::size_t c = 1; c < candidates_.size(); ++c) {
            if (const double time = median(times_[c]); time < best.second) best = {candidates_[c].name, time};
        }
        return best;
    }

  private:
    std::span<const FloorCandidate> candidates_;
    Arena& arena_;
    std::vector<std::vector<double>> times_;
};

void run_benchmark(benchmark::State& state, const Case& kernel, const SignKernels& table, Arena& arena) {
    FloorTimes floor(kernel.floor, arena);
    std::vector<double> times;
    kernel.pass(table); // the error buffer's first use
    for ([[maybe_unused]] auto _ : state) {
        floor.measure();
        times.push_back(seconds([&] { kernel.pass(table); }));
        state.SetIterationTime(times.back());
    }
    const double typical = median(times);
    state.counters["GB/s"] = kernel.bytes_per_element * static_cast<double>(arena.count) / typical / 1e9;
    state.counters["of_floor"] = floor.best().second / typical;
}

void run_google_benchmark(int argc, char** argv, Arena& arena, const std::vector<Case>& cases) {
    for (const Case& kernel : cases) {
        for (const SignKernels* table : available_sign_kernels()) {
            benchmark::RegisterBenchmark((kernel.name + "/" + table->name).c_str(), run_benchmark, kernel,
                                         std::cref(*table), std::ref(arena))
                ->UseManualTime()
                ->Unit(benchmark::kMillisecond);
        }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) std::exit(EXIT_FAILURE);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}

void print_row(const std::string& kernel, const char* what, double time, double bytes, double floor) {
    std::printf("%-29s%-18s%10.2f%10.2f%10.3f\n", kernel.c_str(), what, time * 1e3, bytes / time / 1e9, floor / time);
}

// Every kernel and its floor, `rounds` times in turn. All instruction sets except the reference, which is no rival.
void print_ratios(const std::vector<Case>& cases, Arena& arena, std::size_t rounds) {
    std::printf("# %zu float32 elements, %zu rounds in turn, one core; medians; of_floor = floor's ms / kernel's ms\n",
                arena.count, rounds);
    std::printf("%-29s%-18s%10s%10s%10s\n", "# Kernel", "Target", "ms", "GB/s", "of_floor");
    const std::span<const SignKernels* const> available = available_sign_kernels();
    const auto tables = available.first(std::max<std::size_t>(available.size() - 1, 1));
    for (const Case& kernel : cases) {
        FloorTimes floor(kernel.floor, arena);
        std::vector<std::vector<double>> times(tables.size());
        for (std::size_t round = 0; round <= rounds; ++round) {
            if (round == 0) { // warms up, and is not counted
                kernel.pass(*tables[0]);
                continue;
            }
            floor.measure();
            for (std::size_t t = 0; t < tables.size(); ++t) {
                times[t].push_back(seconds([&] { kernel.pass(*tables[t]); }));
            }
        }
        const auto [name, floor_time] = floor.best();
        const double elements = static_cast<double>(arena.count);
        print_row(kernel.name, name, floor_time, std::floor(kernel.bytes_per_element) * elements, floor_time);
        for (std::size_t t = 0; t < tables.size(); ++t) {
            print_row(kernel.name, tables[t]->name, median(times[t]), kernel.bytes_per_element * elements, floor_time);
        }
        std::fflush(stdout);
    }
}

} // namespace

} // namespace onebit::bench

int main(int argc, char** argv) {
    std::size_t elements = std::size_t{1} << 26;
    std::size_t rounds = 21;
    bool ratio = false;
    std::string only;
    CLI::App app(
        "The sign codec's kernels against the memory floor, on one core. Also takes Google Benchmark's options.",
        "kernel_benchmark");
    app.allow_extras();
    app.add_option("--elements", elements, "Float32 elements, rounded up to whole blocks (default 2^26)")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 36));
    app.add_flag("--ratio", ratio, "Print a table of medians and of_floor instead of running Google Benchmark");
    app.add_option("--rounds", rounds, "With --ratio: measurements of each (default 21)")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1000000}));
    app.add_option("--kernel", only, "With --ratio: only kernels whose name contains this");
    CLI11_PARSE(app, argc, argv);

    onebit::bench::Arena arena(elements);
    std::vector<onebit::bench::Case> cases = onebit::bench::make_cases(arena);
    if (ratio) {
        std::erase_if(cases, [&](const auto& kernel) { return kernel.name.find(only) == std::string::npos; });
        onebit::bench::print_ratios(cases, arena, rounds);
        return 0;
    }
    std::vector<std::string> rest = app.remaining();
    std::vector<char*> arguments = {argv[0]};
    for (std::string& argument : rest) arguments.push_back(argument.data());
    onebit::bench::run_google_benchmark(static_cast<int>(arguments.size()), arguments.data(), arena, cases);
    return 0;
}
