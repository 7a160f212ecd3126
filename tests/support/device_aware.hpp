// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A transport that accesses the emulated GPU's memory directly, as a CUDA-aware MPI does with a real GPU's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "support/emulated_device.hpp"
#include "transport/forwarding.hpp"

namespace onebit_test {

class DeviceAwareExchange final : public onebit::Exchange {
  public:
    explicit DeviceAwareExchange(std::unique_ptr<onebit::Exchange> inner) : inner_(std::move(inner)) {}
    onebit::Status start() override {
        finish_copies();
        return inner_->start();
    }
    onebit::Status test(bool* done) override {
        finish_copies();
        return inner_->test(done);
    }

  private:
    std::unique_ptr<onebit::Exchange> inner_;
};

/// Wraps a transport for the host's memory alone, and translates device addresses for it.
class DeviceAwareTransport final : public onebit::ForwardingTransport {
  public:
    using ForwardingTransport::ForwardingTransport;

    bool reaches_devices() const override { return true; }
    onebit::Status duplicate(int tags, std::unique_ptr<onebit::Transport>* channel) override {
        ONEBIT_RETURN_IF_ERROR(inner_->duplicate(tags, channel));
        *channel = std::make_unique<DeviceAwareTransport>(std::move(*channel));
        return {};
    }
    onebit::Status split(const std::vector<int>& color_of_rank, std::unique_ptr<onebit::Transport>* channel) override {
        ONEBIT_RETURN_IF_ERROR(inner_->split(color_of_rank, channel));
        *channel = std::make_unique<DeviceAwareTransport>(std::move(*channel));
        return {};
    }
    onebit::Status make_group(const std::vector<int>& members, std::unique_ptr<onebit::Transport>* channel) override {
        ONEBIT_RETURN_IF_ERROR(inner_->make_group(members, channel));
        if (*channel != nullptr) *channel = std::make_unique<DeviceAwareTransport>(std::move(*channel));
        return {};
    }
    onebit::Status split_nodes(const std::vector<int>& node_of_rank,
                               std::unique_ptr<onebit::Transport>* channel) override {
        return split(node_of_rank, channel);
    }
    onebit::Status plan_exchange(std::vector<onebit::Part> sends, std::vector<onebit::Part> receives, int tag,
                                 std::unique_ptr<onebit::Exchange>* exchange) override {
        for (auto* const parts : {&sends, &receives}) {
            for (onebit::Part& part : *parts) {
                part.data = on_device(part.data);
                part.on_device = false;
            }
        }
        std::unique_ptr<onebit::Exchange> inner;
        ONEBIT_RETURN_IF_ERROR(inner_->plan_exchange(std::move(sends), std::move(receives), tag, &inner));
        *exchange = std::make_unique<DeviceAwareExchange>(std::move(inner));
        return {};
    }
};

} // namespace onebit_test
