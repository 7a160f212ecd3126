// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Replaces the codecs on a GPU in a build without CUDA.
#include "compress/grouped/grouped_codec.hpp"
#include "compress/sign/sign_codec.hpp"

namespace onebit {
namespace {

Status without_cuda() {
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.memory: ONEBIT_MEMORY_CUDA: this libonebit was built without CUDA (ONEBIT_CUDA)");
}

} // namespace

Status make_cuda_sign_codec(const CodecConfig& /*config*/, std::unique_ptr<Codec>* /*codec*/) {
    return without_cuda();
}

Status make_cuda_grouped_codec(const CodecConfig& /*config*/, std::unique_ptr<Codec>* /*codec*/) {
    return without_cuda();
}

} // namespace onebit
