// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the fuzz targets share. A target ends the process where a promise is broken: libFuzzer then keeps the input.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define FUZZ_REQUIRE(condition) onebit_fuzz::require((condition), #condition, __FILE__, __LINE__)

namespace onebit_fuzz {

inline void require(bool condition, const char* text, const char* file, int line) {
    if (condition) return;
    std::fprintf(stderr, "%s:%d: broken: %s; last error: \"%s\"\n", file, line, text, onebit_last_error());
    std::abort();
}

// Numbers off the front of the input; zeros behind its end.
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

} // namespace onebit_fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
