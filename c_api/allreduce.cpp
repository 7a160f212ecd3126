// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/allreduce.hpp"

#include "c_api/collectives.hpp"
#include "collectives/selection/choose_codec.hpp"

using onebit::Allreduce;
using onebit::Communicator;
using onebit::Status;

onebit_status_t onebit_allreduce_create(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                        onebit_allreduce_t* allreduce) noexcept {
    return onebit::create_collective<Allreduce>(comm, config, allreduce, "allreduce", "allreduce");
}

onebit_status_t onebit_allreduce_choose_codec(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                              double max_error, onebit_codec_t* codec) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](Communicator& communicator) {
        return onebit::together(communicator, [&] {
            const Status own =
                codec == nullptr ? Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "codec is NULL") : Status();
            return onebit::choose_codec(communicator, config, max_error, own, codec);
        });
    });
}

onebit_status_t onebit_allreduce_run(onebit_allreduce_t allreduce, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::run_collective<Allreduce>(allreduce, sendbuf, recvbuf);
}

onebit_status_t onebit_allreduce_start(onebit_allreduce_t allreduce, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::start_collective<Allreduce>(allreduce, sendbuf, recvbuf);
}

onebit_status_t onebit_allreduce_test(onebit_allreduce_t allreduce, int* done) noexcept {
    return onebit::test_collective<Allreduce>(allreduce, done);
}

onebit_status_t onebit_allreduce_wait(onebit_allreduce_t allreduce) noexcept {
    return onebit::wait_for_collective<Allreduce>(allreduce);
}

onebit_status_t onebit_allreduce_set_callback(onebit_allreduce_t allreduce, onebit_callback_fn callback,
                                              void* context) noexcept {
    return onebit::guard_callback<Allreduce>(allreduce, {callback, context});
}

onebit_status_t onebit_allreduce_set_algorithm(onebit_allreduce_t allreduce, onebit_algorithm_t algorithm) noexcept {
    return onebit::set_algorithm_of<Allreduce>(allreduce, algorithm);
}

onebit_status_t onebit_allreduce_set_mask(onebit_allreduce_t allreduce, const uint32_t* mask) noexcept {
    return onebit::guard_together<Allreduce>(allreduce, [&](Allreduce& a) { return a.set_mask(mask); });
}

onebit_status_t onebit_allreduce_get_error(onebit_allreduce_t allreduce, float* worker, float* server,
                                           uint64_t* server_begin, uint64_t* server_count) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) {
        ONEBIT_RETURN_IF_ERROR(a.get_error(worker, server));
        if (server_begin != nullptr) *server_begin = a.server_chunk().begin;
        if (server_count != nullptr) *server_count = a.server_chunk().count;
        return Status();
    });
}

onebit_status_t onebit_allreduce_get_info(onebit_allreduce_t allreduce, onebit_allreduce_info_t* info) noexcept {
    return onebit::give_info_of<Allreduce>(allreduce, info);
}

onebit_status_t onebit_allreduce_get_level(onebit_allreduce_t allreduce, uint32_t level, onebit_level_info_t* info,
                                           float* error) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) {
        const onebit::LevelsAllreduce* levels = nullptr;
        ONEBIT_RETURN_IF_ERROR(a.find_level(level, &levels));
        ONEBIT_RETURN_IF_ERROR(
            onebit::give_info(info, [&](onebit_level_info_t* filled) { levels->fill_info(level, filled); }));
        if (error != nullptr) levels->get_error(level, error);
        return Status();
    });
}

onebit_status_t onebit_allreduce_destroy(onebit_allreduce_t allreduce) noexcept {
    return onebit::destroy_collective<Allreduce>(allreduce);
}

onebit_status_t onebit_allreduce_reset(onebit_allreduce_t allreduce) noexcept {
    return onebit::reset_collective<Allreduce>(allreduce);
}

onebit_status_t onebit_allreduce_state_size(onebit_allreduce_t allreduce, uint64_t* bytes) noexcept {
    return onebit::state_size_of<Allreduce>(allreduce, bytes);
}

onebit_status_t onebit_allreduce_pack_state(onebit_allreduce_t allreduce, void* buffer, uint64_t bytes) noexcept {
    return onebit::pack_state_of<Allreduce>(allreduce, buffer, bytes);
}

onebit_status_t onebit_allreduce_unpack_state(onebit_allreduce_t allreduce, const void* buffer,
                                              uint64_t bytes) noexcept {
    return onebit::unpack_state_of<Allreduce>(allreduce, buffer, bytes);
}

onebit_status_t onebit_allreduce_save(onebit_allreduce_t allreduce, const char* prefix) noexcept {
    return onebit::save_collective<Allreduce>(allreduce, prefix);
}

onebit_status_t onebit_allreduce_load(onebit_allreduce_t allreduce, const char* prefix) noexcept {
    return onebit::load_collective<Allreduce>(allreduce, prefix);
}
