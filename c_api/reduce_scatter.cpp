// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/reduce_scatter.hpp"

#include "c_api/collectives.hpp"

using onebit::ReduceScatter;

onebit_status_t onebit_reduce_scatter_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                             onebit_reduce_scatter_t* reduce_scatter) noexcept {
    return onebit::create_collective<ReduceScatter>(comm, config, reduce_scatter, "reduce_scatter", "reduce-scatter");
}

onebit_status_t onebit_reduce_scatter_run(onebit_reduce_scatter_t reduce_scatter, const void* sendbuf,
                                          void* recvbuf) noexcept {
    return onebit::run_collective<ReduceScatter>(reduce_scatter, sendbuf, recvbuf);
}

onebit_status_t onebit_reduce_scatter_start(onebit_reduce_scatter_t reduce_scatter, const void* sendbuf,
                                            void* recvbuf) noexcept {
    return onebit::start_collective<ReduceScatter>(reduce_scatter, sendbuf, recvbuf);
}

onebit_status_t onebit_reduce_scatter_test(onebit_reduce_scatter_t reduce_scatter, int* done) noexcept {
    return onebit::test_collective<ReduceScatter>(reduce_scatter, done);
}

onebit_status_t onebit_reduce_scatter_wait(onebit_reduce_scatter_t reduce_scatter) noexcept {
    return onebit::wait_for_collective<ReduceScatter>(reduce_scatter);
}

onebit_status_t onebit_reduce_scatter_set_callback(onebit_reduce_scatter_t reduce_scatter, onebit_callback_fn callback,
                                                   void* context) noexcept {
    return onebit::guard_callback<ReduceScatter>(reduce_scatter, {callback, context});
}

onebit_status_t onebit_reduce_scatter_set_algorithm(onebit_reduce_scatter_t reduce_scatter,
                                                    onebit_algorithm_t algorithm) noexcept {
    return onebit::set_algorithm_of<ReduceScatter>(reduce_scatter, algorithm);
}

onebit_status_t onebit_reduce_scatter_get_error(onebit_reduce_scatter_t reduce_scatter, float* error) noexcept {
    return onebit::guard_object<ReduceScatter>(reduce_scatter,
                                               [&](ReduceScatter& object) { return object.get_error(error); });
}

onebit_status_t onebit_reduce_scatter_get_info(onebit_reduce_scatter_t reduce_scatter,
                                               onebit_shard_info_t* info) noexcept {
    return onebit::give_info_of<ReduceScatter>(reduce_scatter, info);
}

onebit_status_t onebit_reduce_scatter_destroy(onebit_reduce_scatter_t reduce_scatter) noexcept {
    return onebit::destroy_collective<ReduceScatter>(reduce_scatter);
}

onebit_status_t onebit_reduce_scatter_reset(onebit_reduce_scatter_t reduce_scatter) noexcept {
    return onebit::reset_collective<ReduceScatter>(reduce_scatter);
}

onebit_status_t onebit_reduce_scatter_state_size(onebit_reduce_scatter_t reduce_scatter, uint64_t* bytes) noexcept {
    return onebit::state_size_of<ReduceScatter>(reduce_scatter, bytes);
}

onebit_status_t onebit_reduce_scatter_pack_state(onebit_reduce_scatter_t reduce_scatter, void* buffer,
                                                 uint64_t bytes) noexcept {
    return onebit::pack_state_of<ReduceScatter>(reduce_scatter, buffer, bytes);
}

onebit_status_t onebit_reduce_scatter_unpack_state(onebit_reduce_scatter_t reduce_scatter, const void* buffer,
                                                   uint64_t bytes) noexcept {
    return onebit::unpack_state_of<ReduceScatter>(reduce_scatter, buffer, bytes);
}

onebit_status_t onebit_reduce_scatter_save(onebit_reduce_scatter_t reduce_scatter, const char* prefix) noexcept {
    return onebit::save_collective<ReduceScatter>(reduce_scatter, prefix);
}

onebit_status_t onebit_reduce_scatter_load(onebit_reduce_scatter_t reduce_scatter, const char* prefix) noexcept {
    return onebit::load_collective<ReduceScatter>(reduce_scatter, prefix);
}
