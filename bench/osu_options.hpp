// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line of the OSU-style benchmarks: the options of OMB's osu_allreduce that make sense here, and onebit's
// own.
#pragma once

#include <onebit/onebit.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "codec_names.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// Indexed by onebit_algorithm_t, as on the command line.
inline constexpr std::array kAlgorithmNames = {"auto",      "dense", "flat", "pipelined",
                                               "two_level", "bruck", "ring", "levels"};
// The algorithms that need no more than their name.
inline const std::vector<std::string> kNamedAlgorithms(kAlgorithmNames.begin(), kAlgorithmNames.end() - 1);

// By onebit_optimizer_kind_t.
inline constexpr std::array kOptimizerNames = {"adam", "onebit_adam", "lamb", "onebit_lamb", "zero_one_adam"};

// Indexed by onebit_datatype_t; "" for types without a benchmark.
inline constexpr std::array kDatatypeNames = {"float32", "", "bfloat16", "int8"};

// By onebit_check_t.
inline constexpr std::array kCheckNames = {"full", "none", "full_low_memory"};

// A level of groups of ranks that follow each other.
struct OsuLevel {
    int ranks = 1; // of a group of the level before that are one here
    std::optional<onebit_codec_t> codec;
};

struct OsuOptions {
    std::size_t min_bytes = 4;
    std::size_t max_bytes = std::size_t{1} << 20;
    std::size_t mem_limit = std::size_t{512} << 20; // of one buffer, as in OMB: it caps max_bytes
    std::optional<std::size_t> iterations;          // if given, for every size
    std::optional<std::size_t> warmup;
    bool full = false;
    bool json = false;
    std::size_t tests = 100; // of a call in flight, while something is computed
    bool validation = false;
    bool bfloat16 = false;                       // with full: also a dense sum of bfloat16
    bool cuda = false;                           // values lie in a GPU's memory
    bool tcp = false;                            // onebit's ranks talk without MPI
    bool shared = false;                         // values lie in memory from onebit_mem_alloc
    onebit_datatype_t datatype = ONEBIT_FLOAT32; // of onebit's buffers; MPI's dense call has float32
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    std::uint32_t kept = 0; // of codecs topk and randomk; 0: the library's default
    std::uint32_t value_bits = 0;
    std::uint32_t matrix_rank = 0; // of powersgd; likewise
    onebit_scale_t scale = ONEBIT_SCALE_L2;
    onebit_group_t group = ONEBIT_GROUP_BLOCK;
    onebit_datatype_t error_type = ONEBIT_FLOAT32;
    onebit_rounding_t rounding = ONEBIT_ROUNDING_NEAREST;
    onebit_optimizer_kind_t optimizer = ONEBIT_OPTIMIZER_ONEBIT_ADAM;
    onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO;
    onebit_check_t check = ONEBIT_CHECK_FULL;
    std::vector<OsuLevel> levels;
    std::uint32_t threads = 0; // 0: the library's default
};

// Bytes of an element that a size counts.
inline std::size_t element_bytes(const OsuOptions& options) {
    return options.datatype == ONEBIT_FLOAT32 ? sizeof(float) : sizeof(std::uint16_t);
}

// OMB's counts: more for messages up to 8192 bytes than above, unless the user gave a number.
std::size_t iterations_for(const OsuOptions& options, std::size_t bytes);
std::size_t warmup_for(const OsuOptions& options, std::size_t bytes);

// Reads a number of bytes: digits, then nothing or one of K, M and G (powers of 1024, either case).
std::optional<std::size_t> parse_bytes(const std::string& text);

// Fills `options` from the command line. Returns the exit status the program must end with at once (0 after --help and
// --version), or nothing if it should go on. Every rank gets the same arguments; only the rank that passes streams
// prints.
std::optional<int> parse_options(int argc, const char* const* argv, const OsuProgram& program, OsuOptions& options,
                                 std::ostream& out, std::ostream& err);

// Sets those options that a config has.
template <class Config> // onebit_allreduce_config_t, onebit_shard_config_t
void apply(const OsuOptions& options, Config* config) {
    config->threads = options.threads;
    config->datatype = options.datatype;
    config->algorithm = options.algorithm;
    config->codec = options.codec;
    config->kept = options.kept;
    config->value_bits = options.value_bits;
    config->error_type = options.error_type;
    config->rounding = options.rounding;
    config->scale = options.scale;
    config->group = options.group;
    config->check = options.check;
}

} // namespace onebit::bench
