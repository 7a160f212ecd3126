// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "c_api/guard.hpp"
#include "collectives/communicator/shared_buffers.hpp"
#include "collectives/communicator/together.hpp"

using onebit::Communicator;
using onebit::SharedBuffer;
using onebit::Status;

namespace {

/// The memory that was given out and not freed yet. A global, like the handle tables.
using MemoryTable = onebit::ProcessTable<SharedBuffer, const void*, SharedBuffer>;

} // namespace

onebit_status_t onebit_mem_alloc(onebit_comm_t comm, size_t bytes, void** memory) noexcept {
    return onebit::guard([&] {
        MemoryTable::Place place;
        const Status own = onebit::catch_exceptions([&] {
            if (memory == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "memory is NULL");
            *memory = nullptr;
            place = MemoryTable::make_place();
            return Status();
        });
        return onebit::with_object<Communicator>(comm, [&](Communicator& communicator) {
            std::shared_ptr<SharedBuffer> buffer;
            ONEBIT_RETURN_IF_ERROR(onebit::together(
                communicator, [&] { return onebit::SharedBuffers::allocate(communicator, own, bytes, &buffer); }));
            *memory = buffer->own();
            MemoryTable::instance().add(*memory, std::move(buffer), std::move(place));
            return Status();
        });
    });
}

onebit_status_t onebit_mem_free(void* memory) noexcept {
    return onebit::guard([&] {
        if (memory == nullptr || MemoryTable::instance().remove(memory) != nullptr) return Status();
        if (MemoryTable::instance().is_parents(memory)) return Status(); // a child's mapping lasts as long as the child
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "memory: %p is not from onebit_mem_alloc, or freed",
                             memory);
    });
}
