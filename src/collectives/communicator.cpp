// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.hpp"

#include "collectives/agreement.hpp"
#include "compress/codec.hpp"

namespace onebit {
namespace {

Status read_and_check_environment(Environment* environment) {
    ONEBIT_RETURN_IF_ERROR(read_environment(environment));
    return check_kernels(environment->kernels);
}

} // namespace

Status Communicator::create(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator) {
    std::unique_ptr<Communicator> made(new Communicator(std::move(transport)));
    const Status own = read_and_check_environment(&made->environment_);
    ONEBIT_RETURN_IF_ERROR(agree(*made->transport_, made->environment_.timeout, own));
    *communicator = std::move(made);
    return {};
}

Status Communicator::create_local(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator) {
    std::unique_ptr<Communicator> made(new Communicator(std::move(transport)));
    ONEBIT_RETURN_IF_ERROR(read_and_check_environment(&made->environment_));
    *communicator = std::move(made);
    return {};
}

} // namespace onebit
