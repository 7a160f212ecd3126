// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/flat_pipelined.hpp"

#include <utility>

namespace onebit {

namespace {

constexpr int kRingTag = 4; ///< behind those that both ways have

constexpr std::size_t most_pieces(GatherPieces::Way way) {
    return way == GatherPieces::Way::kRing ? GatherPieces::kMostRings : SIZE_MAX;
}

} // namespace

PipelinedFlat::PipelinedFlat(FlatAllreduce& flat, Way way, std::size_t piece_blocks)
    : flat_(flat),
      pieces_(flat.scatter().layout(), piece_blocks, most_pieces(way)),
      scatter_(flat.scatter(), pieces_),
      gather_(flat.gather(), pieces_, way) {
    stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
}

int PipelinedFlat::ring_tags(std::size_t count, std::size_t ranks, std::size_t piece_blocks) {
    const std::size_t most_blocks = partition(count, ranks).front().blocks();
    const std::size_t blocks = Pieces::blocks_for(piece_blocks, most_blocks, most_pieces(Way::kRing));
    return kRingTag + static_cast<int>(ceil_divide(most_blocks, blocks));
}

Status PipelinedFlat::create(Transport& transport, FlatAllreduce& flat, Way way, std::size_t piece_blocks, int tag,
                             std::unique_ptr<PipelinedFlat>* algorithm) {
    if (way == Way::kRing) ONEBIT_RETURN_IF_ERROR(flat.check_on_host("ONEBIT_ALGORITHM_RING"));
    std::unique_ptr<PipelinedFlat> made(new PipelinedFlat(flat, way, piece_blocks));
    for (std::size_t round = 0; round < flat.rounds(); ++round) {
        ONEBIT_RETURN_IF_ERROR(made->scatter_.plan(transport, round, tag, tag + 2));
        ONEBIT_RETURN_IF_ERROR(made->gather_.plan(transport, round, tag + 1, tag + 3, tag + kRingTag));
    }
    *algorithm = std::move(made);
    return {};
}

void PipelinedFlat::set_operands(const Operands& operands) {
    flat_.set_operands(operands);
    scatter_.begin(operands.ready);
    gather_.begin();
}

// ---------------------------------------------------------------------------------------------- the one stage ----

Status PipelinedFlat::advance(Step* step) {
    *step = Step::kAgain;
    bool did = false;
    ONEBIT_RETURN_IF_ERROR(gather_.pass_on());
    ONEBIT_RETURN_IF_ERROR(average_next(&did));
    if (!did) ONEBIT_RETURN_IF_ERROR(scatter_.encode_next(&did));
    if (!did) ONEBIT_RETURN_IF_ERROR(gather_.decode_next(&did));
    if (did) return {};
    *step = Step::kWait;
    if (!gather_.all_decoded()) return {};
    Status verdict;
    const bool known = gather_.find_verdict(&verdict);
    *step = known ? Step::kDone : Step::kInStream;
    if (known) flat_.finish(verdict);
    return verdict;
}

/// Averages the next piece of the own chunk if all ranks' are there, and sends it to everybody.
Status PipelinedFlat::average_next(bool* did) {
    ONEBIT_RETURN_IF_ERROR(scatter_.test_next(did));
    if (!*did) return {};
    flat_.average_and_encode(scatter_.next());
    scatter_.take();
    return gather_.send_next();
}

} // namespace onebit
