// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Which codecs there are, and for which memory.

#include <algorithm>
#include <string>

#include "compress/codec.hpp"
#include "compress/grouped/codes.hpp"
#include "compress/grouped/grouped_codec.hpp"
#include "compress/grouped/layout.hpp"
#include "compress/sign/sign_codec.hpp"
#include "compress/sparse/randomk.hpp"
#include "compress/sparse/topk.hpp"
#include "core/config.hpp"

namespace onebit {
namespace {

/// Which members of a config the codec uses as settings.
enum class Settings {
    kNone,
    kScales,   ///< config.scale and config.group
    kKept,     ///< config.kept and config.value_bits
    kRounding, ///< config.rounding
};

/// One implementation of a codec.
struct Row {
    onebit_codec_t codec;
    onebit_memory_t memory;
    const char* name; ///< of the codec's constant
    double bits;      ///< of an element, its share of a scale included
    double error;     ///< of one call (error_of_call)
    Settings settings;
    Status (*make)(const CodecConfig&, std::unique_ptr<Codec>*);
};

constexpr double kSignError = 0.93;
constexpr double kSignBits = 1.0 + 32.0 / kBlockElements;
template <typename Code>
constexpr double kGroupedBits = Code::kBits + 32.0 / kGroupElements;
template <typename Code>
constexpr Settings kGroupedSettings = kIsInteger<Code> ? Settings::kRounding : Settings::kNone;
constexpr double kTopkBits = topk_layout({}).bits_per_element();
constexpr double kRandomkBits = randomk_layout({}).bits_per_element();

constexpr Row kRegistry[] = {
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_SIGN", kSignBits, kSignError, Settings::kScales,
     make_sign_codec},
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_CUDA, "ONEBIT_CODEC_SIGN", kSignBits, kSignError, Settings::kScales,
     make_cuda_sign_codec},
#define ONEBIT_GROUPED_CODE(constant, scalar, vector)                                       \
    {constant,           ONEBIT_MEMORY_HOST,       #constant,         kGroupedBits<scalar>, \
     scalar::kCallError, kGroupedSettings<scalar>, make_grouped_codec},                     \
        {constant,                                                                          \
         ONEBIT_MEMORY_CUDA,                                                                \
         #constant,                                                                         \
         kGroupedBits<scalar>,                                                              \
         scalar::kCallError,                                                                \
         kGroupedSettings<scalar>,                                                          \
         make_cuda_grouped_codec},
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
    {ONEBIT_CODEC_TOPK, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_TOPK", kTopkBits, 0.96, Settings::kKept, make_topk_codec},
    {ONEBIT_CODEC_RANDOMK, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_RANDOMK", kRandomkBits, 0.99, Settings::kKept,
     make_randomk_codec},
};

static_assert(std::ranges::all_of(kRegistry,
                                  [](const Row& row) { return static_cast<std::size_t>(row.codec) < kCodecs; }));

const Row* row_of(onebit_codec_t codec) {
    const Row* const row = std::ranges::find(kRegistry, codec, &Row::codec);
    return row == std::end(kRegistry) ? nullptr : row;
}

const Row* row_of(onebit_codec_t codec, onebit_memory_t memory) {
    const auto is_it = [=](const Row& row) { return row.codec == codec && row.memory == memory; };
    const Row* const row = std::ranges::find_if(kRegistry, is_it);
    return row == std::end(kRegistry) ? nullptr : row;
}

/// The names of the codecs in that memory for which is_one is true: "ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK".
template <typename Predicate>
std::string names_in(onebit_memory_t memory, const Predicate& is_one) {
    std::string names;
    for (const Row& row : kRegistry) {
        if (row.memory == memory && is_one(row)) names += std::string(names.empty() ? "" : ", ") + row.name;
    }
    return names;
}

/// An error where `member` of a config isn't 0 although this codec has no such settings. It names the codecs that have.
Status check_member(const char* member, std::uint32_t value, Settings settings, const Row& row) {
    if (value == 0 || row.settings == settings) return {};
    const std::string owners =
        names_in(ONEBIT_MEMORY_HOST, [=](const Row& other) { return other.settings == settings; });
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.%s is for %s: leave it at 0 with %s", member,
                         owners.c_str(), row.name);
}

Status check_error_type(const CodecConfig& config) {
    if (config.error_type == ONEBIT_FLOAT32) return {};
    if (config.error_type != ONEBIT_BFLOAT16 && config.error_type != ONEBIT_INT8) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.error_type: %d is none of ONEBIT_FLOAT32, ONEBIT_BFLOAT16 and ONEBIT_INT8",
                             static_cast<int>(config.error_type));
    }
    const char* const name = config.error_type == ONEBIT_INT8 ? "ONEBIT_INT8" : "ONEBIT_BFLOAT16";
    if (config.memory != ONEBIT_MEMORY_HOST) {
        return Status::error(
            ONEBIT_ERROR_UNSUPPORTED,
            "config.error_type: %s is for ONEBIT_MEMORY_HOST; errors in a GPU's memory are ONEBIT_FLOAT32", name);
    }
    if (config.group != ONEBIT_GROUP_BLOCK) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.error_type: %s is for config.group ONEBIT_GROUP_BLOCK, where an error is known as "
                             "soon as its block is encoded",
                             name);
    }
    return {};
}

Status check_settings(const CodecConfig& config, const Row& row) {
    static_assert(ONEBIT_SCALE_L2 == 0 && ONEBIT_GROUP_BLOCK == 0);
    const auto& [kept, value_bits] = config.sparse;
    ONEBIT_RETURN_IF_ERROR(check_member("scale", config.scale, Settings::kScales, row));
    ONEBIT_RETURN_IF_ERROR(check_member("group", config.group, Settings::kScales, row));
    ONEBIT_RETURN_IF_ERROR(check_member("kept", kept, Settings::kKept, row));
    ONEBIT_RETURN_IF_ERROR(check_member("value_bits", value_bits, Settings::kKept, row));
    ONEBIT_RETURN_IF_ERROR(check_member("rounding", config.rounding, Settings::kRounding, row));
    if (config.rounding != ONEBIT_ROUNDING_NEAREST && config.memory != ONEBIT_MEMORY_HOST) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.rounding: ONEBIT_ROUNDING_STOCHASTIC is for ONEBIT_MEMORY_HOST");
    }
    if (kept > kMostKept) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.kept: %u of 4096 elements are more than %zu", kept,
                             kMostKept);
    }
    if (value_bits != 0 && value_bits != kShortCode && value_bits != kLongCode) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.value_bits: %u is neither %u nor %u", value_bits,
                             kShortCode, kLongCode);
    }
    return check_error_type(config);
}

} // namespace

double bits_per_element(onebit_codec_t codec) {
    return row_of(codec)->bits;
}

double error_of_call(onebit_codec_t codec) {
    return row_of(codec)->error;
}

const char* name_of(onebit_codec_t codec) {
    return row_of(codec)->name;
}

Status check_codec(const CodecConfig& config) {
    if (config.codec == ONEBIT_CODEC_POWERSGD) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.codec: ONEBIT_CODEC_POWERSGD is for allreduces in ONEBIT_MEMORY_HOST; "
                             "ONEBIT_CODEC_SIGN is for all else, too");
    }
    const Row* const any = row_of(config.codec);
    if (any == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.codec: %d is not a codec",
                             static_cast<int>(config.codec));
    }
    ONEBIT_RETURN_IF_ERROR(check_settings(config, *any));
    if (row_of(config.codec, config.memory) == nullptr) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.codec: %s can't work in the memory of config.memory: %s can", any->name,
                             names_in(config.memory, [](const Row&) { return true; }).c_str());
    }
    return {};
}

Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_codec(config));
    return row_of(config.codec, config.memory)->make(config, codec);
}

} // namespace onebit
