// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/saved_files.hpp"
#include "collectives/operation/together.hpp"
#include "core/copy_bytes.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {
namespace {

/// The bytes of one rank's masks or floats, which move and are not computed with.
std::vector<float> as_floats(std::span<const std::uint32_t> words) {
    std::vector<float> floats(words.size());
    copy_bytes(floats.data(), words.data(), words.size_bytes());
    return floats;
}

} // namespace

Status FusedOptimizer::save(const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    Allreduce& first = *buckets_.front().allreduce;
    return together(first, [&] {
        return save_file(first, prefix, [&](const SaveMark& mark, std::vector<std::byte>* bytes) {
            const SavedOptimizer own = saved();
            bytes->resize(own.bytes());
            own.pack(mark, bytes->data());
            return Status();
        });
    });
}

/// What this rank saves.
SavedOptimizer FusedOptimizer::saved() {
    const Transport& channel = buckets_.front().allreduce->channel();
    SavedOptimizer saved = {identity(),
                            static_cast<std::uint32_t>(channel.rank()),
                            static_cast<std::uint32_t>(channel.size()),
                            seat(),
                            all_numbers(),
                            {}};
    for (const ArrayRow& row : rows_of(stage(), saved.rank, saved.ranks, saved.seat)) {
        const Bucket& bucket = buckets_[row.bucket];
        const Chunk piece =
            part_of(row.name, row.ownership, bucket.layout.count(), saved.rank, saved.ranks, saved.seat);
        saved.arrays.push_back({row, piece_of(bucket, row.name, piece)});
    }
    return saved;
}

/// The elements of `piece`: this rank's part of the array, or any part of an array that isn't an error.
std::vector<float> FusedOptimizer::piece_of(const Bucket& bucket, ArrayName name, const Chunk& piece) const {
    std::vector<float> values(piece.count);
    const auto copy = [&](const AlignedBuffer<float>& from) {
        if (piece.count > 0) memory().copy(values.data(), from.data() + piece.begin, piece.count * sizeof(float));
    };
    switch (name) {
        case ArrayName::kParameters:
            for (std::size_t i = 0; i < bucket.layout.tensors().size(); ++i) {
                const Segment part = bucket.layout.whole_tensor(i).within(piece.begin, piece.count);
                if (part.count == 0) continue;
                memory().copy(values.data() + (part.offset - piece.begin), part.parameters(),
                              part.count * sizeof(float));
            }
            break;
        case ArrayName::kMomentum:
            if (bucket.m.size() > 0) {
                copy(bucket.m);
                break;
            }
            copy_message(bucket, piece.begin, piece.count, values.data());
            break;
        case ArrayName::kVariance:
            copy(bucket.v);
            break;
        case ArrayName::kPrecondition:
            copy(bucket.precondition);
            break;
        case ArrayName::kFreshVariance:
            copy(bucket.v_fresh);
            break;
        case ArrayName::kAnchor:
            copy(bucket.anchor);
            break;
        case ArrayName::kMask: {
            std::vector<std::uint32_t> all(piece.words(), ~0U); // no mask: all take part
            if (const std::size_t rest = piece.count % kWordElements; rest > 0) all.back() = (1U << rest) - 1;
            const std::span<const std::uint32_t> mask = bucket.allreduce->delivery().mask();
            if (!mask.empty() && !all.empty()) {
                memory().copy(all.data(), mask.data() + piece.begin / kWordElements,
                              all.size() * sizeof(std::uint32_t));
            }
            return as_floats(all);
        }
        case ArrayName::kWorkerError:
            if (!seat().on_two_levels()) bucket.allreduce->get_state(values.data(), nullptr);
            add_masked(bucket, values.data());
            break;
        case ArrayName::kServerError:
            bucket.allreduce->get_state(nullptr, values.data());
            break;
        case ArrayName::kShardError:
            bucket.allreduce->get_state(values.data(), nullptr);
            break;
    }
    return values;
}

} // namespace onebit
