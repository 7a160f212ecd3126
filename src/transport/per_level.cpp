// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/per_level.hpp"

#include <string>
#include <utility>

namespace onebit {
namespace {

class PerLevelTransport final : public Transport {
  public:
    PerLevelTransport(std::unique_ptr<Transport> base, std::vector<int> node_of_rank, std::unique_ptr<Transport> node,
                      void* stream)
        : base_(std::move(base)),
          node_(std::move(node)),
          node_of_rank_(std::move(node_of_rank)),
          stream_(stream),
          name_((node_ == nullptr ? std::string() : std::string(node_->name()) + "+") + base_->name()) {}

    const char* name() const override { return name_.c_str(); }
    int rank() const override { return base_->rank(); }
    int size() const override { return base_->size(); }
    bool reaches_devices() const override { return base_->reaches_devices(); }
    bool has_stream_ordered_nodes() const override { return node_ != nullptr && node_->is_stream_ordered(); }
    std::optional<void*> stream() const override { return stream_; }

    Status duplicate(std::unique_ptr<Transport>* channel) override { return base_->duplicate(channel); }
    Status find_nodes(std::vector<int>* node_of_rank) override {
        *node_of_rank = node_of_rank_;
        return {};
    }
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        return base_->split(color_of_rank, channel);
    }
    Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) override {
        // Others, where ONEBIT_NODE_SIZE has changed meanwhile.
        if (node_ == nullptr || node_of_rank != node_of_rank_) return base_->split(node_of_rank, channel);
        return node_->duplicate(channel);
    }
    Status share_memory(std::size_t bytes, std::unique_ptr<SharedMemory>* memory) override {
        return base_->share_memory(bytes, memory);
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        return base_->plan_exchange(std::move(sends), std::move(receives), tag, exchange);
    }
    Status plan_sum(std::size_t count, std::unique_ptr<Sum>* sum) override { return base_->plan_sum(count, sum); }

    Status progress() override { return base_->progress(); }
    std::uint64_t bytes_sent() const override { return base_->bytes_sent(); }
    void give_up() override {
        base_->give_up();
        if (node_ != nullptr) node_->give_up();
    }

  private:
    std::unique_ptr<Transport> base_;
    std::unique_ptr<Transport> node_;
    std::vector<int> node_of_rank_;
    void* stream_;
    std::string name_;
};

} // namespace

std::unique_ptr<Transport> make_per_level_transport(std::unique_ptr<Transport> base, std::vector<int> node_of_rank,
                                                    std::unique_ptr<Transport> node, void* stream) {
    return std::make_unique<PerLevelTransport>(std::move(base), std::move(node_of_rank), std::move(node), stream);
}

} // namespace onebit
