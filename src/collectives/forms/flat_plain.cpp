// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/flat_plain.hpp"

#include <utility>

namespace onebit {

PlainFlat::PlainFlat(FlatAllreduce& flat)
    : flat_(flat), own_{flat.own_chunk()}, exchanges_(flat.rounds()), cursor_(flat.codec().blocks_at_once()) {
    slices_.reserve(flat.chunks().size());
    stages_ = {
        {"encode chunks", [this](Step* step) { return encode_chunks(step); }},
        {"send chunks", [this](Step* step) { return send_chunks(step); }},
        {"receive chunks", [this](Step* step) { return receive(*exchanges().chunks, step); }},
        {"average and encode", [this](Step* step) { return average_and_encode(step); }},
        {"send result", [this](Step* step) { return send_result(step); }},
        {"receive results", [this](Step* step) { return receive(*exchanges().results, step); }},
        {"await votes", [this](Step* step) { return await_votes(step); }},
        {"check results", [this](Step* step) { return check_results(step); }},
        {"decode results", [this](Step* step) { return decode_results(step); }},
        {"finish", [this](Step* step) { return finish(step); }},
    };
}

Status PlainFlat::create(Transport& transport, FlatAllreduce& flat, std::size_t radix, int tag,
                         std::unique_ptr<PlainFlat>* algorithm) {
    std::unique_ptr<PlainFlat> made(new PlainFlat(flat));
    // Only one round is under way at a time, so all rounds can have the same tags.
    for (std::size_t round = 0; round < flat.rounds(); ++round) {
        ONEBIT_RETURN_IF_ERROR(made->plan_exchanges(transport, radix, tag, round));
    }
    *algorithm = std::move(made);
    return {};
}

Status PlainFlat::plan_exchanges(Transport& transport, std::size_t radix, int tag, std::size_t round) {
    Exchanges& planned = exchanges_[round];
    if (radix != kDirect) {
        return flat_.plan_bruck_exchanges(transport, round, radix, tag, &planned.chunks, &planned.results);
    }
    return flat_.plan_whole_exchanges(transport, round, tag, &planned.chunks, &planned.results);
}

// ---------------------------------------------------------------------------------------------------- stages ----

Status PlainFlat::encode_chunks(Step* step) {
    if (flat_.scatter().encodes() && cursor_.next(flat_.chunks(), &slices_)) {
        flat_.scatter().encode(slices_);
        *step = Step::kAgain;
        return {};
    }
    flat_.scatter().seal();
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status PlainFlat::send_chunks(Step* step) {
    *step = Step::kDone;
    ONEBIT_RETURN_IF_ERROR(exchanges().chunks->start());
    return flat_.scatter().cast_vote();
}

/// Moves the vote on, too.
Status PlainFlat::receive(Exchange& exchange, Step* step) {
    bool known = false;
    ONEBIT_RETURN_IF_ERROR(flat_.gather().test_vote(&known));
    return wait_for(exchange, step);
}

Status PlainFlat::average_and_encode(Step* step) {
    Slice slice;
    if (cursor_.next(own_, &slice)) {
        flat_.average_and_encode(slice);
        *step = Step::kAgain;
        return {};
    }
    flat_.gather().seal();
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status PlainFlat::send_result(Step* step) {
    *step = Step::kDone;
    return exchanges().results->start();
}

Status PlainFlat::await_votes(Step* step) {
    bool known = false;
    ONEBIT_RETURN_IF_ERROR(flat_.gather().test_vote(&known));
    *step = known ? Step::kDone : Step::kWait;
    return {};
}

Status PlainFlat::check_results(Step* step) {
    *step = Step::kDone;
    slices_.clear();
    for (const Chunk& chunk : flat_.chunks()) slices_.push_back(Slice::whole(chunk));
    const Status verdict = flat_.gather().check(slices_);
    if (!verdict.ok()) flat_.finish(verdict);
    return verdict;
}

Status PlainFlat::decode_results(Step* step) {
    if (flat_.gather().decodes() && cursor_.next(flat_.chunks(), &slices_)) {
        const Status verdict = flat_.gather().decode(slices_);
        if (!verdict.ok()) {
            flat_.finish(verdict);
            cursor_.restart();
        }
        *step = Step::kAgain;
        return verdict;
    }
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status PlainFlat::finish(Step* step) {
    Status verdict;
    const bool known = flat_.gather().find_overflow(&verdict);
    *step = known ? Step::kDone : Step::kInStream;
    if (known) flat_.finish(verdict);
    return verdict;
}

} // namespace onebit
