// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Values in memory from onebit_mem_alloc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/handles.hpp"

namespace onebit_test {

// This rank's memory, as floats; frees itself.
class SharedValues {
  public:
    SharedValues(onebit_comm_t comm, std::size_t count, RankLog& log) : log_(log) {
        void* memory = nullptr;
        ONEBIT_EXPECT_OK(log_, onebit_mem_alloc(comm, count * sizeof(float), &memory));
        data_ = static_cast<float*>(memory);
        ONEBIT_EXPECT(log_, std::all_of(data_, data_ + count, [](float value) { return value == 0; }));
        ONEBIT_EXPECT(log_, reinterpret_cast<std::uintptr_t>(data_) % 64 == 0);
    }
    ~SharedValues() { free(); }
    SharedValues(const SharedValues&) = delete;
    SharedValues& operator=(const SharedValues&) = delete;

    float* data() const { return data_; }
    void free() { ONEBIT_EXPECT_OK(log_, onebit_mem_free(std::exchange(data_, nullptr))); }

  private:
    RankLog& log_;
    float* data_ = nullptr;
};

inline void put(const std::vector<float>& values, float* to) {
    std::copy(values.begin(), values.end(), to);
}
inline std::vector<float> get(const float* from, std::uint64_t count) {
    return {from, from + count};
}

// Whether the last call read other ranks' values directly where they lie.
inline bool was_direct(Allreduce& reduce) {
    return std::string(reduce.info().transport).ends_with(", shared buffers");
}

} // namespace onebit_test
