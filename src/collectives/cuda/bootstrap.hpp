// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator/communicator.hpp"
#include "core/cuda/device.hpp"
#include "transport/nccl_api.hpp"

namespace onebit {

/// A transport on NCCL between the ranks of `base`, made with the help of `base`. `own`: what is already wrong on this
/// rank, if anything; then `api` may be NULL. Fails on all ranks or on none. Collective; blocks.
Status bootstrap_nccl(const NcclApi* api, Communicator& base, const Status& own, cuda::Stream stream,
                      std::unique_ptr<Transport>* transport);

/// The same inside each node of `base`, and the base's own transport between nodes. Nothing may be wrong on any rank.
Status bootstrap_nccl_in_nodes(const NcclApi& api, Communicator& base, cuda::Stream stream,
                               std::unique_ptr<Transport>* transport);

} // namespace onebit
