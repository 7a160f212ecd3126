// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Calls on allreduce handles, as a program of bytes says.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fuzz/two_ranks.hpp"

namespace onebit_fuzz {

class AllreduceCalls {
  public:
    AllreduceCalls(Bytes& bytes, const Communicators& comms) : bytes_(bytes), comms_(comms) {}
    ~AllreduceCalls() {
        for (AllreduceSlot& slot : slots_) {
            if (slot.started) finish(slot);
            destroy(slot);
        }
    }
    AllreduceCalls(const AllreduceCalls&) = delete;
    AllreduceCalls& operator=(const AllreduceCalls&) = delete;

    void call() {
        for (AllreduceSlot& slot : slots_) {
            if (progress_ended(slot)) finish(slot);
        }
        AllreduceSlot& slot = slots_[bytes_.below(slots_.size())];
        switch (bytes_.below(10)) {
            case 0:
                return create(slot);
            case 1:
                return destroy(slot);
            case 2:
                return run(slot);
            case 3:
                return start(slot);
            case 4:
                return finish(slot);
            case 5:
                return set_mask(slot);
            case 6:
                return set_algorithm(slot);
            case 7:
                return repack(slot);
            case 8:
                return set_callback(slot);
            default:
                return use_destroyed(slot);
        }
    }

  private:
    struct AllreduceSlot : Slot<onebit_allreduce_t> {
        std::array<onebit_allreduce_t, kRanks> destroyed{};
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
        bool started = false;
        bool finite = true; // all input of the operation
        std::array<std::vector<float>, kRanks> input, output;
    };

    void create(AllreduceSlot& slot) {
        if (slot.used()) return;
        constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 31, 64, 1000, 2048, 4097, 9000};
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCounts[bytes_.below(std::size(kCounts))]);
        config.algorithm = static_cast<onebit_algorithm_t>(bytes_.below(8));
        config.scale = static_cast<onebit_scale_t>(bytes_.below(2));
        config.group = static_cast<onebit_group_t>(bytes_.below(2));
        config.op = static_cast<onebit_op_t>(bytes_.below(3));
        config.check = static_cast<onebit_check_t>(bytes_.below(4));
        config.threads = static_cast<std::uint32_t>(bytes_.below(2));
        std::array configs = {config, config}; // of the ranks; at times they differ
        if (bytes_.rarely()) configs[1].count += 1;
        if (bytes_.rarely()) configs[bytes_.below(kRanks)].version = 77;
        if (bytes_.rarely()) configs[1].scale = static_cast<onebit_scale_t>(bytes_.byte());
        const std::size_t nobody = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const std::size_t nowhere = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const std::array<onebit_comm_t, kRanks>& comms = comms_.any(bytes_);
        const onebit_status_t status = collectively([&](std::size_t r) {
            return onebit_allreduce_create(comms[r], r == nobody ? nullptr : &configs[r],
                                           r == nowhere ? nullptr : &slot.handles[r]);
        });
        for (const onebit_allreduce_t handle : slot.handles) {
            FUZZ_REQUIRE((handle != nullptr) == (status == ONEBIT_SUCCESS));
        }
        slot.config = config;
        for (std::size_t r = 0; r < kRanks && slot.used(); ++r) {
            slot.input[r].assign(config.count, 1);
            slot.output[r].assign(config.count, 0);
        }
    }

    void destroy(AllreduceSlot& slot) {
        if (!slot.used()) return;
        const onebit_status_t status =
            collectively([&](std::size_t r) { return onebit_allreduce_destroy(slot.handles[r]); });
        FUZZ_REQUIRE(status == (slot.started ? ONEBIT_ERROR_BUSY : ONEBIT_SUCCESS));
        if (status != ONEBIT_SUCCESS) return;
        slot.destroyed = slot.handles;
        slot.handles = {};
        slot.with_callback = false;
    }

    void use_destroyed(AllreduceSlot& slot) {
        const onebit_allreduce_t handle = slot.destroyed[0];
        if (handle == nullptr) return;
        std::array<float, 4> values{};
        FUZZ_REQUIRE(onebit_allreduce_run(handle, values.data(), values.data()) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_reset(handle) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_destroy(handle) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_destroy(reinterpret_cast<onebit_allreduce_t>(comms_.whole[0])) ==
                     ONEBIT_ERROR_INVALID_HANDLE);
    }

    // Meets the conditions that a call without checks leaves to its caller.
    bool checks(const AllreduceSlot& slot) const { return slot.config.check != ONEBIT_CHECK_NONE; }

    void fill(AllreduceSlot& slot) {
        slot.finite = true;
        for (std::vector<float>& values : slot.input) {
            const std::uint8_t seed = bytes_.byte();
            const float scale = std::ldexp(1.0F, (bytes_.byte() % 64) - 32);
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = scale * static_cast<float>(static_cast<int>((i * 37 + seed) % 17) - 8);
            }
            if (!checks(slot) || !bytes_.rarely()) continue;
            const float bad = bytes_.below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
            values[bytes_.byte() % values.size()] = bad;
            slot.finite = false;
        }
    }

    // The buffers of a call: in place, or not, or at times no buffers.
    struct Buffers {
        const float* input;
        float* output;
    };
    std::array<Buffers, kRanks> choose_buffers(AllreduceSlot& slot) {
        std::array<Buffers, kRanks> buffers{};
        for (std::size_t r = 0; r < kRanks; ++r) {
            buffers[r] = {slot.input[r].data(), slot.output[r].data()};
            if (bytes_.below(3) == 0) buffers[r].input = buffers[r].output = slot.output[r].data();
            if (buffers[r].input == buffers[r].output) slot.output[r] = slot.input[r];
            if (!checks(slot) || !bytes_.rarely()) continue;
            const std::size_t flaw = bytes_.below(4);
            if (flaw == 0) buffers[r].input = nullptr;
            if (flaw == 1) buffers[r].output = nullptr;
            if (flaw == 2)
                buffers[r].input = reinterpret_cast<const float*>(reinterpret_cast<const char*>(buffers[r].input) + 1);
            if (flaw == 3 && slot.config.count > 1) buffers[r].input = buffers[r].output + 1; // overlapping
        }
        return buffers;
    }

    void check_result(const AllreduceSlot& slot, onebit_status_t status) {
        if (status != ONEBIT_SUCCESS) return;
        FUZZ_REQUIRE(slot.finite);
        FUZZ_REQUIRE(std::memcmp(slot.output[0].data(), slot.output[1].data(), slot.config.count * sizeof(float)) == 0);
        for (const float value : slot.output[0]) FUZZ_REQUIRE(std::isfinite(value));
    }

    void run(AllreduceSlot& slot) {
        if (!slot.used()) return;
        if (slot.started) {
            FUZZ_REQUIRE(onebit_allreduce_run(slot.handles[0], slot.input[0].data(), slot.output[0].data()) ==
                         ONEBIT_ERROR_BUSY);
            return;
        }
        fill(slot);
        const auto buffers = choose_buffers(slot);
        check_result(slot, collectively([&](std::size_t r) {
                         return onebit_allreduce_run(slot.handles[r], buffers[r].input, buffers[r].output);
                     }));
    }

    void start(AllreduceSlot& slot) {
        if (!slot.used() || slot.started) return;
        fill(slot);
        const auto buffers = choose_buffers(slot);
        slot.told = {};
        const onebit_status_t status = collectively([&](std::size_t r) {
            return onebit_allreduce_start(slot.handles[r], buffers[r].input, buffers[r].output);
        });
        FUZZ_REQUIRE(status == ONEBIT_SUCCESS);
        slot.started = true;
    }

    // On one rank or on both: an optimizer's step has called onebit_comm_progress.
    static bool progress_ended(const AllreduceSlot& slot) {
        return slot.started && (slot.told[0].calls != 0 || slot.told[1].calls != 0);
    }

    void finish(AllreduceSlot& slot) {
        if (!slot.used()) return;
        const std::size_t tests = bytes_.below(4);
        const onebit_status_t status = collectively([&](std::size_t r) {
            int done = 0;
            onebit_status_t returned = ONEBIT_SUCCESS;
            for (std::size_t t = 0; t < tests * (r + 1) && done == 0; ++t) {
                returned = onebit_allreduce_test(slot.handles[r], &done);
            }
            if (done == 0) returned = onebit_allreduce_wait(slot.handles[r]);
            return slot.started ? slot.ended(r, returned) : returned;
        });
        if (slot.started) check_result(slot, status);
        slot.started = false;
    }

    void set_callback(AllreduceSlot& slot) {
        if (!slot.used()) return;
        const bool with = bytes_.below(2) == 0;
        const onebit_status_t status = agreed(on_both([&](std::size_t r) {
            return onebit_allreduce_set_callback(slot.handles[r], with ? tell : nullptr, &slot.told[r]);
        }));
        FUZZ_REQUIRE(status == (slot.started ? ONEBIT_ERROR_BUSY : ONEBIT_SUCCESS));
        if (status == ONEBIT_SUCCESS) slot.with_callback = with;
    }

    void set_mask(AllreduceSlot& slot) {
        if (!slot.used() || slot.started) return;
        std::array<std::vector<std::uint32_t>, kRanks> masks;
        const std::uint32_t word = 0x01010101U * bytes_.byte();
        for (auto& mask : masks) mask.assign((slot.config.count + 31) / 32, word);
        if (bytes_.rarely()) masks[1][0] ^= 1;
        const bool none = bytes_.below(4) == 0;
        collectively([&](std::size_t r) {
            return onebit_allreduce_set_mask(slot.handles[r], none ? nullptr : masks[r].data());
        });
    }

    void set_algorithm(AllreduceSlot& slot) {
        if (!slot.used()) return;
        const auto algorithm = static_cast<onebit_algorithm_t>(bytes_.below(9));
        agreed(on_both([&](std::size_t r) { return onebit_allreduce_set_algorithm(slot.handles[r], algorithm); }));
    }

    void repack(AllreduceSlot& slot) {
        if (!slot.used() || slot.started) return;
        std::array<std::vector<std::uint8_t>, kRanks> states;
        for (std::size_t r = 0; r < kRanks; ++r) {
            std::uint64_t size = 0;
            FUZZ_REQUIRE(onebit_allreduce_state_size(slot.handles[r], &size) == ONEBIT_SUCCESS);
            states[r].resize(size);
            FUZZ_REQUIRE(onebit_allreduce_pack_state(slot.handles[r], states[r].data(), size) == ONEBIT_SUCCESS);
            std::vector<float> worker(slot.config.count);
            FUZZ_REQUIRE(onebit_allreduce_get_error(slot.handles[r], worker.data(), nullptr, nullptr, nullptr) ==
                         ONEBIT_SUCCESS);
        }
        if (bytes_.rarely()) states[bytes_.below(kRanks)].back() ^= bytes_.byte();
        collectively([&](std::size_t r) {
            return onebit_allreduce_unpack_state(slot.handles[r], states[r].data(), states[r].size());
        });
    }

    Bytes& bytes_;
    const Communicators& comms_;
    std::array<AllreduceSlot, 3> slots_;
};

} // namespace onebit_fuzz
