// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Calls on optimizers, as a program of bytes says.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fuzz/two_ranks.hpp"

namespace onebit_fuzz {

class OptimizerCalls {
  public:
    OptimizerCalls(Bytes& bytes, const Communicators& comms, const Directory& directory)
        : bytes_(bytes), comms_(comms), directory_(directory) {}
    ~OptimizerCalls() {
        for (OptimizerSlot& slot : slots_) {
            if (slot.begun) step(slot);
            destroy(slot);
        }
    }
    OptimizerCalls(const OptimizerCalls&) = delete;
    OptimizerCalls& operator=(const OptimizerCalls&) = delete;

    void call() {
        OptimizerSlot& slot = slots_[bytes_.below(slots_.size())];
        const std::size_t which = bytes_.below(12);
        if (which == 0) return create(slot);
        if (!slot.used()) return;
        switch (which) {
            case 1:
                return destroy(slot);
            case 2:
                return set_gradients(slot);
            case 3:
            case 4:
                return step(slot);
            case 5:
                return grad_ready(slot);
            case 6:
                return change_settings(slot);
            case 7:
                return save_or_load(slot);
            case 8:
                return repack(slot);
            case 9:
                return set_moments(slot);
            case 10:
                return set_callback(slot);
            default:
                return cancel_step(slot);
        }
    }

  private:
    struct OptimizerSlot : Slot<onebit_optimizer_t> {
        onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.01);
        bool begun = false;
        std::array<std::vector<float>, kRanks> parameters, gradients;
    };

    static constexpr std::size_t kTensors = 3;
    static constexpr std::array<std::size_t, kTensors> kSizes = {40, 300, 7};
    static constexpr std::size_t kElements = 347;

    void create(OptimizerSlot& slot) {
        if (slot.used()) return;
        const std::uint64_t kind = bytes_.below(12);
        onebit_optimizer_config_t config =
            ONEBIT_OPTIMIZER_CONFIG_INIT(static_cast<onebit_optimizer_kind_t>(kind % 6), 0.01);
        if (kind >= 6) config.codec = ONEBIT_CODEC_INT4;
        const std::uint64_t freeze = bytes_.below(8); // a kind that doesn't freeze refuses a step
        config.freeze_step = freeze == 0 ? ONEBIT_FREEZE_AUTO : freeze == 7 ? ONEBIT_FREEZE_PAPER : freeze;
        config.freeze_window = bytes_.below(4);
        config.compressed = static_cast<onebit_compressed_t>(bytes_.below(3));
        config.beta2 = bytes_.below(2) == 0 ? 0.9 : 0.999;
        config.max_grad_norm = bytes_.below(3) == 0 ? 0.5 : 0;
        config.bucket_size = bytes_.below(3) * 150;
        config.variance_updates = 1 + bytes_.below(3);
        config.local_step_scaler = 1 + bytes_.below(3);
        config.local_steps = 1 + bytes_.below(4);
        config.weight_decay = bytes_.below(2) * 0.1;
        config.missing_gradients = static_cast<int>(bytes_.below(2));
        std::array configs = {config, config}; // as above
        if (bytes_.rarely()) configs[1].lr = bytes_.below(2) == 0 ? -1 : 0.5;
        if (bytes_.rarely()) configs[0].local_steps = 0;
        for (std::size_t r = 0; r < kRanks; ++r) {
            slot.parameters[r].assign(kElements, 0.25F);
            slot.gradients[r].assign(kElements, 0.125F);
        }
        const bool fewer = bytes_.rarely();
        const std::array<onebit_comm_t, kRanks>& comms = comms_.any(bytes_);
        const onebit_status_t status = collectively([&](std::size_t r) {
            std::array<onebit_tensor_t, kTensors> tensors;
            std::size_t at = 0;
            for (std::size_t k = 0; k < kTensors; at += kSizes[k++]) {
                tensors[k] =
                    ONEBIT_TENSOR_INIT(slot.parameters[r].data() + at, slot.gradients[r].data() + at, kSizes[k]);
            }
            return onebit_optimizer_create(comms[r], &configs[r], tensors.data(), fewer && r == 1 ? 2 : kTensors,
                                           &slot.handles[r]);
        });
        FUZZ_REQUIRE(slot.used() == (status == ONEBIT_SUCCESS));
        slot.config = config;
    }

    void destroy(OptimizerSlot& slot) {
        if (!slot.used()) return;
        const onebit_status_t status =
            collectively([&](std::size_t r) { return onebit_optimizer_destroy(slot.handles[r]); });
        FUZZ_REQUIRE(status == (slot.begun ? ONEBIT_ERROR_BUSY : ONEBIT_SUCCESS));
        if (status != ONEBIT_SUCCESS) return;
        FUZZ_REQUIRE(onebit_optimizer_step(slot.handles[0]) == ONEBIT_ERROR_INVALID_HANDLE);
        slot.handles = {};
        slot.with_callback = false;
    }

    void set_gradients(OptimizerSlot& slot) {
        if (slot.begun) return;
        for (std::vector<float>& values : slot.gradients) {
            const std::uint8_t seed = bytes_.byte();
            const float scale = std::ldexp(1.0F, (bytes_.byte() % 40) - 30);
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = scale * static_cast<float>(static_cast<int>((i * 31 + seed) % 13) - 6);
            }
            if (bytes_.rarely()) values[bytes_.byte() % values.size()] = std::nanf("");
        }
        // Sets the place of the first tensor's gradient, or NULL where it has none.
        const std::size_t without = bytes_.below(2 * kRanks);
        agreed(on_both([&](std::size_t r) {
            return onebit_optimizer_set_gradients(slot.handles[r], 0,
                                                  r == without ? nullptr : slot.gradients[r].data());
        }));
    }

    void step(OptimizerSlot& slot) {
        const std::size_t tests = bytes_.below(4); // 0: nothing is started
        slot.told = {};
        const onebit_status_t status = collectively([&](std::size_t r) {
            if (tests == 0) return onebit_optimizer_step(slot.handles[r]);
            const onebit_status_t started = onebit_optimizer_step_start(slot.handles[r]);
            if (started != ONEBIT_SUCCESS) return started;
            int done = 0;
            onebit_status_t returned = ONEBIT_SUCCESS;
            for (std::size_t t = 0; t < tests * (r + 1) && done == 0; ++t) {
                returned = onebit_optimizer_step_test(slot.handles[r], &done);
                int active = 0;
                FUZZ_REQUIRE(onebit_comm_progress(comms_.whole[r], &active) == ONEBIT_SUCCESS);
            }
            if (done == 0) returned = onebit_optimizer_step_wait(slot.handles[r]);
            return slot.ended(r, returned);
        });
        FUZZ_REQUIRE(tests != 0 || (slot.told[0].calls == 0 && slot.told[1].calls == 0));
        slot.begun = false;
        for (const std::vector<float>& values : slot.parameters) {
            for (const float value : values) FUZZ_REQUIRE(std::isfinite(value));
        }
        // 0/1 Adam's ranks differ between two rounds.
        const bool drifts = slot.config.kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
        FUZZ_REQUIRE(status != ONEBIT_SUCCESS || drifts || slot.parameters[0] == slot.parameters[1]);
    }

    void grad_ready(OptimizerSlot& slot) {
        const std::size_t tensor = bytes_.below(kTensors + 1);
        const std::size_t first = bytes_.below(kRanks + 1); // that rank alone, or both
        on_both([&](std::size_t r) {
            if (first < kRanks && r != first) return ONEBIT_SUCCESS;
            return onebit_optimizer_grad_ready(slot.handles[r], tensor);
        });
        // Whether a step has begun: a rank's errors are busy then.
        const Statuses busy =
            on_both([&](std::size_t r) { return onebit_optimizer_get_error(slot.handles[r], nullptr, nullptr); });
        slot.begun = busy[0] == ONEBIT_ERROR_BUSY || busy[1] == ONEBIT_ERROR_BUSY;
        if (slot.begun && busy[0] != busy[1]) step(slot); // it is over on both
    }

    void cancel_step(OptimizerSlot& slot) {
        const std::size_t goes_on = bytes_.below(kRanks + 1); // that rank makes the step, or none
        const onebit_status_t status = collectively([&](std::size_t r) {
            return r == goes_on ? onebit_optimizer_step(slot.handles[r])
                                : onebit_optimizer_cancel_step(slot.handles[r], "the program says so");
        });
        FUZZ_REQUIRE(status != ONEBIT_SUCCESS);
        slot.begun = false;
    }

    void set_callback(OptimizerSlot& slot) {
        const bool with = bytes_.below(2) == 0;
        const onebit_status_t status = agreed(on_both([&](std::size_t r) {
            return onebit_optimizer_set_callback(slot.handles[r], with ? tell : nullptr, &slot.told[r]);
        }));
        if (status == ONEBIT_SUCCESS) slot.with_callback = with;
    }

    void change_settings(OptimizerSlot& slot) {
        if (slot.begun) return;
        const double lr = bytes_.below(8) == 0 ? std::nan("") : 0.001 * static_cast<double>(bytes_.byte());
        const bool alone = bytes_.rarely();
        on_both([&](std::size_t r) {
            return alone && r == 1 ? ONEBIT_SUCCESS : onebit_optimizer_set_lr(slot.handles[r], lr);
        });
        onebit_param_group_t group = ONEBIT_PARAM_GROUP_INIT(0.01);
        group.beta1 = 0.25 * static_cast<double>(bytes_.below(5)); // 1 is none
        group.weight_decay = bytes_.below(2) * 0.1;
        const std::size_t what = bytes_.below(6);
        agreed(on_both([&](std::size_t r) {
            if (what == 0) return onebit_optimizer_freeze(slot.handles[r]);
            if (what == 1) return onebit_optimizer_reset_error(slot.handles[r]);
            if (what == 2) return onebit_optimizer_set_gradient_scale(slot.handles[r], 4);
            if (what == 3) return onebit_optimizer_set_max_grad_norm(slot.handles[r], 0.25);
            if (what == 4) return onebit_optimizer_set_group(slot.handles[r], 0, &group);
            std::vector<float> worker(kElements);
            return onebit_optimizer_get_error(slot.handles[r], worker.data(), nullptr);
        }));
    }

    // Steps, and then m or v, of another training. Ranks may differ: the next step reports the difference.
    void set_moments(OptimizerSlot& slot) {
        if (slot.begun) return;
        const std::uint64_t steps = bytes_.below(4);
        const std::size_t tensor = bytes_.below(kTensors + 1);
        const auto which = static_cast<onebit_state_t>(bytes_.below(5));
        const float value = std::ldexp(static_cast<float>(static_cast<int>(bytes_.byte()) - 32), -6);
        const bool differs = bytes_.rarely();
        agreed(on_both([&](std::size_t r) { return onebit_optimizer_set_steps(slot.handles[r], steps); }));
        agreed(on_both([&](std::size_t r) {
            std::vector<float> values(kElements);
            const onebit_status_t got = onebit_optimizer_get_state(slot.handles[r], tensor, which, values.data());
            if (got != ONEBIT_SUCCESS) return got;
            values[0] = differs && r == 1 ? value / 2 : value;
            return onebit_optimizer_set_state(slot.handles[r], tensor, which, values.data());
        }));
    }

    void repack(OptimizerSlot& slot) {
        if (slot.begun) return;
        std::array<std::vector<std::uint8_t>, kRanks> blobs;
        for (std::size_t r = 0; r < kRanks; ++r) {
            std::uint64_t size = 0;
            const onebit_status_t sized = onebit_optimizer_state_size(slot.handles[r], &size);
            if (sized != ONEBIT_SUCCESS) return; // a broken one
            blobs[r].resize(size);
            FUZZ_REQUIRE(onebit_optimizer_pack_state(slot.handles[r], blobs[r].data(), size) == ONEBIT_SUCCESS);
        }
        if (bytes_.rarely()) blobs[bytes_.below(kRanks)].back() ^= bytes_.byte();
        const std::size_t own = bytes_.below(2); // 1: each rank has its own alone
        const std::array sizes = {static_cast<std::uint64_t>(blobs[0].size()),
                                  static_cast<std::uint64_t>(blobs[1].size())};
        const std::array<const void*, kRanks> pointers = {blobs[0].data(), blobs[1].data()};
        collectively([&](std::size_t r) {
            const std::size_t first = own == 1 ? r : 0;
            return onebit_optimizer_unpack_state(slot.handles[r], &pointers[first], &sizes[first],
                                                 own == 1 ? 1 : kRanks);
        });
    }

    void save_or_load(OptimizerSlot& slot) {
        if (slot.begun) return;
        const std::string prefix = directory_.file("state");
        const bool saves = bytes_.below(2) == 0;
        const bool nowhere = bytes_.rarely();
        const std::size_t one = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const onebit_status_t status = collectively([&](std::size_t r) {
            const char* const where = r == one ? nullptr : nowhere ? "/nowhere/at-all" : prefix.c_str();
            return saves ? onebit_optimizer_save(slot.handles[r], where)
                         : onebit_optimizer_load(slot.handles[r], where);
        });
        FUZZ_REQUIRE(one == kRanks || status != ONEBIT_SUCCESS);
    }

    Bytes& bytes_;
    const Communicators& comms_;
    const Directory& directory_;
    std::array<OptimizerSlot, 3> slots_;
};

} // namespace onebit_fuzz
