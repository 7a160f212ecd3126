// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The basis of the tests on an emulated GPU.

#include "support/emulated_device.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "compress/device_memory.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

/// Whether a process that writes to this address ends by a segmentation fault.
bool is_out_of_reach(volatile float* place) {
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL); // no handler of a sanitizer's or a test's
        *place = 1;
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST_CASE("the host can't reach the emulated GPU's memory, nor anybody what was released", "[cuda]") {
    volatile float* there = nullptr;
    {
        const DeviceArray<float> array(std::vector<float>(5000, 3.0F));
        there = onebit_test::on_device(array.data());
        CHECK(is_out_of_reach(array.data()));
        CHECK(is_out_of_reach(array.data() + 4999));
        CHECK(there[4999] == 3);
        CHECK_FALSE(is_out_of_reach(there));
    }
    CHECK(is_out_of_reach(there));
}

} // namespace
} // namespace onebit
