// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/config.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A group of ranks: the transport between them and what the environment said when it was made. Handles made from it
/// open channels of their own and so outlive it.
class Communicator {
  public:
    /// Reads the environment; collective over the transport's ranks, so that a bad variable on one fails on all.
    static Status create(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator);

    /// The same without a word to the others, for ranks that share one environment.
    static Status create_local(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator);

    Transport& transport() { return *transport_; }
    const Environment& environment() const { return environment_; }
    int rank() const { return transport_->rank(); }
    int size() const { return transport_->size(); }

  private:
    explicit Communicator(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

    std::unique_ptr<Transport> transport_;
    Environment environment_;
};

} // namespace onebit
