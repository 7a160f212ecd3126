// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/codec.hpp"
#include "compress/sign/sign_codec.hpp"

namespace onebit {
namespace {

struct Row {
    onebit_codec_t codec;
    Status (*make)(const CodecConfig&, std::unique_ptr<Codec>*);
};

constexpr Row kRegistry[] = {
    {ONEBIT_CODEC_SIGN, make_sign_codec},
};

} // namespace

Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    for (const Row& row : kRegistry) {
        if (row.codec == config.codec) return row.make(config, codec);
    }
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.codec: %d is not a codec",
                         static_cast<int>(config.codec));
}

} // namespace onebit
