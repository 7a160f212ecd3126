// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "transport/transport.hpp"

namespace onebit {

/// Hands every call on to another transport. A wrapper overrides only what it changes.
class ForwardingTransport : public Transport {
  public:
    explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

    const char* name() const override { return inner_->name(); }
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    bool reaches_devices() const override { return inner_->reaches_devices(); }
    bool is_stream_ordered() const override { return inner_->is_stream_ordered(); }
    bool has_stream_ordered_nodes() const override { return inner_->has_stream_ordered_nodes(); }
    std::optional<void*> stream() const override { return inner_->stream(); }
    std::shared_ptr<AbortSwitch> abort_switch() const override { return inner_->abort_switch(); }
    TagSpace* tag_space() override { return inner_->tag_space(); }
    std::uint64_t node_identity() const override { return inner_->node_identity(); }

    Status duplicate(int tags, std::unique_ptr<Transport>* channel) override {
        return inner_->duplicate(tags, channel);
    }
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        return inner_->split(color_of_rank, channel);
    }
    Status make_group(const std::vector<int>& members, std::unique_ptr<Transport>* channel) override {
        return inner_->make_group(members, channel);
    }
    Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) override {
        return inner_->split_nodes(node_of_rank, channel);
    }
    Status share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) override {
        return inner_->share_memory(bytes, patience, memory);
    }

    Status plan_memory(std::unique_ptr<SharedMemory>* memory) override { return inner_->plan_memory(memory); }
    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        return inner_->plan_exchange(std::move(sends), std::move(receives), tag, exchange);
    }
    Status plan_sum(std::size_t count, std::unique_ptr<Sum>* sum) override { return inner_->plan_sum(count, sum); }
    bool has_native(Pattern pattern) const override { return inner_->has_native(pattern); }
    Status plan_native(Pattern pattern, const void* from, void* to, std::size_t row_bytes,
                       std::unique_ptr<Exchange>* exchange) override {
        return inner_->plan_native(pattern, from, to, row_bytes, exchange);
    }

    Status progress() override { return inner_->progress(); }
    std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }
    void give_up(const Status& why) override { inner_->give_up(why); }
    std::vector<int> silent_ranks() override { return inner_->silent_ranks(); }

  protected:
    std::unique_ptr<Transport> inner_;
};

} // namespace onebit
