// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <onebit/onebit.h>

#include <cmath>

#include "c_api/guard.hpp"
#include "collectives/communicator/communicator.hpp"
#include "core/config.hpp"
#include "transport/tcp/tcp.hpp"

using onebit::Status;

namespace {

Status check(const onebit_bootstrap_t& bootstrap) {
    if (bootstrap.ranks < 1) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "ranks: %d is less than 1", bootstrap.ranks);
    }
    if (bootstrap.rank < 0 || bootstrap.rank >= bootstrap.ranks) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "rank: %d is not from 0 to %d", bootstrap.rank,
                             bootstrap.ranks - 1);
    }
    if (bootstrap.allgather == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "allgather is NULL");
    return {};
}

/// All ranks are told of these errors.
Status check_settings(const onebit_bootstrap_t& bootstrap) {
    ONEBIT_RETURN_IF_ERROR(onebit::check_reserved("config.reserved", bootstrap.reserved));
    if (std::isfinite(bootstrap.timeout) && bootstrap.timeout >= 0) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "timeout: %g is not a number of seconds", bootstrap.timeout);
}

/// The number of ranks to meet, and the function to meet them by. Needs no memory.
onebit::Bootstrap whom_to_meet(const onebit_bootstrap_t& given) {
    onebit::Bootstrap meeting;
    meeting.rank = given.rank;
    meeting.ranks = given.ranks;
    meeting.allgather = [&given](const void* mine, void* all, std::size_t bytes) {
        const int failure = given.allgather(given.context, mine, all, bytes);
        if (failure == 0) return Status();
        return Status::error(ONEBIT_ERROR_TRANSPORT, "the bootstrap's allgather has failed: it returned %d", failure);
    };
    return meeting;
}

/// Fills in the rest, also from the environment.
Status complete(const onebit_bootstrap_t& given, onebit::Bootstrap* meeting) {
    onebit::Environment environment;
    ONEBIT_RETURN_IF_ERROR(onebit::read_environment(&environment));
    meeting->shares_memory = !environment.tcp_only;
    meeting->interface = given.interface != nullptr ? given.interface : environment.interface;
    meeting->timeout = given.timeout > 0 ? given.timeout : environment.timeout;
    return {};
}

} // namespace

onebit_status_t onebit_comm_create_bootstrap(const onebit_bootstrap_t* bootstrap, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        onebit::Output<onebit::Communicator, onebit_comm_t> output(comm, "comm");
        if (bootstrap == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bootstrap is NULL");
        onebit_bootstrap_t given;
        ONEBIT_RETURN_IF_ERROR(onebit::read_struct("bootstrap", bootstrap, &given));
        ONEBIT_RETURN_IF_ERROR(check(given));
        onebit::Bootstrap meeting = whom_to_meet(given);
        const Status own = onebit::catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(output.status());
            ONEBIT_RETURN_IF_ERROR(check_settings(given));
            return complete(given, &meeting);
        });
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(onebit::make_tcp_transport(meeting, own, &transport));
        std::unique_ptr<onebit::Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(
            onebit::Communicator::create(std::move(transport), Status(), &communicator, given.timeout));
        output.put(std::move(communicator));
        return Status();
    });
}
