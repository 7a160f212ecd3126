// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <onebit/onebit.h>

#include <cmath>

#include "c_api/guard.hpp"
#include "collectives/communicator.hpp"
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

/// What all ranks are told of.
Status check_settings(const onebit_bootstrap_t& bootstrap) {
    ONEBIT_RETURN_IF_ERROR(onebit::check_reserved(bootstrap.reserved));
    if (std::isfinite(bootstrap.timeout) && bootstrap.timeout >= 0) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "timeout: %g is not a number of seconds", bootstrap.timeout);
}

onebit::Bootstrap with_environment(const onebit_bootstrap_t& given, const onebit::Environment& environment) {
    onebit::Bootstrap bootstrap;
    bootstrap.rank = given.rank;
    bootstrap.ranks = given.ranks;
    bootstrap.allgather = [&given](const void* mine, void* all, std::size_t bytes) {
        const int failure = given.allgather(given.context, mine, all, bytes);
        if (failure == 0) return Status();
        return Status::error(ONEBIT_ERROR_TRANSPORT, "the bootstrap's allgather has failed: it returned %d", failure);
    };
    bootstrap.shares_memory = !environment.tcp_only;
    bootstrap.interface = given.interface != nullptr ? given.interface : environment.interface;
    bootstrap.timeout = given.timeout > 0 ? given.timeout : environment.timeout;
    return bootstrap;
}

} // namespace

onebit_status_t onebit_comm_create_bootstrap(const onebit_bootstrap_t* bootstrap, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        onebit::Output<onebit::Communicator, onebit_comm_t> output(comm, "comm");
        if (bootstrap == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bootstrap is NULL");
        onebit_bootstrap_t given;
        ONEBIT_RETURN_IF_ERROR(onebit::read_struct("bootstrap", bootstrap, &given));
        ONEBIT_RETURN_IF_ERROR(check(given));
        onebit::Environment environment;
        const Status read = onebit::read_environment(&environment);
        const Status settings = check_settings(given);
        const Status own = !output.status().ok() ? output.status() : !settings.ok() ? settings : read;
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(onebit::make_tcp_transport(with_environment(given, environment), own, &transport));
        std::unique_ptr<onebit::Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(
            onebit::Communicator::create(std::move(transport), Status(), &communicator, given.timeout));
        output.put(std::move(communicator));
        return Status();
    });
}
