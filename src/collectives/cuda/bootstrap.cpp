// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/cuda/bootstrap.hpp"

#include <utility>

#include "transport/nccl.hpp"
#include "transport/per_level.hpp"

namespace onebit {

namespace {

/// Between the ranks of `channel`, which are all or some of the base's. Fails on all of the base's or on none.
Status join(const NcclApi& api, Communicator& base, Transport& channel, cuda::Stream stream,
            std::unique_ptr<Transport>* transport) {
    std::unique_ptr<Transport> made;
    const Status joined = catch_exceptions(
        [&] { return bootstrap_nccl_transport(api, channel, stream, base.patience().timeout, &made); });
    const Status agreed = base.agree(joined);
    if (!agreed.ok()) channel.give_up(agreed);                  // a rank that failed may not have received from it
    if (!agreed.ok() && made != nullptr) made->give_up(agreed); // ranks that failed won't leave it together with us
    ONEBIT_RETURN_IF_ERROR(agreed);
    *transport = std::move(made);
    return {};
}

} // namespace

Status bootstrap_nccl(const NcclApi* api, Communicator& base, const Status& own, cuda::Stream stream,
                      std::unique_ptr<Transport>* transport) {
    // All that can be checked before NCCL is called: if a rank fails in NCCL, the others wait for their timeouts.
    std::shared_ptr<const cuda::Device> device;
    ONEBIT_RETURN_IF_ERROR(base.agree(own.ok() ? open_nccl_device(stream, &device) : own));
    ONEBIT_RETURN_IF_ERROR(base.make_room());
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(base.open_channel(&channel));
    return join(*api, base, *channel, stream, transport);
}

Status bootstrap_nccl_in_nodes(const NcclApi& api, Communicator& base, cuda::Stream stream,
                               std::unique_ptr<Transport>* transport) {
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(base.open_part(&channel));
    std::unique_ptr<Transport> of_node;
    ONEBIT_RETURN_IF_ERROR(channel->split(base.groups().node_of_rank, &of_node));
    std::unique_ptr<Transport> node;
    ONEBIT_RETURN_IF_ERROR(join(api, base, *of_node, stream, &node));
    *transport = make_per_level_transport(std::move(channel), base.groups().node_of_rank, std::move(node), stream);
    return {};
}

} // namespace onebit
