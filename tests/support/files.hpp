// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Whole files, which tests damage and restore.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/ranks.hpp"

namespace onebit_test {

inline Bytes read_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

} // namespace onebit_test
