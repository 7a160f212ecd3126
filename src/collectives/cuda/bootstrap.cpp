// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/cuda/bootstrap.hpp"

#include <utility>

#include "transport/nccl.hpp"

namespace onebit {

Status bootstrap_nccl(const NcclApi* api, Communicator& base, const Status& own, cuda::Stream stream,
                      std::unique_ptr<Transport>* transport) {
    // What can be seen before NCCL is asked: a rank that fails in there leaves the others to their timeouts.
    int device = 0;
    ONEBIT_RETURN_IF_ERROR(base.agree(own.ok() ? cuda::device_of(stream, &device) : own));
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(base.open_channel(&channel));
    std::unique_ptr<Transport> made;
    const Status joined = catch_exceptions(
        [&] { return bootstrap_nccl_transport(*api, *channel, stream, base.environment().timeout, &made); });
    const Status agreed = base.agree(joined);
    if (!agreed.ok() && made != nullptr) made->give_up(); // those who failed won't leave it together with us
    ONEBIT_RETURN_IF_ERROR(agreed);
    *transport = std::move(made);
    return {};
}

} // namespace onebit
