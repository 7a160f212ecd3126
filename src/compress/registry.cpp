// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Which codecs there are, and for which memory.

#include <algorithm>
#include <string>

#include "compress/codec.hpp"
#include "compress/grouped/grouped_codec.hpp"
#include "compress/grouped/layout.hpp"
#include "compress/sign/sign_codec.hpp"

namespace onebit {
namespace {

/// One implementation of a codec.
struct Row {
    onebit_codec_t codec;
    onebit_memory_t memory;
    const char* name; ///< of the codec's constant
    double bits;      ///< of an element, its share of a scale included
    Status (*make)(const CodecConfig&, std::unique_ptr<Codec>*);
};

constexpr double kScaleBits = 32.0 / kGroupElements;

constexpr Row kRegistry[] = {
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_SIGN", 1.0 + 32.0 / kBlockElements, make_sign_codec},
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_CUDA, "ONEBIT_CODEC_SIGN", 1.0 + 32.0 / kBlockElements, make_cuda_sign_codec},
    {ONEBIT_CODEC_INT8, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_INT8", 8 + kScaleBits, make_grouped_codec},
    {ONEBIT_CODEC_INT4, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_INT4", 4 + kScaleBits, make_grouped_codec},
    {ONEBIT_CODEC_FP4, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_FP4", 4 + kScaleBits, make_grouped_codec},
    {ONEBIT_CODEC_BFLOAT16, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_BFLOAT16", 16 + kScaleBits, make_grouped_codec},
};

std::string names_in(onebit_memory_t memory) {
    std::string names;
    for (const Row& row : kRegistry) {
        if (row.memory == memory) names += std::string(names.empty() ? "" : ", ") + row.name;
    }
    return names;
}

} // namespace

double bits_per_element(onebit_codec_t codec) {
    return std::ranges::find(kRegistry, codec, &Row::codec)->bits;
}

Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    const char* name = nullptr; // of the codec, where it is for another memory
    for (const Row& row : kRegistry) {
        if (row.codec != config.codec) continue;
        if (row.memory == config.memory) return row.make(config, codec);
        name = row.name;
    }
    if (name == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.codec: %d is not a codec",
                             static_cast<int>(config.codec));
    }
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "config.codec: %s can't work in the memory of config.memory: %s can",
                         name, names_in(config.memory).c_str());
}

} // namespace onebit
