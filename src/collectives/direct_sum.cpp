// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/direct_sum.hpp"

#include <utility>

namespace onebit {

DirectSum::DirectSum(std::unique_ptr<Arithmetic> arithmetic, float* values, std::size_t count, std::size_t rank,
                     std::size_t ranks)
    : arithmetic_(std::move(arithmetic)), values_(values), rank_(rank), chunks_(partition(count, ranks)) {
    const Chunk& own = chunks_[rank];
    incoming_ = AlignedBuffer<float>(own.count * (ranks - 1), arithmetic_->memory());
    float* next = incoming_.data();
    for (std::size_t j = 0; j < ranks; ++j) {
        to_be_added_.push_back(j == rank ? values + own.begin : next);
        if (j != rank) next += own.count;
    }
}

Status DirectSum::create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, float* values, std::size_t count,
                         int tag, std::unique_ptr<DirectSum>* algorithm) {
    const bool on_device = &arithmetic->memory() != &host_memory();
    const auto rank = static_cast<std::size_t>(transport.rank());
    const auto ranks = static_cast<std::size_t>(transport.size());
    std::unique_ptr<DirectSum> made(new DirectSum(std::move(arithmetic), values, count, rank, ranks));
    const Chunk& own = made->chunks_[rank];
    std::vector<Part> send_chunks;
    std::vector<Part> receive_chunks;
    std::vector<Part> send_sum;
    std::vector<Part> receive_sums;
    for (const Chunk& chunk : made->chunks_) {
        if (chunk.index == rank) continue;
        const int peer = static_cast<int>(chunk.index);
        const std::size_t bytes = chunk.count * sizeof(float);
        const std::size_t own_bytes = own.count * sizeof(float);
        send_chunks.push_back({peer, values + chunk.begin, bytes, on_device});
        receive_chunks.push_back({peer, made->to_be_added_[chunk.index], own_bytes, on_device});
        send_sum.push_back({peer, values + own.begin, own_bytes, on_device});
        receive_sums.push_back({peer, values + chunk.begin, bytes, on_device});
    }
    ONEBIT_RETURN_IF_ERROR(
        transport.plan_exchange(std::move(send_chunks), std::move(receive_chunks), tag, &made->exchange_chunks_));
    ONEBIT_RETURN_IF_ERROR(
        transport.plan_exchange(std::move(send_sum), std::move(receive_sums), tag + 1, &made->exchange_sums_));
    if (ranks == 1) { // it is the sum
        *algorithm = std::move(made);
        return {};
    }
    made->stages_ = {
        start_stage("send chunks", *made->exchange_chunks_),
        wait_stage("receive chunks", *made->exchange_chunks_),
        {"add", [sum = made.get()](Step* step) { return sum->add(step); }},
        start_stage("send sum", *made->exchange_sums_),
        wait_stage("receive sums", *made->exchange_sums_),
    };
    *algorithm = std::move(made);
    return {};
}

Status DirectSum::add(Step* step) {
    *step = Step::kDone;
    const Chunk& own = chunks_[rank_];
    arithmetic_->sum(to_be_added_, 1, own.count, values_ + own.begin);
    return arithmetic_->failure();
}

} // namespace onebit
