// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Handles on a GPU's memory, over a transport that reaches it: only on the emulated GPU, because such a transport is
// available there on any machine.

#include "support/device_aware.hpp"

#include <string>
#include <vector>

#include "collectives/allreduce.hpp"
#include "compress/device_memory.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/environment.hpp"
#include "support/loopback_ranks.hpp"

namespace onebit {
namespace {

constexpr std::size_t kCount = 9001;

struct Outcome {
    std::vector<float> average;
    std::string transport;
    Status status;
};

Status run_rank(onebit_memory_t memory, onebit_algorithm_t form, std::unique_ptr<Transport> transport,
                Outcome* outcome) {
    const int rank = transport->rank();
    std::unique_ptr<Communicator> communicator;
    ONEBIT_RETURN_IF_ERROR(Communicator::create(
        std::make_unique<onebit_test::DeviceAwareTransport>(std::move(transport)), {}, &communicator));
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
    config.algorithm = form;
    config.memory = memory;
    std::unique_ptr<Allreduce> handle;
    ONEBIT_RETURN_IF_ERROR(Allreduce::create(*communicator, &config, {}, &handle));
    AlignedBuffer<float> buffer(kCount, memory == ONEBIT_MEMORY_CUDA ? device_memory() : host_memory());
    for (unsigned step = 0; step < 3; ++step) {
        buffer.copy_from(onebit_test::make_data(onebit_test::Kind::gaussian, kCount, 1, rank, step).data());
        ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
    }
    outcome->average.resize(kCount);
    buffer.copy_to(outcome->average.data());
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    handle->fill_info(&info);
    outcome->transport = info.transport;
    return {};
}

std::vector<Outcome> run_all(onebit_memory_t memory, onebit_algorithm_t form) {
    return onebit_test::run_loopback_ranks<Outcome>(3, [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
        return run_rank(memory, form, std::move(transport), outcome);
    });
}

TEST_CASE("over a transport that reaches a GPU's memory messages go there directly, if the environment lets them",
          "[cuda][direct]") {
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED);
    const std::vector<Outcome> on_host = run_all(ONEBIT_MEMORY_HOST, form);
    for (const char* const path : {"", "direct", "staged"}) {
        const onebit_test::Variable variable("ONEBIT_GPU_PATH", path);
        const std::vector<Outcome> on_gpu = run_all(ONEBIT_MEMORY_CUDA, form);
        for (std::size_t r = 0; r < on_gpu.size(); ++r) {
            CAPTURE(path, r, on_gpu[r].status.message());
            REQUIRE(on_gpu[r].status.ok());
            CHECK(on_gpu[r].average == on_host[r].average);
            CHECK(on_gpu[r].transport == (std::string(path) == "staged" ? "loopback, staged" : "loopback, direct"));
        }
    }
}

} // namespace
} // namespace onebit
