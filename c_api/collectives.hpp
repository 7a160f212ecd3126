// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <memory>

#include "c_api/guard.hpp"
#include "collectives/operation/state.hpp"
#include "collectives/operation/together.hpp"

namespace onebit {

// The calls that every collective has, each a whole C function on a handle. `Object`: Allreduce, ReduceScatter, ...

/// `name`: the [out] handle's name. `log_name`: the collective's name in the log.
template <typename Object, typename Handle, typename Config>
onebit_status_t create_collective(onebit_comm_t comm, const Config* config, Handle* handle, const char* name,
                                  const char* log_name) noexcept {
    return guard([&] {
        Output<Object, Handle> output(handle, name, comm);
        return with_object<Communicator>(comm, [&](Communicator& communicator) {
            std::unique_ptr<Object> made;
            ONEBIT_RETURN_IF_ERROR(
                together(communicator, [&] { return Object::create(communicator, config, output.status(), &made); }));
            made->tell(communicator, log_name);
            output.put(std::move(made));
            return Status();
        });
    });
}

template <typename Object>
onebit_status_t run_collective(const void* handle, const void* sendbuf, void* recvbuf) noexcept {
    return guard_object<Object>(handle, [&](Object& object) { return object.run(sendbuf, recvbuf); });
}

template <typename Object>
onebit_status_t start_collective(const void* handle, const void* sendbuf, void* recvbuf) noexcept {
    return guard_object<Object>(handle, [&](Object& object) { return object.start(sendbuf, recvbuf); });
}

template <typename Object>
onebit_status_t test_collective(const void* handle, int* done) noexcept {
    return guard_object<Object>(
        handle, [&](Object& object) { return tell_done(done, [&](bool* finished) { return object.test(finished); }); });
}

template <typename Object>
onebit_status_t wait_for_collective(const void* handle) noexcept {
    return guard_object<Object>(handle, [](Object& object) { return object.wait(); });
}

template <typename Object>
onebit_status_t set_algorithm_of(const void* handle, onebit_algorithm_t algorithm) noexcept {
    return guard_object<Object>(handle, [&](Object& object) { return object.set_algorithm(algorithm); });
}

template <typename Object, typename Info>
onebit_status_t give_info_of(const void* handle, Info* info) noexcept {
    return guard_object<Object>(
        handle, [&](const Object& object) { return give_info(info, [&](Info* filled) { object.fill_info(filled); }); });
}

template <typename Object>
onebit_status_t destroy_collective(const void* handle) noexcept {
    return guard_destroy<Object>(handle, [](const Object& object) { return object.check_destroyable(); });
}

template <typename Object>
onebit_status_t reset_collective(const void* handle) noexcept {
    return guard_object<Object>(handle, [](Object& object) { return object.reset(); });
}

template <typename Object>
onebit_status_t state_size_of(const void* handle, uint64_t* bytes) noexcept {
    return guard_object<Object>(handle, [&](Object& object) {
        ONEBIT_RETURN_IF_ERROR(object.check_idle());
        if (bytes == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes is NULL");
        *bytes = state_size(object);
        return Status();
    });
}

template <typename Object>
onebit_status_t pack_state_of(const void* handle, void* buffer, uint64_t bytes) noexcept {
    return guard_object<Object>(handle, [&](Object& object) { return pack_state(object, buffer, bytes); });
}

/// Runs a collective part on the handle's object.
template <typename Object, typename Body>
onebit_status_t guard_together(const void* handle, const Body& body) noexcept {
    return guard_object<Object>(handle, [&](Object& object) { return together(object, [&] { return body(object); }); });
}

template <typename Object>
onebit_status_t unpack_state_of(const void* handle, const void* buffer, uint64_t bytes) noexcept {
    return guard_together<Object>(handle, [&](Object& object) { return unpack_state(object, buffer, bytes); });
}

template <typename Object>
onebit_status_t save_collective(const void* handle, const char* prefix) noexcept {
    return guard_together<Object>(handle, [&](Object& object) { return save_state(object, prefix); });
}

template <typename Object>
onebit_status_t load_collective(const void* handle, const char* prefix) noexcept {
    return guard_together<Object>(handle, [&](Object& object) { return load_state(object, prefix); });
}

} // namespace onebit
