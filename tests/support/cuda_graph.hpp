// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Work that is captured from a stream and replayed, beside the same work without a graph.
#pragma once

#include <cuda_runtime.h>

#include "support/catch2.hpp"

namespace onebit_test {

/// The work that launch(stream) puts into a stream, as a graph. The capture ends in any case: during a capture nothing
/// else could be done on the GPU.
template <typename Launch>
cudaGraph_t capture(cudaStream_t stream, const Launch& launch) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    try {
        launch(stream);
    } catch (...) {
        (void)cudaStreamEndCapture(stream, &graph);
        throw;
    }
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return graph;
}

/// Runs what launch(stream) puts into a stream, so many times: captured once and replayed, or launched each time.
/// prepare(i) comes before each run, while the stream is empty.
template <typename Launch, typename Prepare>
void run_steps(bool captured, int times, const Launch& launch, const Prepare& prepare) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    if (captured) {
        graph = capture(stream, launch);
        REQUIRE(cudaGraphInstantiate(&program, graph, 0) == cudaSuccess);
    }
    for (int i = 0; i < times; ++i) {
        prepare(i);
        if (captured) {
            REQUIRE(cudaGraphLaunch(program, stream) == cudaSuccess);
        } else {
            launch(stream);
        }
        REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    }
    if (captured) {
        REQUIRE(cudaGraphExecDestroy(program) == cudaSuccess);
        REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    }
    REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
}

} // namespace onebit_test
