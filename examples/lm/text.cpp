// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lm {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30; // an MPI count is an int, and this is plenty

// Empty if the file cannot be used.
std::vector<std::uint8_t> read_file(const std::string& path, std::size_t min_bytes) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!file) {
        std::fprintf(stderr, "train_lm: cannot open the text \"%s\": %s\n", path.c_str(), std::strerror(errno));
        return {};
    }
    std::vector<std::uint8_t> text;
    std::uint8_t buffer[1 << 16];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
        text.insert(text.end(), buffer, buffer + got);
        if (text.size() >= kMaxBytes) break;
    }
    if (std::ferror(file.get())) {
        std::fprintf(stderr, "train_lm: cannot read the text \"%s\": %s\n", path.c_str(), std::strerror(errno));
        return {};
    }
    if (text.size() < min_bytes) {
        std::fprintf(stderr, "train_lm: the text \"%s\" is too small: it has %zu bytes, and at least %zu are needed\n",
                     path.c_str(), text.size(), min_bytes);
        return {};
    }
    text.resize(std::min(text.size(), kMaxBytes));
    return text;
}

} // namespace

std::vector<std::uint8_t> read_text(const std::string& path, std::size_t min_bytes, MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    std::vector<std::uint8_t> text;
    if (rank == 0) text = read_file(path, min_bytes);
    std::uint64_t bytes = text.size();
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, comm);
    text.resize(bytes);
    MPI_Bcast(text.data(), static_cast<int>(bytes), MPI_BYTE, 0, comm);
    return text;
}

// The last 2 %, but not more than 64 KiB: enough for a loss good to three digits, and quick to evaluate.
std::size_t held_out_begin(std::size_t text_bytes) {
    return text_bytes - std::min<std::size_t>(text_bytes / 50, 64 * 1024);
}

} // namespace lm
