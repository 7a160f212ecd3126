// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "c_api/guard.hpp"
#include "collectives/communicator/together.hpp"
#include "collectives/selection/tune.hpp"
#include "transport/loopback.hpp"

using onebit::Communicator;
using onebit::Status;

onebit_status_t onebit_comm_create_loopback(int ranks, onebit_comm_t* comms) noexcept {
    return onebit::guard([&] {
        if (ranks < 1) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "ranks: %d is less than 1", ranks);
        if (comms == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "comms is NULL");
        std::fill_n(comms, ranks, nullptr);
        std::vector<std::unique_ptr<Communicator>> made;
        for (auto& transport : onebit::make_loopback_transports(ranks)) {
            made.emplace_back();
            ONEBIT_RETURN_IF_ERROR(Communicator::create_local(std::move(transport), &made.back()));
        }
        std::vector<onebit::Output<Communicator, onebit_comm_t>> outputs;
        for (int r = 0; r < ranks; ++r) {
            outputs.emplace_back(&comms[r], "comm");
            ONEBIT_RETURN_IF_ERROR(outputs.back().status());
        }
        for (std::size_t r = 0; r < made.size(); ++r) outputs[r].put(std::move(made[r]));
        return Status();
    });
}

onebit_status_t onebit_comm_split(onebit_comm_t comm, int color, int key, onebit_comm_t* part) noexcept {
    return onebit::guard([&] {
        onebit::Output<Communicator, onebit_comm_t> output(part, "part");
        return onebit::with_object<Communicator>(comm, [&](Communicator& communicator) {
            std::unique_ptr<Communicator> made;
            ONEBIT_RETURN_IF_ERROR(
                onebit::together(communicator, [&] { return communicator.split(color, key, output.status(), &made); }));
            if (made != nullptr) output.put(std::move(made));
            return Status();
        });
    });
}

onebit_status_t onebit_comm_rank(onebit_comm_t comm, int* rank) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](const Communicator& communicator) {
        if (rank == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "rank is NULL");
        *rank = communicator.rank();
        return Status();
    });
}

onebit_status_t onebit_comm_size(onebit_comm_t comm, int* size) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](const Communicator& communicator) {
        if (size == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "size is NULL");
        *size = communicator.size();
        return Status();
    });
}

onebit_status_t onebit_comm_set(onebit_comm_t comm, const char* name, const char* value) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](Communicator& communicator) {
        return onebit::together(communicator, [&] { return communicator.set(name, value); });
    });
}

onebit_status_t onebit_comm_get_info(onebit_comm_t comm, onebit_comm_info_t* info) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](const Communicator& communicator) {
        return onebit::give_info(info, [&](onebit_comm_info_t* filled) {
            filled->nodes = static_cast<std::uint32_t>(communicator.groups().nodes);
            std::snprintf(filled->transport, sizeof(filled->transport), "%s", communicator.transport().name());
            std::snprintf(filled->reason, sizeof(filled->reason), "%s", communicator.reason().c_str());
        });
    });
}

onebit_status_t onebit_comm_tune(onebit_comm_t comm, uint64_t max_count, double seconds, const char* path) noexcept {
    const onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    return onebit_comm_tune_codecs(comm, &codec, 1, max_count, seconds, path);
}

onebit_status_t onebit_comm_tune_codecs(onebit_comm_t comm, const onebit_codec_t* codecs, size_t num_codecs,
                                        uint64_t max_count, double seconds, const char* path) noexcept {
    return onebit::guard_object<Communicator>(comm, [&](Communicator& communicator) {
        const Status own = codecs == nullptr && num_codecs > 0
                               ? Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "codecs is NULL")
                               : Status();
        return onebit::together(communicator, [&] {
            return onebit::tune(communicator, {{codecs, num_codecs}, max_count, seconds, path == nullptr ? "" : path},
                                own);
        });
    });
}

onebit_status_t onebit_comm_progress(onebit_comm_t comm, int* active) noexcept {
    std::shared_ptr<onebit::OpenOperations> operations;
    const onebit_status_t found = onebit::guard([&] {
        if (active == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "active is NULL");
        const auto entry =
            onebit::HandleTable<Communicator>::instance().find(comm); // another thread may be using the entry
        if (entry == nullptr) return onebit::no_such_handle<Communicator>(comm);
        operations = entry->operations;
        return Status();
    });
    if (found == ONEBIT_SUCCESS) *active = operations->progress(); // outside the guard, for callbacks
    return found;
}

onebit_status_t onebit_comm_abort(onebit_comm_t comm, const char* reason) noexcept {
    return onebit::guard([&] {
        const auto entry =
            onebit::HandleTable<Communicator>::instance().find(comm); // another thread may be using the entry
        if (entry == nullptr) return onebit::no_such_handle<Communicator>(comm);
        entry->abort_switch->trip(Status::error(ONEBIT_ERROR_TRANSPORT, "rank %d called onebit_comm_abort: %s",
                                                entry->rank, reason == nullptr ? "no reason given" : reason));
        return Status();
    });
}

onebit_status_t onebit_comm_destroy(onebit_comm_t comm) noexcept {
    return onebit::guard_destroy<Communicator>(comm, [](const Communicator&) { return Status(); });
}
