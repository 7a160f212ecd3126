// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/allreduce.hpp"

#include "c_api/guard.hpp"
#include "collectives/state.hpp"
#include "collectives/together.hpp"

using onebit::Allreduce;
using onebit::Status;

onebit_status_t onebit_allreduce_create(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                        onebit_allreduce_t* allreduce) noexcept {
    return onebit::guard([&] {
        onebit::Output<Allreduce, onebit_allreduce_t> output(allreduce, "allreduce", comm);
        return onebit::with_object<onebit::Communicator>(comm, [&](onebit::Communicator& communicator) {
            std::unique_ptr<Allreduce> made;
            ONEBIT_RETURN_IF_ERROR(onebit::together(
                communicator, [&] { return Allreduce::create(communicator, config, output.status(), &made); }));
            made->plan().tell(communicator);
            output.put(std::move(made));
            return Status();
        });
    });
}

onebit_status_t onebit_allreduce_run(onebit_allreduce_t allreduce, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) { return a.run(sendbuf, recvbuf); });
}

onebit_status_t onebit_allreduce_start(onebit_allreduce_t allreduce, const void* sendbuf, void* recvbuf) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) { return a.start(sendbuf, recvbuf); });
}

onebit_status_t onebit_allreduce_test(onebit_allreduce_t allreduce, int* done) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) {
        return onebit::tell_done(done, [&](bool* finished) { return a.test(finished); });
    });
}

onebit_status_t onebit_allreduce_wait(onebit_allreduce_t allreduce) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [](Allreduce& a) { return a.wait(); });
}

onebit_status_t onebit_allreduce_set_callback(onebit_allreduce_t allreduce, onebit_callback_fn callback,
                                              void* context) noexcept {
    return onebit::guard_callback<Allreduce>(allreduce, {callback, context});
}

onebit_status_t onebit_allreduce_set_algorithm(onebit_allreduce_t allreduce, onebit_algorithm_t algorithm) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) { return a.set_algorithm(algorithm); });
}

onebit_status_t onebit_allreduce_set_mask(onebit_allreduce_t allreduce, const uint32_t* mask) noexcept {
    return onebit::guard_object<Allreduce>(
        allreduce, [&](Allreduce& a) { return onebit::together(a, [&] { return a.set_mask(mask); }); });
}

onebit_status_t onebit_allreduce_get_info(onebit_allreduce_t allreduce, onebit_allreduce_info_t* info) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](const Allreduce& a) {
        return onebit::give_info(info, [&](onebit_allreduce_info_t* filled) { a.fill_info(filled); });
    });
}

onebit_status_t onebit_allreduce_destroy(onebit_allreduce_t allreduce) noexcept {
    return onebit::guard_destroy<Allreduce>(allreduce, [](const Allreduce& a) { return a.check_destroyable(); });
}

onebit_status_t onebit_allreduce_reset(onebit_allreduce_t allreduce) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [](Allreduce& a) { return a.reset(); });
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

onebit_status_t onebit_allreduce_state_size(onebit_allreduce_t allreduce, uint64_t* bytes) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) {
        ONEBIT_RETURN_IF_ERROR(a.check_idle());
        if (bytes == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes is NULL");
        *bytes = onebit::state_size(a);
        return Status();
    });
}

onebit_status_t onebit_allreduce_pack_state(onebit_allreduce_t allreduce, void* buffer, uint64_t bytes) noexcept {
    return onebit::guard_object<Allreduce>(allreduce,
                                           [&](Allreduce& a) { return onebit::pack_state(a, buffer, bytes); });
}

onebit_status_t onebit_allreduce_unpack_state(onebit_allreduce_t allreduce, const void* buffer,
                                              uint64_t bytes) noexcept {
    return onebit::guard_object<Allreduce>(allreduce, [&](Allreduce& a) {
        return onebit::together(a, [&] { return onebit::unpack_state(a, buffer, bytes); });
    });
}

onebit_status_t onebit_allreduce_save(onebit_allreduce_t allreduce, const char* prefix) noexcept {
    return onebit::guard_object<Allreduce>(
        allreduce, [&](Allreduce& a) { return onebit::together(a, [&] { return onebit::save_state(a, prefix); }); });
}

onebit_status_t onebit_allreduce_load(onebit_allreduce_t allreduce, const char* prefix) noexcept {
    return onebit::guard_object<Allreduce>(
        allreduce, [&](Allreduce& a) { return onebit::together(a, [&] { return onebit::load_state(a, prefix); }); });
}
