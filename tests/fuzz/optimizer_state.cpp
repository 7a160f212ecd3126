// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Files of saved optimizers, with lengths and checksums repaired or not: load accepts or refuses them, and an accepted
// state can be trained on. The first byte chooses the kind. The second byte chooses the repairs and whether the file is
// cut into the files of two ranks.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/fuzzing.hpp"

namespace {

constexpr std::size_t kCount = 70;
constexpr std::size_t kKinds = 7; // those of the header, then Adam and LAMB that compress their gradients
// docs/WIRE_FORMAT.md, "Saved optimizer".
constexpr std::size_t kHeaderBytes = 104;
constexpr std::size_t kHeadBytesAt = 72;
constexpr std::size_t kAllBytesAt = 80;
constexpr std::size_t kHeadChecksumAt = 88;
constexpr std::size_t kTailChecksumAt = 96;

using State = std::vector<std::uint8_t>;

// An optimizer of each kind, created again after each accepted state.
class Optimizers {
  public:
    Optimizers() {
        FUZZ_REQUIRE(onebit_comm_create_loopback(1, &comm_) == ONEBIT_SUCCESS);
        for (std::size_t i = 0; i < kCount; ++i) gradients_[i] = 0.01F * (static_cast<float>(i) - 30);
        for (std::size_t kind = 0; kind < kKinds; ++kind) make(kind);
    }
    onebit_optimizer_t at(std::size_t kind) const { return handles_[kind]; }
    const std::array<float, kCount>& parameters(std::size_t kind) const { return parameters_[kind]; }

    void make(std::size_t kind) {
        if (handles_[kind] != nullptr) FUZZ_REQUIRE(onebit_optimizer_destroy(handles_[kind]) == ONEBIT_SUCCESS);
        parameters_[kind].fill(0.5F);
        float* const x = parameters_[kind].data();
        const onebit_tensor_t tensors[] = {ONEBIT_TENSOR_INIT(x, gradients_.data(), 40),
                                           ONEBIT_TENSOR_INIT(x + 40, gradients_.data() + 40, kCount - 40)};
        const bool codes = kind >= 5;
        const onebit_optimizer_kind_t of_codes = kind == 5 ? ONEBIT_OPTIMIZER_ADAM : ONEBIT_OPTIMIZER_LAMB;
        onebit_optimizer_config_t config =
            ONEBIT_OPTIMIZER_CONFIG_INIT(codes ? of_codes : static_cast<onebit_optimizer_kind_t>(kind), 1e-3);
        if (codes) config.codec = ONEBIT_CODEC_INT8;
        if (config.kind != ONEBIT_OPTIMIZER_ADAM && config.kind != ONEBIT_OPTIMIZER_LAMB) config.freeze_step = 3;
        FUZZ_REQUIRE(onebit_optimizer_create(comm_, &config, tensors, 2, &handles_[kind]) == ONEBIT_SUCCESS);
    }

  private:
    onebit_comm_t comm_ = nullptr;
    std::array<onebit_optimizer_t, kKinds> handles_{};
    std::array<std::array<float, kCount>, kKinds> parameters_{};
    std::array<float, kCount> gradients_{};
};

template <typename T>
T get(const State& state, std::size_t at) {
    T value;
    std::memcpy(&value, state.data() + at, sizeof value);
    return value;
}
template <typename T>
void put(State& state, std::size_t at, T value) {
    std::memcpy(state.data() + at, &value, sizeof value);
}

void repair(State& state) {
    if (state.size() < kHeaderBytes) return;
    put<std::uint64_t>(state, kAllBytesAt, state.size());
    std::uint64_t head = get<std::uint64_t>(state, kHeadBytesAt);
    if (head < kHeaderBytes || head > state.size()) {
        head = kHeaderBytes + head % (state.size() - kHeaderBytes + 1);
        put(state, kHeadBytesAt, head);
    }
    put<std::uint64_t>(state, kTailChecksumAt, XXH3_64bits(state.data() + head, state.size() - head));
    put<std::uint64_t>(state, kHeadChecksumAt, XXH3_64bits(state.data() + kHeaderBytes, head - kHeaderBytes));
    put<std::uint64_t>(state, kHeadChecksumAt, XXH3_64bits(state.data(), kHeaderBytes));
}

void write(const std::string& name, const State& state) {
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(state.data()), static_cast<std::streamsize>(state.size()));
}

void use(Optimizers& optimizers, std::size_t kind) {
    const auto& parameters = optimizers.parameters(kind);
    const auto finite = [](float value) { return std::isfinite(value); };
    const bool sound = std::all_of(parameters.begin(), parameters.end(), finite);
    for (int step = 0; step < 4; ++step) {
        const onebit_status_t status = onebit_optimizer_step(optimizers.at(kind));
        FUZZ_REQUIRE(status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
    }
    FUZZ_REQUIRE(sound); // a state with invalid values must be refused
    optimizers.make(kind);
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Optimizers optimizers;
    static const onebit_fuzz::Directory directory("states");
    const std::string prefix = directory.file("state");
    onebit_fuzz::Bytes bytes(data, size);
    const std::size_t kind = bytes.below(kKinds);
    const std::uint8_t choice = bytes.byte();
    State state(bytes.data(), bytes.data() + bytes.size());
    const bool repairs = choice % 2 == 1;
    if (choice & 2) {
        const auto middle = state.begin() + static_cast<std::ptrdiff_t>(state.size() / 2);
        State first(state.begin(), middle);
        State second(middle, state.end());
        if (repairs) repair(first);
        if (repairs) repair(second);
        write(prefix + ".0-of-2.onebit", first);
        write(prefix + ".1-of-2.onebit", second);
    } else {
        if (repairs) repair(state);
        write(prefix + ".0-of-1.onebit", state);
    }
    const onebit_status_t status = onebit_optimizer_load(optimizers.at(kind), prefix.c_str());
    FUZZ_REQUIRE(status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_BAD_STATE || status == ONEBIT_ERROR_IO ||
                 status == ONEBIT_ERROR_MISMATCH);
    if (status == ONEBIT_SUCCESS) use(optimizers, kind);
    directory.clear();
    return 0;
}
