// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The shared parts of the fuzz targets. A target ends the process when a promise is broken: libFuzzer keeps the input.
#pragma once

#include <onebit/onebit.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#define FUZZ_REQUIRE(condition) onebit_fuzz::require((condition), #condition, __FILE__, __LINE__)

namespace onebit_fuzz {

inline void require(bool condition, const char* text, const char* file, int line) {
    if (condition) return;
    std::fprintf(stderr, "%s:%d: broken: %s; last error: \"%s\"\n", file, line, text, onebit_last_error());
    std::abort();
}

// Numbers from the front of the input; zeros after its end.
class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }
    const std::uint8_t* data() const { return data_; }
    std::uint8_t byte() {
        if (size_ == 0) return 0;
        --size_;
        return *data_++;
    }
    // 0 to n - 1.
    std::size_t below(std::size_t n) { return byte() % n; }
    // True for one byte in sixteen.
    bool rarely() { return byte() % 16 == 15; }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// A directory for this process, in memory. A target empties it after each input, so that no input depends on another.
// scripts/fuzz.sh removes the files of crashed processes: all directories lie in ONEBIT_FUZZ_DIRECTORY.
class Directory {
  public:
    explicit Directory(const char* name)
        : path_(parent() / (std::string("onebit-fuzz-") + name + "-" + std::to_string(getpid()))) {
        std::filesystem::create_directory(path_);
    }
    ~Directory() {
        std::error_code ignored; // the process ends
        std::filesystem::remove_all(path_, ignored);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    std::string file(const char* name) const { return path_ / name; }
    void clear() const {
        for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove(entry);
    }

  private:
    static std::filesystem::path parent() {
        const char* const named = std::getenv("ONEBIT_FUZZ_DIRECTORY");
        return named == nullptr ? "/dev/shm" : named;
    }
    std::filesystem::path path_;
};

} // namespace onebit_fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
