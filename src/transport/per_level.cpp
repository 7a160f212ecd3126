// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/per_level.hpp"

#include <string>
#include <utility>

#include "transport/forwarding.hpp"

namespace onebit {
namespace {

class PerLevelTransport final : public ForwardingTransport {
  public:
    PerLevelTransport(std::unique_ptr<Transport> base, std::vector<int> node_of_rank, std::unique_ptr<Transport> node,
                      void* stream)
        : ForwardingTransport(std::move(base)),
          node_(std::move(node)),
          node_of_rank_(std::move(node_of_rank)),
          stream_(stream),
          name_((node_ == nullptr ? std::string() : std::string(node_->name()) + "+") + inner_->name()) {}

    const char* name() const override { return name_.c_str(); }
    bool has_stream_ordered_nodes() const override { return node_ != nullptr && node_->is_stream_ordered(); }
    std::optional<void*> stream() const override { return stream_; }
    std::uint64_t node_identity() const override {
        return static_cast<std::uint64_t>(node_of_rank_[static_cast<std::size_t>(rank())]);
    }

    Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) override {
        // The nodes differ where ONEBIT_NODE_SIZE has changed meanwhile.
        if (node_ == nullptr || node_of_rank != node_of_rank_) return inner_->split(node_of_rank, channel);
        return node_->duplicate(kFewTags, channel);
    }

    Status make_group(const std::vector<int>& /*members*/, std::unique_ptr<Transport>* /*channel*/) override {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "%s: a communicator of GPUs can't be split: split the one that it was made of, and make "
                             "one of GPUs from each part",
                             name());
    }

    void give_up(const Status& why) override {
        inner_->give_up(why);
        if (node_ != nullptr) node_->give_up(why);
    }

  private:
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
