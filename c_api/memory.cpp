// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <unordered_map>

#include "c_api/guard.hpp"
#include "collectives/shared_buffers.hpp"

using onebit::Communicator;
using onebit::SharedBuffer;
using onebit::Status;

namespace {

/// The memory that was given out and not freed yet. A global, as handle tables are.
class MemoryTable {
  public:
    static MemoryTable& instance() {
        static MemoryTable table;
        return table;
    }

    void* add(std::shared_ptr<SharedBuffer> buffer) {
        void* const memory = buffer->own();
        const std::lock_guard lock(mutex_);
        buffers_.emplace(memory, std::move(buffer));
        return memory;
    }

    /// NULL where there is no such memory.
    std::shared_ptr<SharedBuffer> remove(const void* memory) {
        const std::lock_guard lock(mutex_);
        auto node = buffers_.extract(memory);
        return node.empty() ? nullptr : std::move(node.mapped());
    }

  private:
    std::mutex mutex_;
    std::unordered_map<const void*, std::shared_ptr<SharedBuffer>> buffers_;
};

} // namespace

onebit_status_t onebit_mem_alloc(onebit_comm_t comm, size_t bytes, void** memory) noexcept {
    return onebit::guard([&] {
        const Status own = onebit::prepare_output(memory, "memory");
        return onebit::with_object<Communicator>(comm, [&](Communicator& communicator) {
            std::shared_ptr<SharedBuffer> buffer;
            ONEBIT_RETURN_IF_ERROR(onebit::SharedBuffers::allocate(communicator, own, bytes, &buffer));
            *memory = MemoryTable::instance().add(std::move(buffer));
            return Status();
        });
    });
}

onebit_status_t onebit_mem_free(void* memory) noexcept {
    return onebit::guard([&] {
        if (memory == nullptr || MemoryTable::instance().remove(memory) != nullptr) return Status();
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "memory: %p is not from onebit_mem_alloc, or freed",
                             memory);
    });
}
