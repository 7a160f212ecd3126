// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Which codecs there are, and for which memory.

#include <string>

#include "compress/codec.hpp"
#include "compress/sign/sign_codec.hpp"

namespace onebit {
namespace {

/// One implementation of a codec.
struct Row {
    onebit_codec_t codec;
    onebit_memory_t memory;
    const char* name; ///< of the codec's constant
    Status (*make)(const CodecConfig&, std::unique_ptr<Codec>*);
};

constexpr Row kRegistry[] = {
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_HOST, "ONEBIT_CODEC_SIGN", make_sign_codec},
    {ONEBIT_CODEC_SIGN, ONEBIT_MEMORY_CUDA, "ONEBIT_CODEC_SIGN", make_cuda_sign_codec},
};

std::string names_in(onebit_memory_t memory) {
    std::string names;
    for (const Row& row : kRegistry) {
        if (row.memory == memory) names += std::string(names.empty() ? "" : ", ") + row.name;
    }
    return names;
}

} // namespace

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
