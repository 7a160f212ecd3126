// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/shared_buffers.hpp"

#include <unistd.h>

#include <algorithm>

#include "collectives/communicator/communicator.hpp"

namespace onebit {
namespace {

using NodePieces = std::vector<std::unique_ptr<MappedMemory>>;

std::size_t machine_bytes() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// If bytes were more than the machine has, the system would end processes to get enough.
Status check_size(std::size_t bytes) {
    if (bytes == 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes: 0 is not a size");
    if (bytes < machine_bytes()) return {};
    return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY, "bytes: %zu are more than the machine has", bytes);
}

/// The same for all ranks of this rank's node together. Each rank's size is less than the machine's.
Status check_sizes(const NodeGroups& groups, std::size_t rank, const std::vector<std::size_t>& sizes) {
    std::size_t left = machine_bytes();
    for (std::size_t r = 0; r < sizes.size(); ++r) {
        if (groups.node_of_rank[r] != groups.node_of_rank[rank]) continue;
        if (sizes[r] >= left) {
            return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY,
                                 "bytes: %zu, and those of the node's other ranks, are more than the machine has",
                                 sizes[rank]);
        }
        left -= sizes[r];
    }
    return {};
}

/// Why no memory is shared; NULL: it is. Nodes of different sizes have no form that would use it.
const char* objection(const NodeGroups& groups) {
    if (groups.nodes > 1) return groups.objection();
    if (groups.places == 1) return "there is one rank";
    return groups.places > NodeGroups::kMostPlaces ? "there are more than 1024 ranks" : nullptr;
}

/// Opens the pieces of the node's other ranks; this rank's is there.
Status open_others(const NodeGroups& groups, const std::vector<MappedMemory::Address>& addresses,
                   const std::vector<std::size_t>& sizes, std::size_t rank, NodePieces* pieces) {
    const auto missing = [](const MappedMemory::Address& address) { return address.bytes == 0; };
    if (std::ranges::any_of(addresses, missing)) return {}; // the rank concerned says why
    for (std::size_t r = 0; r < addresses.size(); ++r) {
        if (r == rank || groups.node_of_rank[r] != groups.node_of_rank[rank]) continue;
        const auto place = static_cast<std::size_t>(groups.place_of_rank[r]);
        ONEBIT_RETURN_IF_ERROR(MappedMemory::open(addresses[r], sizes[r], &(*pieces)[place]));
    }
    return {};
}

void log(const Communicator& communicator, std::size_t bytes, const Status& shared) {
    communicator.log().write(shared.ok() ? ONEBIT_LOG_INFO : ONEBIT_LOG_WARNING, "%zu bytes on rank 0 of %d: %s%s",
                             bytes, communicator.size(),
                             shared.ok() ? "shared by each node's ranks" : "each rank's alone, because ",
                             shared.message().c_str());
}

} // namespace

Status SharedBuffers::allocate(Communicator& communicator, const Status& own_before, std::size_t bytes,
                               std::shared_ptr<SharedBuffer>* buffer) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const NodeGroups& groups = communicator.groups();
    std::vector<std::size_t> sizes(ranks);
    Status own = own_before.ok() ? check_size(bytes) : own_before;
    ONEBIT_RETURN_IF_ERROR(communicator.agree_and_gather(own, &bytes, sizeof(bytes), sizes.data()));
    own = check_sizes(groups, rank, sizes);

    const auto place = static_cast<std::size_t>(groups.place_of_rank[rank]);
    const char* const alone = objection(groups);
    NodePieces pieces(groups.places);
    MappedMemory::Address address;
    Status here;
    if (alone != nullptr) {
        here = Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s", alone);
    } else if (own.ok()) {
        here = catch_exceptions([&] { return MappedMemory::create("onebit.values", bytes, &pieces[place]); });
        if (here.ok()) address = pieces[place]->address();
    }
    std::vector<MappedMemory::Address> addresses(ranks);
    ONEBIT_RETURN_IF_ERROR(communicator.agree_and_gather(own, &address, sizeof(address), addresses.data()));
    if (here.ok()) here = catch_exceptions([&] { return open_others(groups, addresses, sizes, rank, &pieces); });
    const Status shared = communicator.agree(here);
    if (!communicator.usable()) return shared;
    if (!shared.ok()) { // all ranks free all pieces before any allocates again
        pieces.clear();
        ONEBIT_RETURN_IF_ERROR(communicator.agree({}));
    }

    std::shared_ptr<SharedBuffer> made;
    const Status allocated = catch_exceptions([&] {
        if (!shared.ok()) {
            made = std::make_shared<SharedBuffer>(bytes);
            return Status();
        }
        pieces[place]->close();
        const std::uint64_t number = communicator.shared_buffers()->next_number(); // whatever fails: all count alike
        made = std::make_shared<SharedBuffer>(std::move(pieces), place);
        communicator.shared_buffers()->add(number, made, bytes);
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(communicator.agree(allocated));
    log(communicator, bytes, shared);
    *buffer = std::move(made);
    return {};
}

SharedBuffers::Place SharedBuffers::find(const void* begin, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    const std::lock_guard lock(mutex_);
    for (const auto& [number, entry] : entries_) {
        const std::uintptr_t offset = first - entry.begin; // of an earlier address: more than any size
        const bool inside = offset <= entry.bytes && bytes <= entry.bytes - offset;
        if (inside && !entry.buffer.expired()) return {number, offset};
    }
    return {};
}

std::shared_ptr<SharedBuffer> SharedBuffers::get(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(number);
    return found == entries_.end() ? nullptr : found->second.buffer.lock();
}

void SharedBuffers::add(std::uint64_t number, const std::shared_ptr<SharedBuffer>& buffer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& item) { return item.second.buffer.expired(); });
    entries_[number] = {reinterpret_cast<std::uintptr_t>(buffer->own()), bytes, buffer};
}

} // namespace onebit
