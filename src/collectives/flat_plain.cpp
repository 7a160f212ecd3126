// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/flat_plain.hpp"

#include <utility>

namespace onebit {

PlainFlat::PlainFlat(FlatAllreduce& flat) : flat_(flat), own_{flat.own_chunk()}, exchanges_(flat.rounds()) {
    stages_ = {
        {"encode chunks", [this](Step* step) { return encode_chunks(step); }},
        {"send chunks", [this](Step* step) { return send_chunks(step); }},
        {"receive chunks", [this](Step* step) { return receive_chunks(step); }},
        {"average and encode", [this](Step* step) { return average_and_encode(step); }},
        {"send result", [this](Step* step) { return send_result(step); }},
        {"receive results", [this](Step* step) { return receive_results(step); }},
        {"decode results", [this](Step* step) { return decode_results(step); }},
    };
}

Status PlainFlat::create(Transport& transport, FlatAllreduce& flat, int tag, std::unique_ptr<PlainFlat>* algorithm) {
    std::unique_ptr<PlainFlat> made(new PlainFlat(flat));
    // Only one round is ever under way, so that all can have the same tags.
    for (std::size_t round = 0; round < flat.rounds(); ++round) {
        ONEBIT_RETURN_IF_ERROR(made->plan_exchanges(transport, tag, round));
    }
    *algorithm = std::move(made);
    return {};
}

Status PlainFlat::plan_exchanges(Transport& transport, int tag, std::size_t round) {
    const auto bytes_of = [&](const Chunk& chunk) {
        return flat_.codec().message_words(chunk) * sizeof(std::uint32_t);
    };
    const std::size_t own_bytes = bytes_of(flat_.own_chunk());
    std::vector<Part> send_chunks;
    std::vector<Part> receive_chunks;
    std::vector<Part> send_result;
    std::vector<Part> receive_results;
    for (const Chunk& chunk : flat_.chunks()) {
        const std::size_t j = chunk.index;
        if (j == flat_.rank()) continue;
        const int peer = static_cast<int>(j);
        send_chunks.push_back({peer, flat_.outgoing(round, j), bytes_of(chunk)});
        receive_chunks.push_back({peer, flat_.incoming(j), own_bytes});
        send_result.push_back({peer, flat_.result(round, flat_.rank()), own_bytes});
        receive_results.push_back({peer, flat_.result(round, j), bytes_of(chunk)});
    }
    Exchanges& planned = exchanges_[round];
    ONEBIT_RETURN_IF_ERROR(
        transport.plan_exchange(std::move(send_chunks), std::move(receive_chunks), tag, &planned.chunks));
    return transport.plan_exchange(std::move(send_result), std::move(receive_results), tag + 1, &planned.results);
}

// ---------------------------------------------------------------------------------------------------- stages ----

Status PlainFlat::encode_chunks(Step* step) {
    Slice slice;
    if (flat_.encodes() && cursor_.next(flat_.chunks(), &slice)) {
        flat_.encode(slice);
        *step = Step::kAgain;
        return {};
    }
    flat_.seal_chunks();
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status PlainFlat::send_chunks(Step* step) {
    *step = Step::kDone;
    return exchanges().chunks->start();
}

Status PlainFlat::receive_chunks(Step* step) {
    return wait_for(*exchanges().chunks, step);
}

Status PlainFlat::average_and_encode(Step* step) {
    Slice slice;
    if (cursor_.next(own_, &slice)) {
        flat_.average_and_encode(slice);
        *step = Step::kAgain;
        return {};
    }
    flat_.seal_result();
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status PlainFlat::send_result(Step* step) {
    *step = Step::kDone;
    return exchanges().results->start();
}

Status PlainFlat::receive_results(Step* step) {
    ONEBIT_RETURN_IF_ERROR(wait_for(*exchanges().results, step));
    if (*step == Step::kWait) return {};
    for (const Chunk& chunk : flat_.chunks()) {
        const Status verdict = flat_.check_result(Slice::whole(chunk));
        if (verdict.ok()) continue;
        flat_.finish(verdict);
        return verdict;
    }
    return {};
}

Status PlainFlat::decode_results(Step* step) {
    Slice slice;
    if (flat_.decodes() && cursor_.next(flat_.chunks(), &slice)) {
        flat_.decode(slice);
        *step = Step::kAgain;
        return {};
    }
    cursor_.restart();
    flat_.finish({});
    *step = Step::kDone;
    return {};
}

} // namespace onebit
