// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The headers are valid C++17, their functions noexcept, and C and C++ agree about the structs.
#include <onebit/onebit.h>
#include <onebit/onebit_mpi.h>
#include <onebit/onebit_nccl.h>

#include <onebit/onebit.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

static_assert(noexcept(onebit_allreduce_run(nullptr, nullptr, nullptr)), "a C entry never throws");
static_assert(noexcept(onebit_reduce_scatter_run(nullptr, nullptr, nullptr)), "a C entry never throws");
static_assert(noexcept(onebit_all_gather_run(nullptr, nullptr, nullptr)), "a C entry never throws");
static_assert(noexcept(onebit_comm_create_mpi(MPI_COMM_NULL, nullptr)), "a C entry never throws");
static_assert(noexcept(onebit_comm_create_nccl(nullptr, nullptr, nullptr)), "a C entry never throws");
static_assert(std::is_trivially_copyable<onebit_allreduce_config_t>::value, "plain data");
static_assert(std::is_trivially_copyable<onebit_shard_config_t>::value, "plain data");
static_assert(std::is_standard_layout<onebit_optimizer_config_t>::value, "plain data");
static_assert(std::is_standard_layout<onebit_tensor_t>::value, "plain data");
static_assert(!std::is_same<onebit_comm_t, onebit_allreduce_t>::value, "handles of one type are not another's");
static_assert(!std::is_convertible<onebit_optimizer_t, onebit_allreduce_t>::value, "nor convertible");
static_assert(!std::is_convertible<onebit_reduce_scatter_t, onebit_all_gather_t>::value, "nor convertible");
static_assert(ONEBIT_FREEZE_NEVER == UINT64_MAX && ONEBIT_FREEZE_AUTO == 0, "the special freeze steps");
static_assert(ONEBIT_FREEZE_PAPER == UINT64_MAX - 1, "and the third");
// Enumerators are part of the ABI.
static_assert(ONEBIT_SUCCESS == 0 && ONEBIT_ERROR_INVALID_ARGUMENT == 1 && ONEBIT_ERROR_INTERNAL == 12, "ABI");
static_assert(ONEBIT_ERROR_CANCELLED == 13, "ABI");
static_assert(ONEBIT_FREEZE_WAIT_NONE == 0 && ONEBIT_FREEZE_WAIT_PARAMETERS == 4, "ABI");
static_assert(ONEBIT_ALGORITHM_AUTO == 0 && ONEBIT_ALGORITHM_DENSE == 1 && ONEBIT_ALGORITHM_FLAT == 2, "ABI");
static_assert(ONEBIT_ALGORITHM_PIPELINED == 3 && ONEBIT_ALGORITHM_TWO_LEVEL == 4 && ONEBIT_ALGORITHM_BRUCK == 5, "ABI");
static_assert(ONEBIT_ALGORITHM_RING == 6 && ONEBIT_ALGORITHM_LEVELS == 7, "ABI");
static_assert(ONEBIT_SCALE_L2 == 0 && ONEBIT_SCALE_L1 == 1, "ABI");
static_assert(ONEBIT_GROUP_BLOCK == 0 && ONEBIT_GROUP_BUFFER == 1 && ONEBIT_GROUP_TENSOR == 2, "ABI");

static_assert(!std::is_copy_constructible<onebit::Allreduce>::value, "a handle has one owner");
static_assert(!std::is_copy_constructible<onebit::ReduceScatter>::value, "a handle has one owner");
static_assert(std::is_nothrow_move_constructible<onebit::AllGather>::value, "which may change");
static_assert(std::is_nothrow_move_constructible<onebit::Optimizer>::value, "which may change");

// The C++ layer: handles that destroy themselves, errors as exceptions.
static bool cpp_layer_works() {
    const std::vector<onebit::Communicator> comms = onebit::Communicator::loopback(1);
    std::vector<float> values = {1, -1, 1, -1}; // outlives the handle
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(4);
    config.algorithm = ONEBIT_ALGORITHM_FLAT;
    onebit::Allreduce first(comms[0], config);
    onebit::Allreduce moved(std::move(first));
    moved.run(values.data());
    moved.start(values.data(), values.data()); // finished by the destructor
    const onebit_comm_info_t comm = comms[0].info();
    if (comm.nodes != 1 || std::string(comm.transport) != "loopback" || comm.reason[0] != '\0') return false;
    onebit::SharedArray<float> array(comms[0], 4);
    array[3] = 2;
    const onebit::SharedArray<float> kept(std::move(array));
    if (kept.size() != 4 || kept.end()[-1] != 2 || kept[0] != 0 || array.size() != 0) return false;
    const bool averaged = values[0] == 1 && values[1] == -1 && first.get() == nullptr && moved.info().calls == 1;

    config.count = 0;
    try {
        onebit::Allreduce(comms[0], config);
        return false;
    } catch (const onebit::Error& error) {
        return averaged && error.status() == ONEBIT_ERROR_INVALID_ARGUMENT &&
               std::string(error.what()).find("count") != std::string::npos;
    }
}

// Started operations: a step, progress of all, and a callback, which counts.
static bool cpp_layer_starts() {
    std::vector<onebit::Communicator> comms = onebit::Communicator::loopback(1);
    std::vector<float> x(100, 1.0F), g(100, 0.5F);
    int successes = 0;
    const auto count = [](void* context, onebit_status_t status) {
        *static_cast<int*>(context) += status == ONEBIT_SUCCESS ? 1 : 0;
    };
    const onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.5);
    onebit::Optimizer optimizer(comms[0], config, {ONEBIT_TENSOR_INIT(x.data(), g.data(), 100)});
    optimizer.set_callback(count, &successes);
    optimizer.step_start();
    while (!optimizer.step_test()) {
    }
    optimizer.step_start();
    while (comms[0].progress() > 0) {
    }
    optimizer.step_start();
    optimizer.step_wait();
    onebit::Allreduce allreduce(comms[0], ONEBIT_ALLREDUCE_CONFIG_INIT(100));
    allreduce.set_callback(count, &successes);
    allreduce.start(g.data(), g.data());
    allreduce.wait();
    optimizer.step_start(); // finished by the destructor
    return successes == 4 && optimizer.info().steps >= 3;
}

extern "C" int onebit_header_test_cpp(void) {
    const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(7);
    const onebit_optimizer_config_t adam = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.5);
    const onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
    float parameter = 0, gradient = 0;
    const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(&parameter, &gradient, 1);
    const bool good = config.count == 7 && config.check == ONEBIT_CHECK_FULL && adam.lr == 0.5 &&
                      info.size == sizeof info && tensor.gradients == &gradient && tensor.name == nullptr;
    return good && cpp_layer_works() && cpp_layer_starts() ? 0 : 1;
}
