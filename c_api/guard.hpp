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

/// Calls body(entry) with an entry that this thread has taken, and leaves the entry. If the call finishes an operation,
/// a callback may be due.
template <typename Object, typename Body>
Status with_taken(Entry<Object>& entry, const Body& body, Completion* completion) {
    struct Leave {
        InUse& in_use;
        ~Leave() { in_use.leave(); }
    } const at_the_end{entry.in_use};
    if (entry.object == nullptr)
        return Status::error(ONEBIT_ERROR_INVALID_HANDLE, "%s is destroyed", kHandleName<Object>);
    const AbortSwitch::Use in_call(*entry.abort_switch);
    if constexpr (HasOperations<Object>) {
        const auto entered = entry.object->enter();
        Status status = body(entry);
        entry.settle(status, completion);
        return status;
    } else {
        return body(entry);
    }
}

template <typename Object>
Status used_by_another_thread() {
    return Status::error(ONEBIT_ERROR_BUSY, "%s is in use by another thread", kHandleName<Object>);
}

/// The same for a handle. BUSY if another thread is in a call on the handle.
template <typename Object, typename Body>
Status with_handle(const void* handle, const Body& body, Completion* completion = nullptr) {
    Entry<Object>* entry = nullptr;
    bool taken = false;
    HandleTable<Object>::instance().look_up(handle, [&](const std::shared_ptr<Entry<Object>>& found) {
        entry = found.get();
        taken = entry->in_use.try_take();
    });
    if (entry == nullptr) return no_such_handle<Object>(handle);
    if (!taken) return used_by_another_thread<Object>();
    return with_taken<Object>(*entry, body, completion);
}

/// The same with the object itself.
template <typename Object, typename Body>
Status with_object(const void* handle, const Body& body, Completion* completion = nullptr) {
    return with_handle<Object>(
        handle, [&](Entry<Object>& entry) { return body(*entry.object); }, completion);
}

/// The same behind the guard: a whole C function on a handle.
template <typename Object, typename Body>
onebit_status_t guard_object(const void* handle, const Body& body) noexcept {
    Completion completion;
    const onebit_status_t status = guard([&] { return with_object<Object>(handle, body, &completion); });
    (void)completion.tell();
    return status;
}

template <typename Object>
void OperationEntry<Object>::settle(const Status& status, Completion* completion) noexcept {
    const UnderWay now = this->object == nullptr ? UnderWay::kNothing : this->object->under_way();
    if (now != under_way) change(now, status, completion); // a run changes nothing
}

template <typename Object>
void OperationEntry<Object>::change(UnderWay now, const Status& status, Completion* completion) noexcept {
    if (under_way == UnderWay::kNothing) {
        this->operations->add(handle, this->shared_from_this(), std::move(place));
    } else if (now == UnderWay::kNothing) {
        place = this->operations->remove(handle);
    }
    const bool finished = under_way == UnderWay::kOperation && this->object != nullptr;
    under_way = now;
    if (finished && completion != nullptr) completion->set(callback, status);
}

template <typename Object>
bool OperationEntry<Object>::progress() noexcept {
    Completion completion;
    bool finished = false;
    const auto move_on = [&](OperationEntry& self) {
        const bool tells = self.callback.function != nullptr && self.under_way == UnderWay::kOperation;
        return tells ? self.object->test(&finished) : self.object->move_on(&finished);
    };
    const Status status = [&] {
        const FloatEnvironment environment;
        return catch_exceptions([&] {
            return this->in_use.try_take() ? with_taken<Object>(*this, move_on, &completion)
                                           : used_by_another_thread<Object>();
        });
    }();
    if (status.code() == ONEBIT_ERROR_INVALID_HANDLE) return false; // destroyed meanwhile
    if (completion.tell()) return this->operations->holds(handle);  // whether the callback has started it again
    return !finished;
}

/// Sets what a handle calls when a started operation is finished.
template <HasOperations Object>
onebit_status_t guard_callback(const void* handle, const Callback& callback) noexcept {
    return guard([&] {
        return with_handle<Object>(handle, [&](Entry<Object>& entry) {
            if (entry.under_way == UnderWay::kOperation)
                return Status::error(ONEBIT_ERROR_BUSY, "a started operation is not finished: its callback stays");
            entry.callback = callback;
            return Status();
        });
    });
}

/// Destroys a handle unless check(object) fails. Does nothing with NULL, and nothing with a parent's handle in a child.
template <typename Object, typename Check>
onebit_status_t guard_destroy(const void* handle, const Check& check) noexcept {
    return guard([&] {
        if (handle == nullptr || HandleTable<Object>::instance().is_parents(handle)) return Status();
        std::shared_ptr<Entry<Object>> removed; // keeps the entry until it is left
        return with_handle<Object>(handle, [&](Entry<Object>& entry) {
            ONEBIT_RETURN_IF_ERROR(check(*entry.object));
            removed = HandleTable<Object>::instance().remove(handle);
            entry.object.reset();
            return Status();
        });
    });
}

/// For a create function: the place for the handle, or an error if there is no place. Made before a collective creation
/// begins, so that nothing can fail after the creation.
template <typename Object, typename Handle>
class Output {
  public:
    /// `comm`: the communicator that the object is made from; NULL for a new communicator.
    Output(Handle* handle, const char* name, onebit_comm_t comm = nullptr)
        : handle_(handle), status_(prepare(name, comm)) {}

    /// This rank's status in the creation, so far.
    const Status& status() const { return status_; }
    void put(std::unique_ptr<Object> object) noexcept {
        entry_->abort_switch = object->abort_switch();
        if constexpr (requires { object->rank(); }) entry_->rank = object->rank();
        entry_->object = std::move(object);
        *handle_ = reinterpret_cast<Handle>(next_handle_number());
        if constexpr (HasOperations<Object>) entry_->handle = *handle_;
        HandleTable<Object>::instance().add(*handle_, std::move(entry_), std::move(place_));
    }

  private:
    Status prepare(const char* name, onebit_comm_t comm) {
        if (handle_ == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s is NULL", name);
        *handle_ = nullptr;
        return catch_exceptions([&] {
            place_ = HandleTable<Object>::make_place();
            entry_ = std::make_shared<Entry<Object>>();
            if constexpr (HasOperations<Object>) {
                const auto parent = HandleTable<Communicator>::instance().find(comm);
                if (parent != nullptr) entry_->operations = parent->operations; // else nothing is made
            } else {
                entry_->operations = std::make_shared<OpenOperations>();
            }
            return Status();
        });
    }

    Handle* handle_;
    typename HandleTable<Object>::Place place_;
    std::shared_ptr<Entry<Object>> entry_;
    Status status_;
};

/// For a function that tests: writes the result of test(&finished) to the caller's int.
template <typename Test>
Status tell_done(int* done, const Test& test) {
    if (done == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "done is NULL");
    bool finished = false;
    Status status = test(&finished);
    *done = finished ? 1 : 0;
    return status;
}

/// Fills a caller's info struct, of any release, with the values that fill(info) sets.
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
