// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Sequences of C calls on two ranks that are threads. The input is a program: a byte for the call, then bytes for its
// arguments, valid and not, some of them another rank's. What must hold: no call hangs (libFuzzer's -timeout) or breaks
// a handle, a collective call has one status on both ranks, SUCCESS means the same bits on both, finite where all input
// was, and a destroyed handle is recognised.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/fuzzing.hpp"

namespace {

using onebit_fuzz::Bytes;

constexpr std::size_t kRanks = 2;
constexpr std::size_t kSlots = 3;

// Runs work(rank) on both ranks, each time on the same threads.
class RankThreads {
  public:
    RankThreads() : other_([this] { serve(); }) { other_.detach(); }
    void run(const std::function<void(std::size_t)>& work) {
        work_ = &work;
        begin_.release();
        work(0);
        done_.acquire();
    }

  private:
    [[noreturn]] void serve() {
        for (;;) {
            begin_.acquire();
            (*work_)(1);
            done_.release();
        }
    }
    const std::function<void(std::size_t)>* work_ = nullptr;
    std::binary_semaphore begin_{0}, done_{0};
    std::thread other_;
};

// Of what a program saves.
onebit_fuzz::Directory& directory() {
    static onebit_fuzz::Directory made("calls");
    return made;
}

using Statuses = std::array<onebit_status_t, kRanks>;

Statuses on_both(const std::function<onebit_status_t(std::size_t)>& call) {
    static RankThreads threads;
    Statuses statuses{};
    threads.run([&](std::size_t rank) { statuses[rank] = call(rank); });
    return statuses;
}

// Of a collective call; returns it.
onebit_status_t agreed(const Statuses& statuses) {
    FUZZ_REQUIRE(statuses[0] == statuses[1]);
    FUZZ_REQUIRE(statuses[0] != ONEBIT_ERROR_TIMEOUT && statuses[0] != ONEBIT_ERROR_TRANSPORT &&
                 statuses[0] != ONEBIT_ERROR_INTERNAL);
    return statuses[0];
}
onebit_status_t collectively(const std::function<onebit_status_t(std::size_t)>& call) {
    return agreed(on_both(call));
}

template <typename Handle>
struct Slot {
    std::array<Handle, kRanks> handles{};
    bool used() const { return handles[0] != nullptr; }
};

struct AllreduceSlot : Slot<onebit_allreduce_t> {
    std::array<onebit_allreduce_t, kRanks> destroyed{};
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    bool started = false;
    bool finite = true; // all that was given to the operation
    std::array<std::vector<float>, kRanks> input, output;
};

struct OptimizerSlot : Slot<onebit_optimizer_t> {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.01);
    bool begun = false;
    std::array<std::vector<float>, kRanks> parameters, gradients;
};

class Program {
  public:
    explicit Program(Bytes bytes) : bytes_(bytes) {
        FUZZ_REQUIRE(onebit_comm_create_loopback(kRanks, comms_.data()) == ONEBIT_SUCCESS);
    }
    ~Program() {
        for (AllreduceSlot& slot : allreduces_) {
            if (slot.started) finish(slot);
            destroy(slot);
        }
        for (OptimizerSlot& slot : optimizers_) {
            if (slot.begun) step(slot);
            destroy(slot);
        }
        for (std::size_t r = 0; r < kRanks; ++r) {
            FUZZ_REQUIRE(onebit_comm_destroy(comms_[r]) == ONEBIT_SUCCESS);
            FUZZ_REQUIRE(onebit_comm_destroy(comms_[r]) == ONEBIT_ERROR_INVALID_HANDLE);
            FUZZ_REQUIRE(onebit_mem_free(memory_[r]) == ONEBIT_SUCCESS);
        }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void run() {
        for (int calls = 0; calls < 60 && !bytes_.empty(); ++calls) call();
    }

  private:
    void call() {
        AllreduceSlot& allreduce = allreduces_[bytes_.below(kSlots)];
        OptimizerSlot& optimizer = optimizers_[bytes_.below(kSlots)];
        switch (bytes_.below(18)) {
            case 0:
                return create(allreduce);
            case 1:
                return destroy(allreduce);
            case 2:
                return run(allreduce);
            case 3:
                return start(allreduce);
            case 4:
                return finish(allreduce);
            case 5:
                return set_mask(allreduce);
            case 6:
                return set_algorithm(allreduce);
            case 7:
                return repack(allreduce);
            case 8:
                return use_destroyed(allreduce);
            case 9:
                return create(optimizer);
            case 10:
                return destroy(optimizer);
            case 11:
                return set_gradients(optimizer);
            case 12:
                return step(optimizer);
            case 13:
                return grad_ready(optimizer);
            case 14:
                return change_settings(optimizer);
            case 15:
                return save_or_load(optimizer);
            case 16:
                return allocate();
            default:
                return tune();
        }
    }

    // ---- allreduce ----

    void create(AllreduceSlot& slot) {
        if (slot.used()) return;
        constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 31, 64, 1000, 2048, 4097, 9000};
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCounts[bytes_.below(std::size(kCounts))]);
        config.algorithm = static_cast<onebit_algorithm_t>(bytes_.below(8));
        config.scale = static_cast<onebit_scale_t>(bytes_.below(2));
        config.group = static_cast<onebit_group_t>(bytes_.below(2));
        config.check = static_cast<onebit_check_t>(bytes_.below(4));
        config.threads = static_cast<std::uint32_t>(bytes_.below(2));
        std::array configs = {config, config}; // of the ranks; at times they differ
        if (bytes_.rarely()) configs[1].count += 1;
        if (bytes_.rarely()) configs[bytes_.below(kRanks)].version = 77;
        if (bytes_.rarely()) configs[1].scale = static_cast<onebit_scale_t>(bytes_.byte());
        const std::size_t nobody = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const std::size_t nowhere = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const onebit_status_t status = collectively([&](std::size_t r) {
            return onebit_allreduce_create(comms_[r], r == nobody ? nullptr : &configs[r],
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
    }

    void use_destroyed(AllreduceSlot& slot) {
        const onebit_allreduce_t handle = slot.destroyed[0];
        if (handle == nullptr) return;
        std::array<float, 4> values{};
        FUZZ_REQUIRE(onebit_allreduce_run(handle, values.data(), values.data()) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_reset(handle) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_destroy(handle) == ONEBIT_ERROR_INVALID_HANDLE);
        FUZZ_REQUIRE(onebit_allreduce_destroy(reinterpret_cast<onebit_allreduce_t>(comms_[0])) ==
                     ONEBIT_ERROR_INVALID_HANDLE);
    }

    // What a call without checks leaves to its caller is right.
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
        const onebit_status_t status = collectively([&](std::size_t r) {
            return onebit_allreduce_start(slot.handles[r], buffers[r].input, buffers[r].output);
        });
        FUZZ_REQUIRE(status == ONEBIT_SUCCESS);
        slot.started = true;
    }

    void finish(AllreduceSlot& slot) {
        if (!slot.used()) return;
        const std::size_t tests = bytes_.below(4);
        const onebit_status_t status = collectively([&](std::size_t r) {
            int done = 0;
            for (std::size_t t = 0; t < tests * (r + 1) && done == 0; ++t) {
                const onebit_status_t tested = onebit_allreduce_test(slot.handles[r], &done);
                if (done != 0) return tested;
            }
            return onebit_allreduce_wait(slot.handles[r]);
        });
        if (slot.started) check_result(slot, status);
        slot.started = false;
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

    // ---- optimizers ----

    static constexpr std::size_t kTensors = 3;
    static constexpr std::array<std::size_t, kTensors> kSizes = {40, 300, 7};
    static constexpr std::size_t kElements = 347;

    void create(OptimizerSlot& slot) {
        if (slot.used()) return;
        onebit_optimizer_config_t config =
            ONEBIT_OPTIMIZER_CONFIG_INIT(static_cast<onebit_optimizer_kind_t>(bytes_.below(6)), 0.01);
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
        std::array configs = {config, config}; // as above
        if (bytes_.rarely()) configs[1].lr = bytes_.below(2) == 0 ? -1 : 0.5;
        if (bytes_.rarely()) configs[0].local_steps = 0;
        for (std::size_t r = 0; r < kRanks; ++r) {
            slot.parameters[r].assign(kElements, 0.25F);
            slot.gradients[r].assign(kElements, 0.125F);
        }
        const bool fewer = bytes_.rarely();
        const onebit_status_t status = collectively([&](std::size_t r) {
            std::array<onebit_tensor_t, kTensors> tensors;
            std::size_t at = 0;
            for (std::size_t k = 0; k < kTensors; at += kSizes[k++]) {
                tensors[k] =
                    ONEBIT_TENSOR_INIT(slot.parameters[r].data() + at, slot.gradients[r].data() + at, kSizes[k]);
            }
            return onebit_optimizer_create(comms_[r], &configs[r], tensors.data(), fewer && r == 1 ? 2 : kTensors,
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
    }

    void set_gradients(OptimizerSlot& slot) {
        if (!slot.used() || slot.begun) return;
        for (std::vector<float>& values : slot.gradients) {
            const std::uint8_t seed = bytes_.byte();
            const float scale = std::ldexp(1.0F, (bytes_.byte() % 40) - 30);
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = scale * static_cast<float>(static_cast<int>((i * 31 + seed) % 13) - 6);
            }
            if (bytes_.rarely()) values[bytes_.byte() % values.size()] = std::nanf("");
        }
    }

    void step(OptimizerSlot& slot) {
        if (!slot.used()) return;
        const std::size_t tests = bytes_.below(4); // 0: nothing is started
        const onebit_status_t status = collectively([&](std::size_t r) {
            if (tests == 0) return onebit_optimizer_step(slot.handles[r]);
            const onebit_status_t started = onebit_optimizer_step_start(slot.handles[r]);
            if (started != ONEBIT_SUCCESS) return started;
            int done = 0;
            for (std::size_t t = 0; t < tests * (r + 1) && done == 0; ++t) {
                const onebit_status_t tested = onebit_optimizer_step_test(slot.handles[r], &done);
                if (done != 0) return tested;
                int active = 0;
                FUZZ_REQUIRE(onebit_comm_progress(comms_[r], &active) == ONEBIT_SUCCESS);
            }
            return onebit_optimizer_step_wait(slot.handles[r]);
        });
        slot.begun = false;
        for (const std::vector<float>& values : slot.parameters) {
            for (const float value : values) FUZZ_REQUIRE(std::isfinite(value));
        }
        // 0/1 Adam's ranks go their own ways between two rounds.
        const bool drifts = slot.config.kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
        FUZZ_REQUIRE(status != ONEBIT_SUCCESS || drifts || slot.parameters[0] == slot.parameters[1]);
    }

    void grad_ready(OptimizerSlot& slot) {
        if (!slot.used()) return;
        const std::size_t tensor = bytes_.below(kTensors + 1);
        const std::size_t first = bytes_.below(kRanks + 1); // that rank alone, or both
        on_both([&](std::size_t r) {
            if (first < kRanks && r != first) return ONEBIT_SUCCESS;
            return onebit_optimizer_grad_ready(slot.handles[r], tensor);
        });
        // Whether a step has begun: a rank is busy then.
        const double lr = 0.01;
        const Statuses busy = on_both([&](std::size_t r) { return onebit_optimizer_set_lr(slot.handles[r], lr); });
        slot.begun = busy[0] == ONEBIT_ERROR_BUSY || busy[1] == ONEBIT_ERROR_BUSY;
        if (slot.begun && busy[0] != busy[1]) step(slot); // it is over on both
    }

    void change_settings(OptimizerSlot& slot) {
        if (!slot.used() || slot.begun) return;
        const double lr = bytes_.below(8) == 0 ? std::nan("") : 0.001 * static_cast<double>(bytes_.byte());
        const bool alone = bytes_.rarely();
        on_both([&](std::size_t r) {
            return alone && r == 1 ? ONEBIT_SUCCESS : onebit_optimizer_set_lr(slot.handles[r], lr);
        });
        const std::size_t what = bytes_.below(6);
        agreed(on_both([&](std::size_t r) {
            if (what == 0) return onebit_optimizer_freeze(slot.handles[r]);
            if (what == 1) return onebit_optimizer_reset_error(slot.handles[r]);
            if (what == 2) return onebit_optimizer_set_gradient_scale(slot.handles[r], 4);
            std::vector<float> worker(kElements);
            return onebit_optimizer_get_error(slot.handles[r], worker.data(), nullptr);
        }));
    }

    void save_or_load(OptimizerSlot& slot) {
        if (!slot.used() || slot.begun) return;
        const std::string prefix = directory().file("state");
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

    // ---- the communicator ----

    void allocate() {
        if (memory_[0] != nullptr) {
            for (void*& memory : memory_) {
                FUZZ_REQUIRE(onebit_mem_free(memory) == ONEBIT_SUCCESS);
                FUZZ_REQUIRE(onebit_mem_free(memory) == ONEBIT_ERROR_INVALID_ARGUMENT);
                memory = nullptr;
            }
        }
        const std::size_t none = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const onebit_status_t status = collectively(
            [&](std::size_t r) { return onebit_mem_alloc(comms_[r], r == none ? 0 : 1000 + r, &memory_[r]); });
        FUZZ_REQUIRE((status == ONEBIT_SUCCESS) == (none == kRanks));
    }

    void tune() {
        if (bytes_.below(4) != 0) return; // takes long
        const std::uint64_t count = 2 * bytes_.below(100);
        const std::size_t other = bytes_.rarely() ? 1 : 0;
        collectively([&](std::size_t r) { return onebit_comm_tune(comms_[r], count + r * other, 1e-6, nullptr); });
    }

    Bytes bytes_;
    std::array<onebit_comm_t, kRanks> comms_{};
    std::array<AllreduceSlot, kSlots> allreduces_;
    std::array<OptimizerSlot, kSlots> optimizers_;
    std::array<void*, kRanks> memory_{};
};

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int once = setenv("ONEBIT_TIMEOUT", "5", 1) + setenv("ONEBIT_MEASURE", "0", 1);
    (void)once;
    Program(Bytes(data, size)).run();
    directory().clear();
    return 0;
}
