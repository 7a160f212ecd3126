// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Saved states of an allreduce, with the checksum repaired or not: unpack accepts a state or says BAD_STATE, and an
// accepted state can be used. The first byte chooses the handle and whether to repair.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cmath>
#include <vector>

#include "fuzz/fuzzing.hpp"

namespace {

constexpr std::size_t kCount = 70;
constexpr std::size_t kHeaderBytes = 112; // docs/WIRE_FORMAT.md, "Saved state"
constexpr std::size_t kChecksumAt = 104;

class Handles {
  public:
    Handles() {
        FUZZ_REQUIRE(onebit_comm_create_loopback(1, &comm_) == ONEBIT_SUCCESS);
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
            config.algorithm = i < 2 ? ONEBIT_ALGORITHM_FLAT : ONEBIT_ALGORITHM_PIPELINED;
            config.group = i % 2 == 0 ? ONEBIT_GROUP_BLOCK : ONEBIT_GROUP_BUFFER;
            config.check = i < 2 ? ONEBIT_CHECK_FULL : ONEBIT_CHECK_FULL_LOW_MEMORY;
            FUZZ_REQUIRE(onebit_allreduce_create(comm_, &config, &handles_[i]) == ONEBIT_SUCCESS);
        }
    }
    onebit_allreduce_t at(std::size_t i) const { return handles_[i % handles_.size()]; }

  private:
    onebit_comm_t comm_ = nullptr;
    std::array<onebit_allreduce_t, 4> handles_{};
};

void repair(std::vector<std::uint8_t>& state) {
    if (state.size() < kHeaderBytes) return;
    const std::uint64_t of_values = XXH3_64bits(state.data() + kHeaderBytes, state.size() - kHeaderBytes);
    std::memcpy(state.data() + kChecksumAt, &of_values, sizeof of_values);
    const std::uint64_t checksum = XXH3_64bits(state.data(), kHeaderBytes);
    std::memcpy(state.data() + kChecksumAt, &checksum, sizeof checksum);
}

void use(onebit_allreduce_t handle) {
    std::array<float, kCount> values{};
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) - 30;
    const onebit_status_t status = onebit_allreduce_run(handle, values.data(), values.data());
    FUZZ_REQUIRE(status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
    for (const float value : values) FUZZ_REQUIRE(status != ONEBIT_SUCCESS || std::isfinite(value));
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Handles handles;
    onebit_fuzz::Bytes bytes(data, size);
    const std::uint8_t choice = bytes.byte();
    const onebit_allreduce_t handle = handles.at(choice);
    std::vector<std::uint8_t> state(bytes.data(), bytes.data() + bytes.size());
    if (choice >= 64) repair(state);
    const onebit_status_t status = onebit_allreduce_unpack_state(handle, state.data(), state.size());
    FUZZ_REQUIRE(status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_BAD_STATE ||
                 (state.empty() && status == ONEBIT_ERROR_INVALID_ARGUMENT));
    if (status == ONEBIT_SUCCESS) use(handle);
    return 0;
}
