// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Sequences of C calls on two ranks that are threads. The input is a program: a byte for the call, then bytes for its
// arguments. Arguments may be invalid or another rank's. Requirements: no call hangs (libFuzzer's -timeout) or breaks a
// handle. A collective call has one status on both ranks. SUCCESS means the same bits on both, finite if all input was
// finite. A destroyed handle is recognised.
#include <array>
#include <string>

#include "fuzz/allreduce_calls.hpp"
#include "fuzz/optimizer_calls.hpp"
#include "fuzz/two_ranks.hpp"

namespace {

using namespace onebit_fuzz;

// Of what a program saves.
Directory& directory() {
    static Directory made("calls");
    return made;
}

class Program {
  public:
    explicit Program(Bytes bytes) : bytes_(bytes) {
        FUZZ_REQUIRE(onebit_comm_create_loopback(kRanks, comms_.whole.data()) == ONEBIT_SUCCESS);
    }
    ~Program() {
        leave_part();
        for (std::size_t r = 0; r < kRanks; ++r) {
            FUZZ_REQUIRE(onebit_comm_destroy(comms_.whole[r]) == ONEBIT_SUCCESS);
            FUZZ_REQUIRE(onebit_comm_destroy(comms_.whole[r]) == ONEBIT_ERROR_INVALID_HANDLE);
            FUZZ_REQUIRE(onebit_mem_free(memory_[r]) == ONEBIT_SUCCESS);
        }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void run() {
        AllreduceCalls allreduces(bytes_, comms_);
        OptimizerCalls optimizers(bytes_, comms_, directory());
        for (int calls = 0; calls < 60 && !bytes_.empty(); ++calls) {
            switch (bytes_.below(3)) {
                case 0:
                    allreduces.call();
                    break;
                case 1:
                    optimizers.call();
                    break;
                default:
                    call();
            }
        }
    }

  private:
    void call() {
        switch (bytes_.below(4)) {
            case 0:
                return split();
            case 1:
                return set();
            case 2:
                return allocate();
            default:
                return tune();
        }
    }

    void split() {
        leave_part();
        const std::array colors = {static_cast<int>(bytes_.below(3)) - 1, static_cast<int>(bytes_.below(3)) - 1};
        const std::array keys = {static_cast<int>(bytes_.below(3)), static_cast<int>(bytes_.below(3))};
        const std::size_t nowhere = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const onebit_status_t status = collectively([&](std::size_t r) {
            return onebit_comm_split(comms_.whole[r], colors[r], keys[r], r == nowhere ? nullptr : &comms_.part[r]);
        });
        FUZZ_REQUIRE((status == ONEBIT_SUCCESS) == (nowhere == kRanks));
        const bool together = colors[0] == colors[1];
        for (std::size_t r = 0; r < kRanks; ++r) {
            FUZZ_REQUIRE((comms_.part[r] != nullptr) == (status == ONEBIT_SUCCESS && colors[r] >= 0));
            if (comms_.part[r] == nullptr) continue;
            int size = 0, rank = -1;
            FUZZ_REQUIRE(onebit_comm_size(comms_.part[r], &size) == ONEBIT_SUCCESS && size == (together ? 2 : 1));
            FUZZ_REQUIRE(onebit_comm_rank(comms_.part[r], &rank) == ONEBIT_SUCCESS);
            const int expected = keys[0] > keys[1] ? 1 - static_cast<int>(r) : static_cast<int>(r);
            FUZZ_REQUIRE(rank == (together ? expected : 0));
        }
        if (!together) leave_part();
    }

    // Handles made from a part continue to work.
    void leave_part() {
        for (onebit_comm_t& part : comms_.part) {
            FUZZ_REQUIRE(onebit_comm_destroy(part) == ONEBIT_SUCCESS);
            part = nullptr;
        }
    }

    void set() {
        // But for ONEBIT_TIMEOUT: a call that doesn't end must be seen.
        constexpr std::array kNames = {"ONEBIT_ALGORITHM", "ONEBIT_PIECE",         "ONEBIT_SECOND_ERROR",
                                       "ONEBIT_RADIX",     "ONEBIT_DETERMINISTIC", "ONEBIT_THREADS",
                                       "ONEBIT_NODE_SIZE", "ONEBIT_NONE",          "ONEBIT_KERNELS"};
        constexpr std::array kValues = {"", "1", "2", "0", "flat", "two_level", "reference", "-1", "1e9"};
        std::array names = {kNames[bytes_.below(kNames.size())], ""};
        std::array values = {kValues[bytes_.below(kValues.size())], ""};
        names[1] = bytes_.rarely() ? kNames[bytes_.below(kNames.size())] : names[0];
        values[1] = bytes_.rarely() ? kValues[bytes_.below(kValues.size())] : values[0];
        const std::size_t none = bytes_.rarely() ? bytes_.below(kRanks) : kRanks;
        const onebit_status_t status = collectively(
            [&](std::size_t r) { return onebit_comm_set(comms_.whole[r], names[r], r == none ? nullptr : values[r]); });
        FUZZ_REQUIRE(status != ONEBIT_SUCCESS || (none == kRanks && names[0] == names[1]));
    }

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
            [&](std::size_t r) { return onebit_mem_alloc(comms_.whole[r], r == none ? 0 : 1000 + r, &memory_[r]); });
        FUZZ_REQUIRE((status == ONEBIT_SUCCESS) == (none == kRanks));
    }

    void tune() {
        if (bytes_.below(4) != 0) return; // takes long
        const std::uint64_t count = 2 * bytes_.below(100);
        const std::size_t other = bytes_.rarely() ? 1 : 0;
        const auto codec = static_cast<onebit_codec_t>(bytes_.below(ONEBIT_CODEC_POWERSGD + 2));
        collectively([&](std::size_t r) {
            return onebit_comm_tune_codecs(comms_.whole[r], &codec, 1, count + r * other, 1e-6, nullptr);
        });
    }

    Bytes bytes_;
    Communicators comms_;
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
