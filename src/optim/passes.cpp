// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/passes.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "core/hash.hpp"
#include "core/rounded.hpp"
#include "optim/bucket.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/sources_and_sinks.hpp"

namespace onebit {
namespace {

/// Passes go from segment to segment; all kernels of a pass run on a segment while the segment is in the cache.
class HostPasses final : public Passes {
  public:
    HostPasses(Bucket& bucket, const PassSettings& settings, const OptimKernels& kernels, unsigned threads)
        : bucket_(bucket),
          settings_(settings),
          kernels_(kernels),
          numeric_(numeric_kernels(kernels.name)),
          threads_(threads) {}

    void look_at_gradients(Look look, float limit) override;
    bool has_looked(bool /*wait*/, Status* found) override {
        *found = found_;
        return true;
    }
    void adam(float factor) override;
    void invert_denominator() override;
    void weigh_momenta() override;
    void gather_masked(const FactorOf& factor) override;
    void thaw(const FactorOf& ratio) override;
    void sum_squares(std::span<double> by_segment) override;
    void sketch(std::span<float> sketches) override;
    void sketch_weighted(const FactorOf& factor, std::span<float> sketches) override;
    std::unique_ptr<ValueSource> make_momentum_source(FactorOf factor) override;
    void update_from_message() override;
    void find_direction(float factor, std::span<Findings> findings) override;
    void descend(const FactorOf& step) override;
    void find_magnitudes(std::span<Findings> findings) override;
    void begin_messages(const FactorOf& scale) override;
    void look_at_messages(const FactorOf& unscale, std::span<Findings> findings) override;
    void update_from_message(const FactorOf& unscale, const FactorOf& step) override;
    std::unique_ptr<ValueSource> make_round_source(FactorOf factor) override;
    void take_average() override;
    void step_alone(const FactorOf& factor) override;
    void move_momenta(const FactorOf& factor) override;
    void rejoin(const FactorOf& to_momentum, const FactorOf& decay) override;
    void read(const AlignedBuffer<float>& fused, const Reader& body) const override { body(0, fused.view()); }
    void edit(AlignedBuffer<float>& fused, const Editor& body) override { body(0, {fused.data(), fused.size()}); }
    void copy_last_result(const Chunk& chunk, float* values) const override;
    void set_parameters(const float* fused) override;
    void copy_parameters(AlignedBuffer<float>& fused) const override;

  private:
    AdamUpdate without_decay(const Segment& segment) const {
        AdamUpdate without = update(segment);
        without.weight_decay = 0;
        return without;
    }
    Status describe_nonfinite(const Segment& segment, float limit) const;
    template <typename Form>
    void sketch_segments(std::span<const Segment> segments, const Form& form, float* sketch) const;
    /// Gradients times `factor`, in units of the update.
    void weigh_gradients(const Segment& segment, const float* gradients, float factor, float* out) const {
        std::fill_n(out, segment.count, 0.0F);
        kernels_.weighted_momentum(gradients, factor, bucket_.precondition.data() + segment.offset, out, segment.count,
                                   keeping_nothing(betas(segment)));
    }
    /// Updates m with this rank's own gradients.
    void move_momentum(const Segment& segment, float factor) const {
        alignas(64) float widened[kBlockElements];
        const float* const gradients = segment.read_gradients(numeric_, widened);
        onebit::move_momentum(segment, kernels_, settings_, bucket_.precondition, gradients, factor,
                              bucket_.m.data() + segment.offset);
    }
    /// Updates the parameters by m, in the units that are exchanged.
    void move(const Segment& segment, const float* m, const AdamUpdate& how) const {
        if (settings_.exchange_updates) {
            kernels_.exchanged_update(m, segment.parameters(), segment.count, how);
        } else {
            kernels_.frozen_update(m, bucket_.precondition.data() + segment.offset, segment.parameters(), segment.count,
                                   how);
        }
    }
    const AdamBetas& betas(const Segment& segment) const { return settings_.betas[segment.tensor->group]; }
    const AdamUpdate& update(const Segment& segment) const { return settings_.updates[segment.tensor->group]; }
    /// Calls body(block) for all blocks that are exchanged, from several threads.
    template <typename Body>
    void for_each_block(const Body& body) const {
        for (const Chunk& chunk : bucket_.allreduce->delivery().chunks()) {
            parallel_for_blocks(0, chunk.blocks(), threads_, [&](std::size_t i) { body(Block{chunk, i}); });
        }
    }

    /// Calls body(segment, gradients) for all segments, likewise. Gradients: the sum, or without it the last message.
    template <typename Body>
    void for_each_average(const Body& body) const {
        if (bucket_.sum.size() > 0) {
            bucket_.layout.for_each_segment(
                threads_, [&](const Segment& segment) { body(segment, bucket_.sum.data() + segment.offset); });
            return;
        }
        for_each_block([&](const Block& block) {
            alignas(64) float averages[kBlockElements];
            bucket_.allreduce->delivery().last_result(block, averages);
            const float most = settings_.largest_average;
            if (!numeric_.all_within(averages, block.count(), most)) {
                for (float& average : std::span(averages, block.count())) average = rounded::clamp(average, most);
            }
            for (const Segment& segment : bucket_.layout.segments(block)) {
                body(segment, averages + (segment.offset - block.begin()));
            }
        });
    }

    Bucket& bucket_;
    const PassSettings& settings_;
    const OptimKernels& kernels_;
    const NumericKernels& numeric_;
    unsigned threads_;
    Status found_; ///< by the last look
};

void HostPasses::look_at_gradients(Look look, float limit) {
    std::atomic<std::size_t> first_bad = SIZE_MAX;
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        alignas(64) float scratch[kBlockElements];
        const float* values = segment.read_gradients(numeric_, scratch);
        if (look == Look::kGather) {
            float* const place = bucket_.sum.data() + segment.offset;
            std::memcpy(place, values, segment.count * sizeof(float));
            values = place;
        }
        if (numeric_.all_within(values, segment.count, limit)) return;
        for (std::size_t seen = first_bad; segment.index < seen;) {
            if (first_bad.compare_exchange_weak(seen, segment.index)) break;
        }
    });
    found_ = first_bad == SIZE_MAX ? Status() : describe_nonfinite(bucket_.layout.segments()[first_bad], limit);
}

Status HostPasses::describe_nonfinite(const Segment& segment, float limit) const {
    float scratch[kBlockElements];
    const float* const values = segment.read_gradients(numeric_, scratch);
    const std::size_t i = first_beyond(numeric_, limit, values, segment.count);
    return nonfinite_gradient(segment, i, values[i], limit);
}

void HostPasses::adam(float factor) {
    for_each_average([&](const Segment& segment, const float* gradients) {
        const std::size_t at = segment.offset;
        kernels_.adam(gradients, factor, bucket_.m.data() + at, bucket_.v.data() + at, segment.parameters(),
                      segment.count, betas(segment), update(segment));
        segment.write_copy(numeric_);
    });
}

void HostPasses::invert_denominator() {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        float* const at = bucket_.precondition.data() + segment.offset;
        kernels_.invert_denominator(at, segment.count, update(segment), at);
    });
}

void HostPasses::weigh_momenta() {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        float* const m = bucket_.m.data() + segment.offset;
        kernels_.weighted_momentum(m, 1, bucket_.precondition.data() + segment.offset, m, segment.count,
                                   keeping_nothing(betas(segment)));
    });
}

void HostPasses::gather_masked(const FactorOf& factor) {
    const std::span<const std::uint32_t> mask = bucket_.allreduce->delivery().mask();
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        const std::size_t first = segment.offset / kWordElements;
        const std::size_t last = (segment.offset + segment.count - 1) / kWordElements;
        const auto words = mask.subspan(first, last - first + 1);
        if (std::ranges::all_of(words, [](std::uint32_t word) { return word == ~0U; })) return;
        alignas(64) float widened[kBlockElements];
        const float* const gradients = segment.read_gradients(numeric_, widened);
        const bool all_zero = numeric_.all_within(gradients, segment.count, 0);
        if (all_zero) return; // as most masked elements' are
        kernels_.gather_masked(gradients, factor(*segment.tensor), bucket_.precondition.data() + segment.offset,
                               bucket_.masked_gradients.data() + segment.offset, segment.count);
    });
}

/// Rare enough for one element at a time.
void HostPasses::thaw(const FactorOf& ratio) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        const AdamUpdate how = update(segment);
        const float factor = ratio(*segment.tensor);
        for (std::size_t i = segment.offset; i < segment.offset + segment.count; ++i) {
            bucket_.v[i] = thawed_variance(bucket_.v[i], factor, how);
            bucket_.m[i] = thawed_momentum(bucket_.m[i], bucket_.v[i], how);
        }
    });
}

void HostPasses::sum_squares(std::span<double> by_segment) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        by_segment[segment.index] = kernels_.sum_squares(bucket_.sum.data() + segment.offset, segment.count);
    });
}

/// Adds up segments in one sketch; form(segment, gradients, scratch): the address of the values to add.
template <typename Form>
void HostPasses::sketch_segments(std::span<const Segment> segments, const Form& form, float* sketch) const {
    std::fill_n(sketch, kSketchBuckets, 0.0F);
    for (const Segment& segment : segments) {
        alignas(64) float widened[kBlockElements];
        alignas(64) float scratch[kBlockElements];
        const float* const values = form(segment, segment.read_gradients(numeric_, widened), scratch);
        kernels_.sketch(values, segment.count, sketch_seed(segment), sketch);
    }
}

void HostPasses::sketch(std::span<float> sketches) {
    const std::span<const Segment> all = bucket_.layout.segments();
    const auto form = [](const Segment&, const float* gradients, float*) { return gradients; };
    parallel_for_blocks(0, ceil_divide(all.size(), kSketchSegments), threads_, [&](std::size_t p) {
        const std::size_t first = p * kSketchSegments;
        sketch_segments(all.subspan(first, std::min(kSketchSegments, all.size() - first)), form,
                        sketches.data() + p * kSketchBuckets);
    });
}

void HostPasses::sketch_weighted(const FactorOf& factor, std::span<float> sketches) {
    const std::span<const std::size_t> runs = bucket_.layout.runs();
    const auto form = [&](const Segment& segment, const float* gradients, float* weighted) {
        weigh_gradients(segment, gradients, factor(*segment.tensor), weighted);
        return weighted;
    };
    parallel_for_blocks(0, runs.size() - 1, threads_, [&](std::size_t i) {
        sketch_segments(bucket_.layout.segments().subspan(runs[i], runs[i + 1] - runs[i]), form,
                        sketches.data() + i * kSketchBuckets);
    });
}

std::unique_ptr<ValueSource> HostPasses::make_momentum_source(FactorOf factor) {
    const auto read_message = [this](const Block& block, float* m) {
        bucket_.allreduce->delivery().last_result(block, m);
    };
    return std::unique_ptr<ValueSource>(
        new MomentumSource(bucket_.layout, numeric_, kernels_, settings_, {bucket_.m, bucket_.precondition},
                           bucket_.allreduce->codec().takes_blends(), std::move(factor), read_message));
}

void HostPasses::update_from_message() {
    bucket_.allreduce->delivery().last_result(SegmentSink(bucket_.layout, [&](const Segment& segment, const float* m) {
        move(segment, m, update(segment));
        segment.write_copy(numeric_);
    }));
}

// ---- LAMB's ----

void HostPasses::find_direction(float factor, std::span<Findings> findings) {
    for_each_average([&](const Segment& segment, const float* gradients) {
        alignas(64) float u[kBlockElements];
        const std::size_t at = segment.offset;
        kernels_.moments(gradients, factor, bucket_.m.data() + at, bucket_.v.data() + at, segment.count,
                         betas(segment));
        kernels_.direction(bucket_.m.data() + at, bucket_.v.data() + at, segment.parameters(), segment.count,
                           update(segment), u);
        findings[segment.index].x = kernels_.sum_squares(segment.parameters(), segment.count);
        findings[segment.index].u = kernels_.sum_squares(u, segment.count);
    });
}

/// Computes the direction again, which costs less than to write and read it.
void HostPasses::descend(const FactorOf& step) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        alignas(64) float u[kBlockElements];
        const std::size_t at = segment.offset;
        kernels_.direction(bucket_.m.data() + at, bucket_.v.data() + at, segment.parameters(), segment.count,
                           update(segment), u);
        kernels_.descend(u, step(*segment.tensor), segment.parameters(), segment.count);
        segment.write_copy(numeric_);
    });
}

void HostPasses::find_magnitudes(std::span<Findings> findings) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        findings[segment.index].x = kernels_.sum_squares(bucket_.m.data() + segment.offset, segment.count);
    });
}

void HostPasses::begin_messages(const FactorOf& scale) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        const std::size_t at = segment.offset;
        std::memcpy(bucket_.v_fresh.data() + at, bucket_.v.data() + at, segment.count * sizeof(float));
        kernels_.multiply(bucket_.m.data() + at, scale(*segment.tensor), segment.count, bucket_.m.data() + at);
    });
}

void HostPasses::look_at_messages(const FactorOf& unscale, std::span<Findings> findings) {
    const Delivery& messages = bucket_.allreduce->delivery();
    for_each_block([&](const Block& block) {
        alignas(64) float m[kBlockElements];
        alignas(64) float m_before[kBlockElements];
        messages.last_result(block, m);
        if (bucket_.m.size() > 0) {
            std::memcpy(m_before, bucket_.m.data() + block.begin(), block.count() * sizeof(float));
        } else {
            messages.previous_result(block, m_before);
        }
        for (const Segment& segment : bucket_.layout.segments(block)) {
            const std::size_t in_block = segment.offset - block.begin();
            const float* const precondition = bucket_.precondition.data() + segment.offset;
            const float factor = unscale(*segment.tensor);
            float* const work = m_before + in_block; // in place: a third array would not fit into a small stack
            Findings& found = findings[segment.index];
            kernels_.multiply(m + in_block, factor, segment.count, m + in_block);
            kernels_.multiply(m_before + in_block, factor, segment.count, m_before + in_block);
            kernels_.refresh(m + in_block, m_before + in_block, precondition, bucket_.v_fresh.data() + segment.offset,
                             segment.count, betas(segment), update(segment), work);
            found.least_ratio = kernels_.least(work, segment.count);
            for (const auto& [how, squares] :
                 {std::pair(without_decay(segment), &found.u0), {update(segment), &found.u}}) {
                kernels_.frozen_direction(m + in_block, precondition, segment.parameters(), segment.count, how, work);
                *squares = kernels_.sum_squares(work, segment.count);
            }
        }
    });
}

void HostPasses::update_from_message(const FactorOf& unscale, const FactorOf& step) {
    for_each_block([&](const Block& block) {
        alignas(64) float m[kBlockElements];
        bucket_.allreduce->delivery().last_result(block, m);
        for (const Segment& segment : bucket_.layout.segments(block)) {
            float* const at = m + (segment.offset - block.begin());
            AdamUpdate scaled = update(segment);
            scaled.lr = step(*segment.tensor);
            if (unscale) kernels_.multiply(at, unscale(*segment.tensor), segment.count, at);
            move(segment, at, scaled);
            segment.write_copy(numeric_);
        }
    });
}

// ---- 0/1 Adam's ----

std::unique_ptr<ValueSource> HostPasses::make_round_source(FactorOf factor) {
    const auto body = [this, factor = std::move(factor)](const Segment& segment, const float* gradients,
                                                         float* values) {
        if (bucket_.anchor.size() == 0) {
            if (settings_.exchange_updates) {
                weigh_gradients(segment, gradients, factor(*segment.tensor), values);
            } else {
                kernels_.multiply(gradients, factor(*segment.tensor), segment.count, values);
            }
            return;
        }
        // Whether this step counts is known after the exchange: nothing but the drift is written.
        const std::size_t at = segment.offset;
        kernels_.drift(gradients, factor(*segment.tensor), bucket_.m.data() + at, bucket_.precondition.data() + at,
                       segment.parameters(), bucket_.anchor.data() + at, segment.count, betas(segment),
                       without_decay(segment), !settings_.exchange_updates, values);
    };
    return std::unique_ptr<ValueSource>(new SegmentSource(bucket_.layout, numeric_, body));
}

void HostPasses::take_average() {
    bucket_.allreduce->delivery().last_result(
        SegmentSink(bucket_.layout, [&](const Segment& segment, const float* average) {
            alignas(64) float u[kTileElements];
            float* const m = bucket_.m.data() + segment.offset;
            const float* const v = bucket_.v.data() + segment.offset;
            if (settings_.exchange_updates) kernels_.unweigh(average, v, segment.count, update(segment), u);
            kernels_.momentum(settings_.exchange_updates ? u : average, 1, m, segment.count, betas(segment));
            kernels_.direction(m, v, segment.parameters(), segment.count, update(segment), u);
            kernels_.descend(u, update(segment).lr, segment.parameters(), segment.count);
            segment.write_copy(numeric_);
        }));
}

void HostPasses::step_alone(const FactorOf& factor) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        move_momentum(segment, factor(*segment.tensor));
        move(segment, bucket_.m.data() + segment.offset, without_decay(segment));
        segment.write_copy(numeric_);
    });
}

void HostPasses::move_momenta(const FactorOf& factor) {
    bucket_.layout.for_each_segment(threads_,
                                    [&](const Segment& segment) { move_momentum(segment, factor(*segment.tensor)); });
}

void HostPasses::rejoin(const FactorOf& to_momentum, const FactorOf& decay) {
    bucket_.allreduce->delivery().last_result(
        SegmentSink(bucket_.layout, [&](const Segment& segment, const float* average) {
            const std::size_t at = segment.offset;
            const float factor = to_momentum(*segment.tensor);
            if (factor != 0) kernels_.multiply(average, factor, segment.count, bucket_.m.data() + at);
            const float* const precondition = settings_.exchange_updates ? nullptr : bucket_.precondition.data() + at;
            kernels_.rejoin(average, precondition, decay(*segment.tensor), bucket_.anchor.data() + at,
                            segment.parameters(), segment.count);
            segment.write_copy(numeric_);
        }));
}

// ---- what is done rarely ----

void HostPasses::copy_last_result(const Chunk& chunk, float* values) const {
    for (std::size_t b = 0; b < chunk.blocks(); ++b) {
        bucket_.allreduce->delivery().last_result({chunk, b}, values + b * kBlockElements);
    }
}

void HostPasses::set_parameters(const float* fused) {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        std::memcpy(segment.parameters(), fused + segment.offset, segment.count * sizeof(float));
        segment.write_copy(numeric_);
    });
}

void HostPasses::copy_parameters(AlignedBuffer<float>& fused) const {
    bucket_.layout.for_each_segment(threads_, [&](const Segment& segment) {
        std::memcpy(fused.data() + segment.offset, segment.parameters(), segment.count * sizeof(float));
    });
}

} // namespace

std::uint64_t sketch_seed(const Segment& segment) {
    const std::uint64_t place[] = {segment.tensor->number, segment.begin};
    return hash_bytes(place, sizeof(place));
}

Status nonfinite_gradient(const Segment& segment, std::size_t index, float value, float limit) {
    char reason[80] = "";
    if (std::isfinite(value)) {
        std::snprintf(reason, sizeof(reason), ", more than %g: its square or the ranks' sum overflows",
                      static_cast<double>(limit));
    }
    return Status::error(ONEBIT_ERROR_NONFINITE, "%s: gradients[%zu] is %g%s", segment.tensor->name.c_str(),
                         segment.begin + index, static_cast<double>(value), reason);
}

std::unique_ptr<Passes> make_host_passes(Bucket& bucket, const PassSettings& settings, const OptimKernels& kernels,
                                         unsigned threads) {
    return std::make_unique<HostPasses>(bucket, settings, kernels, threads);
}

} // namespace onebit
