// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/all_gather.hpp"

#include "c_api/collectives.hpp"

using onebit::AllGather;

onebit_status_t onebit_all_gather_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                         onebit_all_gather_t* all_gather) noexcept {
    return onebit::create_collective<AllGather>(comm, config, all_gather, "all_gather", "all-gather");
}

onebit_status_t onebit_all_gather_run(onebit_all_gather_t all_gather, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::run_collective<AllGather>(all_gather, sendbuf, recvbuf);
}

onebit_status_t onebit_all_gather_start(onebit_all_gather_t all_gather, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::start_collective<AllGather>(all_gather, sendbuf, recvbuf);
}

onebit_status_t onebit_all_gather_test(onebit_all_gather_t all_gather, int* done) noexcept {
    return onebit::test_collective<AllGather>(all_gather, done);
}

onebit_status_t onebit_all_gather_wait(onebit_all_gather_t all_gather) noexcept {
    return onebit::wait_for_collective<AllGather>(all_gather);
}

onebit_status_t onebit_all_gather_set_callback(onebit_all_gather_t all_gather, onebit_callback_fn callback,
                                               void* context) noexcept {
    return onebit::guard_callback<AllGather>(all_gather, {callback, context});
}

onebit_status_t onebit_all_gather_set_algorithm(onebit_all_gather_t all_gather, onebit_algorithm_t algorithm) noexcept {
    return onebit::set_algorithm_of<AllGather>(all_gather, algorithm);
}

onebit_status_t onebit_all_gather_get_error(onebit_all_gather_t all_gather, float* error) noexcept {
    return onebit::guard_object<AllGather>(all_gather, [&](AllGather& object) { return object.get_error(error); });
}

onebit_status_t onebit_all_gather_get_info(onebit_all_gather_t all_gather, onebit_shard_info_t* info) noexcept {
    return onebit::give_info_of<AllGather>(all_gather, info);
}

onebit_status_t onebit_all_gather_destroy(onebit_all_gather_t all_gather) noexcept {
    return onebit::destroy_collective<AllGather>(all_gather);
}

onebit_status_t onebit_all_gather_reset(onebit_all_gather_t all_gather) noexcept {
    return onebit::reset_collective<AllGather>(all_gather);
}

onebit_status_t onebit_all_gather_state_size(onebit_all_gather_t all_gather, uint64_t* bytes) noexcept {
    return onebit::state_size_of<AllGather>(all_gather, bytes);
}

onebit_status_t onebit_all_gather_pack_state(onebit_all_gather_t all_gather, void* buffer, uint64_t bytes) noexcept {
    return onebit::pack_state_of<AllGather>(all_gather, buffer, bytes);
}

onebit_status_t onebit_all_gather_unpack_state(onebit_all_gather_t all_gather, const void* buffer,
                                               uint64_t bytes) noexcept {
    return onebit::unpack_state_of<AllGather>(all_gather, buffer, bytes);
}

onebit_status_t onebit_all_gather_save(onebit_all_gather_t all_gather, const char* prefix) noexcept {
    return onebit::save_collective<AllGather>(all_gather, prefix);
}

onebit_status_t onebit_all_gather_load(onebit_all_gather_t all_gather, const char* prefix) noexcept {
    return onebit::load_collective<AllGather>(all_gather, prefix);
}
