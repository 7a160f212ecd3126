// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <utility>

#include "c_api/handle_table.hpp"
#include "core/float_environment.hpp"
#include "core/status.hpp"
#include "core/structs.hpp"

namespace onebit {

/// Hands a Status to a C caller: keeps its message, if there is one, for onebit_last_error and returns its code.
onebit_status_t report(const Status& status) noexcept;

/// The one way from C into the library: no exception leaves it, and the caller's floating-point environment stays
/// outside.
template <typename Body>
onebit_status_t guard(const Body& body) noexcept {
    const FloatEnvironment environment;
    return report(catch_exceptions(body));
}

/// For a handle that is NULL or not in its table.
template <typename Object>
Status no_such_handle(const void* handle) {
    const char* what = "destroyed, or not a handle of this type";
    if (handle == nullptr) what = "NULL";
    if (HandleTable<Object>::instance().is_parents(handle))
        what = "from before the fork of this process: its parent's alone";
    return Status::error(ONEBIT_ERROR_INVALID_HANDLE, "%s is %s", kHandleName<Object>, what);
}

/// Finds the object of a handle, makes sure that this thread alone uses it, and calls body(its owner).
template <typename Object, typename Body>
Status with_owner(const void* handle, const Body& body) {
    const std::shared_ptr<Entry<Object>> entry = HandleTable<Object>::instance().find(handle);
    if (entry == nullptr) return no_such_handle<Object>(handle);
    const std::unique_lock lock(entry->in_use, std::try_to_lock);
    if (!lock.owns_lock())
        return Status::error(ONEBIT_ERROR_BUSY, "%s is in use by another thread", kHandleName<Object>);
    if (entry->object == nullptr) return no_such_handle<Object>(handle); // destroyed between the look-up and the lock
    const AbortSwitch::Use in_call(*entry->abort_switch);
    if constexpr (requires { entry->object->enter(); }) {
        const auto entered = entry->object->enter();
        return body(entry->object);
    } else {
        return body(entry->object);
    }
}

/// The same with the object itself.
template <typename Object, typename Body>
Status with_object(const void* handle, const Body& body) {
    return with_owner<Object>(handle, [&](std::unique_ptr<Object>& owner) { return body(*owner); });
}

/// The same behind the guard: a whole C function on a handle.
template <typename Object, typename Body>
onebit_status_t guard_object(const void* handle, const Body& body) noexcept {
    return guard([&] { return with_object<Object>(handle, body); });
}

/// Destroys a handle unless check(object) objects. With NULL there is nothing to do, nor with a parent's in a child.
template <typename Object, typename Check>
onebit_status_t guard_destroy(const void* handle, const Check& check) noexcept {
    return guard([&] {
        if (handle == nullptr || HandleTable<Object>::instance().is_parents(handle)) return Status();
        return with_owner<Object>(handle, [&](std::unique_ptr<Object>& owner) {
            ONEBIT_RETURN_IF_ERROR(check(*owner));
            HandleTable<Object>::instance().remove(handle);
            owner.reset();
            return Status();
        });
    });
}

/// For a create function: where to put the handle, and what to say if there is no such place. Taken before a collective
/// creation begins, so that nothing can fail behind it.
template <typename Object, typename Handle>
class Output {
  public:
    Output(Handle* handle, const char* name) : handle_(handle), status_(prepare(name)) {}

    /// This rank's part in the creation, so far.
    const Status& status() const { return status_; }
    void put(std::unique_ptr<Object> object) noexcept {
        entry_->abort_switch = object->abort_switch();
        if constexpr (requires { object->rank(); }) entry_->rank = object->rank();
        entry_->object = std::move(object);
        *handle_ = reinterpret_cast<Handle>(next_handle_number());
        HandleTable<Object>::instance().add(*handle_, std::move(entry_), std::move(place_));
    }

  private:
    Status prepare(const char* name) {
        if (handle_ == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s is NULL", name);
        *handle_ = nullptr;
        return catch_exceptions([this] {
            place_ = HandleTable<Object>::make_place();
            entry_ = std::make_shared<Entry<Object>>();
            return Status();
        });
    }

    Handle* handle_;
    typename HandleTable<Object>::Place place_;
    std::shared_ptr<Entry<Object>> entry_;
    Status status_;
};

/// For a function that tests: what test(&done) says goes to the caller's int.
template <typename Test>
Status tell_done(int* done, const Test& test) {
    if (done == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "done is NULL");
    bool finished = false;
    Status status = test(&finished);
    *done = finished ? 1 : 0;
    return status;
}

/// Fills a caller's info struct, whatever release it is of, with what fill(info) says.
template <typename Info, typename Fill>
Status give_info(Info* caller, const Fill& fill) {
    if (caller == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "info is NULL");
    const StructHead head = head_of(caller);
    ONEBIT_RETURN_IF_ERROR(check_struct<Info>("info", head));
    Info info = Releases<Info>::kDefaults;
    fill(&info);
    write_struct(info, head.size, caller);
    return {};
}

} // namespace onebit
