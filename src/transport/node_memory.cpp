// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/node_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "transport/mapped_memory.hpp"

namespace onebit {
namespace {

/// What a rank tells the others about its own part, and then about finding their parts.
struct Report {
    std::uint32_t status = ONEBIT_SUCCESS;
    std::array<char, 252> reason{};
    MappedMemory::Address address;

    void set(const Status& own) {
        status = static_cast<std::uint32_t>(own.code());
        std::snprintf(reason.data(), reason.size(), "%s", own.message().c_str());
    }
};

/// Every rank's report to every other. Reports outlive an exchange that never ends.
class Gathering {
  public:
    explicit Gathering(Transport& channel) : channel_(channel) {}

    Status plan() {
        reports_ = std::make_unique<std::vector<Report>>(static_cast<std::size_t>(channel_.size()));
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (int peer = 0; peer < channel_.size(); ++peer) {
            if (peer == channel_.rank()) continue;
            sends.push_back({peer, &mine(), sizeof(Report)});
            receives.push_back({peer, &(*reports_)[static_cast<std::size_t>(peer)], sizeof(Report)});
        }
        return channel_.plan_exchange(std::move(sends), std::move(receives), kTag, &exchange_);
    }

    /// Returns the first failed rank's failure, the same on every rank.
    Status gather(const Status& own, const Patience& patience) {
        mine().set(own);
        const Status told = [&] {
            ONEBIT_RETURN_IF_ERROR(exchange_->start());
            return wait_until_done("sharing memory inside a node", patience,
                                   [&](bool* done, bool*) { return exchange_->test(done); });
        }();
        if (!told.ok()) (void)reports_.release();
        ONEBIT_RETURN_IF_ERROR(told);
        const auto failed = [](const Report& report) { return report.status != ONEBIT_SUCCESS; };
        const auto first = std::find_if(reports_->begin(), reports_->end(), failed);
        if (first == reports_->end()) return {};
        return Status::error(told_status(first->status), "rank %d of the node: %.*s",
                             static_cast<int>(first - reports_->begin()), static_cast<int>(first->reason.size()),
                             first->reason.data());
    }

    Report& mine() { return (*reports_)[static_cast<std::size_t>(channel_.rank())]; }
    const std::vector<Report>& reports() const { return *reports_; }

  private:
    static constexpr int kTag = kSplitTags - 1; // every channel has this tag, and nothing else under way meanwhile

    Transport& channel_;
    std::unique_ptr<std::vector<Report>> reports_;
    std::unique_ptr<Exchange> exchange_;
};

class NodeMemory final : public SharedMemory {
  public:
    explicit NodeMemory(Transport& channel)
        : rank_(static_cast<std::size_t>(channel.rank())),
          parts_(static_cast<std::size_t>(channel.size())),
          all_(std::make_unique<Gathering>(channel)) {}

    Status plan() { return all_->plan(); }

    /// A failure on this rank before the first message goes into that message.
    Status share(std::size_t bytes, const Patience& patience) {
        const Status made = catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(MappedMemory::create("onebit.handle", bytes, &parts_[rank_]));
            all_->mine().address = parts_[rank_]->address();
            return Status();
        });
        ONEBIT_RETURN_IF_ERROR(all_->gather(made, patience));
        const Status opened = catch_exceptions([&] {
            for (std::size_t r = 0; r < parts_.size(); ++r) {
                if (r == rank_) continue;
                ONEBIT_RETURN_IF_ERROR(MappedMemory::open(all_->reports()[r].address, bytes, &parts_[r]));
            }
            return Status();
        });
        ONEBIT_RETURN_IF_ERROR(all_->gather(opened, patience)); // no rank closes its part before all have found it
        parts_[rank_]->close();
        all_.reset();
        return {};
    }

    std::byte* of(int rank) override { return parts_[static_cast<std::size_t>(rank)]->data(); }

  private:
    std::size_t rank_;
    std::vector<std::unique_ptr<MappedMemory>> parts_;
    std::unique_ptr<Gathering> all_; ///< until the memory is shared
};

} // namespace

Status Transport::plan_memory(std::unique_ptr<SharedMemory>* memory) {
    return plan_node_memory(*this, memory);
}

Status plan_node_memory(Transport& channel, std::unique_ptr<SharedMemory>* memory) {
    auto planned = std::make_unique<NodeMemory>(channel);
    ONEBIT_RETURN_IF_ERROR(planned->plan());
    *memory = std::move(planned);
    return {};
}

Status share_node_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) {
    return static_cast<NodeMemory&>(**memory).share(bytes, patience);
}

} // namespace onebit
