// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/block_gather.hpp"

#include <algorithm>

#include "core/copy_bytes.hpp"
#include "core/partition.hpp"
#include "core/wait.hpp"

namespace onebit {
namespace {

constexpr std::size_t kBytesUnderWay = std::size_t{16} << 20; ///< of all ranks
constexpr std::size_t kLeastSlice = 4096;
constexpr std::size_t kUnit = 4; ///< messages are whole words

} // namespace

Status BlockGather::create(Collective& collective, std::span<const std::size_t> sizes,
                           std::unique_ptr<BlockGather>* made) {
    std::unique_ptr<BlockGather> gather(new BlockGather(collective));
    gather->offsets_.push_back(0);
    for (const std::size_t size : sizes) {
        gather->offsets_.push_back(gather->offsets_.back() + size);
        gather->most_ = std::max(gather->most_, size);
    }
    const std::size_t most_slice = std::max(kBytesUnderWay / sizes.size() / kUnit * kUnit, kLeastSlice);
    gather->slice_ = std::min(ceil_divide(gather->most_, kUnit) * kUnit, most_slice);
    gather->blocks_ = AlignedBuffer<std::byte>(gather->offsets_.back());
    gather->slices_ = AlignedBuffer<std::byte>(gather->slice_ * sizes.size());
    ONEBIT_RETURN_IF_ERROR(plan_all_gather(collective.channel(), Collective::kSpareTag, gather->slices_.data(),
                                           gather->slice_, &gather->exchange_));
    *made = std::move(gather);
    return {};
}

BlockGather::~BlockGather() {
    if (!collective_.broken().ok()) slices_.leak(); // a message may still be written there
}

std::span<std::byte> BlockGather::block(std::size_t rank) {
    return {blocks_.data() + offsets_[rank], offsets_[rank + 1] - offsets_[rank]};
}

Status BlockGather::run() {
    for (std::size_t begin = 0; begin < most_; begin += slice_) {
        const Status gathered = catch_exceptions([&] { return run_slice(begin); });
        if (!gathered.ok()) return collective_.abandon(gathered);
    }
    return {};
}

Status BlockGather::run_slice(std::size_t begin) {
    const auto copy = [&](std::size_t rank, bool out) {
        const std::span<std::byte> all = block(rank);
        if (begin >= all.size()) return;
        const std::span<std::byte> part = all.subspan(begin, std::min(slice_, all.size() - begin));
        std::byte* const slice = slices_.data() + rank * slice_;
        copy_bytes(out ? part.data() : slice, out ? slice : part.data(), part.size());
    };
    copy(static_cast<std::size_t>(collective_.channel().rank()), false);
    ONEBIT_RETURN_IF_ERROR(exchange_->start());
    ONEBIT_RETURN_IF_ERROR(wait_until_done("an exchange of states", collective_.patience(),
                                           [&](bool* done, bool*) { return exchange_->test(done); }));
    for (std::size_t rank = 0; rank + 1 < offsets_.size(); ++rank) copy(rank, true);
    return {};
}

} // namespace onebit
