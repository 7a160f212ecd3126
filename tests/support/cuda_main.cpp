// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// For tests that need a GPU. Exit status 77: there is none.
#include <cuda_runtime.h>

#include <cstdio>

#include "support/run_tests.hpp"

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // what was printed before a crash is in the log
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        std::printf("skipped: no CUDA device: %s\n",
                    cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
        return 77;
    }
    return onebit::test::run_tests(argc, argv);
}
