// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A step of FusedOptimizer. There are three orders of its stages:
// - Agree first, then exchange in place.
// - Agree on all but the values of gradients; exchange tentatively while encoders look at these values; agree on the
//   encoders' findings; then let the exchanges count.
// - Begin the exchanges early, tentatively; agree while they are under way; then let them count.
// The order follows from the settings and the stage: all ranks take the same order, whether or not they have called
// grad_ready.

#include <algorithm>
#include <cmath>

#include "core/fiber.hpp"
#include "core/wait.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {

Status FusedOptimizer::check_has_gradients(const Tensor& tensor) const {
    if (tensor.gradients != nullptr || config().missing_gradients != 0) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: it has no gradients (NULL)", tensor.name.c_str());
}

Status FusedOptimizer::check_has_gradients(const Bucket& bucket) const {
    for (const Tensor* tensor : bucket.layout.tensors()) ONEBIT_RETURN_IF_ERROR(check_has_gradients(*tensor));
    return {};
}

Status FusedOptimizer::step() {
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    return step_unless({});
}

/// The step goes on as usual up to the agreement, because other ranks may have begun it.
Status FusedOptimizer::cancel_step(const char* reason) {
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    return step_unless(reason == nullptr ? Status::error(ONEBIT_ERROR_CANCELLED, "the step was cancelled")
                                         : Status::error(ONEBIT_ERROR_CANCELLED, "the step was cancelled: %s", reason));
}

/// `refusal`: this rank has refused the step before it looked at anything.
Status FusedOptimizer::step_unless(const Status& refusal) {
    const Status made = make_step_unless(refusal);
    if (!begun_) take_coming(); // settings that came too late for it
    return made;
}

Status FusedOptimizer::make_step_unless(const Status& refusal) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    const Round round = coming_round();
    const Status ready = settings_.backend->check_ready();
    // This rank sends no word where words go through the stream, too, or where other ranks may have begun an exchange
    // and would wait in it. The other ranks then wait for this rank's step.
    const bool alone = has_buckets() || buckets_.front().allreduce->channel().is_stream_ordered();
    if (!ready.ok() && alone) return ready;
    const Status& own = refusal.ok() ? ready : refusal;
    bool threw = true;
    const Status exchanged = catch_exceptions([&] {
        const Status status = exchanges_early(round) ? exchange_early(round, own)
                              : !own.ok()            ? agree(round, own)
                              : encoders_look(round) ? exchange_looking(round)
                                                     : exchange(round);
        threw = false;
        return status;
    });
    forget_exchanges();
    if (threw) return break_all(exchanged); // before an agreement or after it: other ranks don't know of it
    if (exchanged.code() == ONEBIT_ERROR_CANCELLED) ++cancelled_;
    if (exchanged.code() == ONEBIT_ERROR_NONFINITE) {
        ++skipped_;
        if (frozen()) return after_freeze(exchanged);
    }
    ONEBIT_RETURN_IF_ERROR(exchanged);
    return complete(round);
}

/// The step counts, on all ranks.
Status FusedOptimizer::complete(Round round) {
    const bool measures = measures_now();
    const bool admits = measures && admits_now();
    if (measures) { // before any parameter changes, because the ranks exchange data
        const Status measured = catch_exceptions([&] { return measure_variances(); });
        if (!measured.ok()) return break_all(measured);
    }
    const Status counted = catch_exceptions([&] { return count(round); });
    if (!counted.ok()) return break_all(counted); // it counts in part here; other ranks don't know of the failure
    if (measures) { // the step has been made: if this breaks the optimizer, the next call says so
        const Status followed = catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(follow_variances());
            return admits && frozen() ? admit_newcomers() : Status();
        });
        if (!followed.ok()) (void)break_all(followed);
    }
    return {};
}

/// A training that compresses too early may end with such an error.
Status FusedOptimizer::after_freeze(const Status& nonfinite) const {
    return Status::error(nonfinite.code(), "%s (the variance has been frozen since step %llu)",
                         nonfinite.message().c_str(), static_cast<unsigned long long>(freeze_step_));
}

/// The exchanged values count on every bucket: no rank can refuse the step any more.
Status FusedOptimizer::count(Round round) {
    grad_norm_ = coming_norm_;
    begin_updates(round);
    gather_masked();
    for (Bucket& bucket : buckets_) {
        (void)Fiber::pause();
        if (averages_exactly(bucket, round) || compresses_gradients()) {
            update_exactly(bucket);
        } else if (round == Round::kCompressed) {
            update_compressed(bucket);
        } else {
            update_locally(bucket);
        }
    }
    ONEBIT_RETURN_IF_ERROR(check_passes());
    finish_step(round);
    ++steps_;
    exact_rounds_ += round == Round::kExact ? 1 : 0;
    compressed_rounds_ += round == Round::kCompressed ? 1 : 0;
    if (warmup_ends()) request_freeze();
    return {};
}

// -------------------------------------------------------------------------------------- agree, then exchange ----

Status FusedOptimizer::exchange(Round round) {
    for (Bucket& bucket : buckets_) {
        look_at_gradients(bucket, averages_exactly(bucket, round) ? Passes::Look::kGather : Passes::Look::kSearch);
        (void)Fiber::pause();
    }
    Status own;
    for (Bucket& bucket : buckets_) {
        if (!bucket.looked) bucket.looked = bucket.passes->has_looked(true, &bucket.found);
        if (own.ok()) own = bucket.found;
    }
    ONEBIT_RETURN_IF_ERROR(agree(round, own));
    for (Bucket& bucket : buckets_) {
        if (averages_exactly(bucket, round)) ONEBIT_RETURN_IF_ERROR(begin_sum(bucket, bucket.sum));
    }
    ONEBIT_RETURN_IF_ERROR(finish_exchanges());
    ONEBIT_RETURN_IF_ERROR(find_factor(round));
    if (freeze_requested_) ONEBIT_RETURN_IF_ERROR(change_over());
    return round == Round::kCompressed ? exchange_compressed() : Status();
}

/// With buckets: as in an early step, because the order in which ranks are added changes the last bit. Without buckets:
/// in the fastest way, which may block.
Status FusedOptimizer::begin_sum(Bucket& bucket, AlignedBuffer<float>& values) {
    if (!has_buckets()) return bucket.allreduce->run_sum(values.data());
    bucket.allreduce->start_sum();
    return {};
}

Status FusedOptimizer::exchange_compressed() {
    for (Bucket& bucket : buckets_) {
        if (bucket.compresses) ONEBIT_RETURN_IF_ERROR(before_exchange(bucket));
    }
    if (has_buckets()) { // all of them or none
        for (Bucket& bucket : buckets_) {
            if (bucket.compresses) start_compressed(bucket);
        }
        ONEBIT_RETURN_IF_ERROR(finish_exchanges());
        return commit_exchanges(Round::kCompressed);
    }
    for (Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        bucket.passes->prepare_source();
        const Status exchanged = bucket.allreduce->run_compressed(steps_, *bucket.source);
        if (exchanged.code() == ONEBIT_ERROR_NONFINITE) ONEBIT_RETURN_IF_ERROR(void_message(bucket));
        ONEBIT_RETURN_IF_ERROR(exchanged);
    }
    return {};
}

/// After an overflow, which all ranks have seen: if the message was the momentum, the momentum begins at zero again. If
/// a rank has no memory for it, the optimizer breaks on all ranks.
Status FusedOptimizer::void_message(Bucket& bucket) {
    const Status made = catch_exceptions([&] {
        if (bucket.m.size() == 0) bucket.m = AlignedBuffer<float>(bucket.layout.count(), memory());
        bucket.passes->make_room_for_momenta();
        return Status();
    });
    const Status agreed = buckets_.front().allreduce->agree_now(made);
    return agreed.ok() ? agreed : break_all(agreed);
}

/// All ranks make the same step, or none does.
Status FusedOptimizer::agree(Round round, const Status& own, const std::function<Status(bool*)>& meanwhile) {
    Allreduce& first = *buckets_.front().allreduce;
    const std::uint32_t stage =
        static_cast<std::uint32_t>(round) + (freeze_requested_ ? 10 : 0) + (exchanges_early(round) ? 100 : 0);
    const Status agreed = first.agree_now(
        own, stage, settings_.hash() + set_hash_,
        {"the stage (0 exact, 1 compressed, 2 local; 10 more right after the freeze; 100 more where "
         "exchanges may begin before the step)",
         "the learning rates, the gradient scale, another setting or a state that was set (their hash)"},
        meanwhile);
    if (!first.broken().ok()) return break_all(agreed);
    if (has_buckets() && !first.agreed_on_word()) { // some ranks may have begun exchanges that others never begin
        return break_all(Status::error(ONEBIT_ERROR_MISMATCH,
                                       "the ranks came to this step in different stages (was one of them frozen?)"));
    }
    return agreed;
}

/// What breaks one exchange breaks the optimizer: no rank waits for any other exchange any more.
Status FusedOptimizer::break_all(const Status& why) {
    for (Bucket& bucket : buckets_) {
        if (bucket.allreduce->broken().ok()) bucket.allreduce->break_off(why);
    }
    if (norm_ != nullptr) norm_->give_up(why);
    if (follower_ != nullptr) follower_->give_up(why);
    return why;
}

/// A pass that failed has left undefined values.
Status FusedOptimizer::check_passes() const {
    for (const Bucket& bucket : buckets_) ONEBIT_RETURN_IF_ERROR(bucket.passes->failure());
    return {};
}

/// Looks for missing, bad or too large gradients, and reports the first. Changes nothing but the sum.
void FusedOptimizer::look_at_gradients(Bucket& bucket, Passes::Look look) {
    bucket.found = check_has_gradients(bucket);
    bucket.looked = !bucket.found.ok();
    if (bucket.looked) return;
    bucket.passes->look_at_gradients(look, settings_.largest_gradient(buckets_.front().allreduce->channel().size()));
}

/// Collective where gradients are clipped but not all averaged exactly; blocks.
Status FusedOptimizer::find_factor(Round round) {
    factor_ = 1 / settings_.gradient_scale;
    coming_norm_ = 0;
    if (norm_ == nullptr || config().max_grad_norm <= 0) return {};
    double squares = 0; // of the sum over the ranks
    if (round == Round::kExact) {
        for (const Bucket& bucket : buckets_) squares += norm_->sum_squares(bucket);
    } else {
        norm_->restart();
        for (const Bucket& bucket : buckets_) norm_->sketch(bucket);
        ONEBIT_RETURN_IF_ERROR(norm_->sum_squares_over_ranks(&squares));
    }
    const double norm = std::sqrt(squares) / buckets_.front().allreduce->channel().size() / settings_.gradient_scale;
    if (!std::isfinite(norm)) { // the same on every rank
        return Status::error(ONEBIT_ERROR_NONFINITE,
                             "the sketch of the gradients overflows float32: no norm to clip to");
    }
    coming_norm_ = norm;
    if (norm > config().max_grad_norm) factor_ *= config().max_grad_norm / norm;
    return {};
}

// --------------------------------------------------------------- begin to exchange, agree meanwhile, let it count ----

/// Whether a compressed exchange may be tentative, that is, called off later. It may not where it must wait for all
/// gradients (a clipped momentum) or for a preparation that the ranks make together.
bool FusedOptimizer::may_be_tentative(Round round) const {
    return round == Round::kCompressed && norm_ == nullptr && !freeze_requested_ && !must_prepare_exchange();
}

bool FusedOptimizer::exchanges_early(Round round) const {
    return has_buckets() && (may_be_tentative(round) || (round == Round::kExact && !freeze_requested_));
}

bool FusedOptimizer::encoders_look(Round round) const {
    const auto looks = [](const Bucket& bucket) { return !bucket.compresses || bucket.passes->encoder_looks(); };
    return !has_buckets() && may_be_tentative(round) && std::ranges::all_of(buckets_, looks);
}

/// The first agreement doesn't wait for a GPU, which may still be busy with the backward pass. The second waits for the
/// encoders' findings while messages travel. But where agreements and messages go through the stream, they come after
/// the backward pass, and the second after the messages: the stream needs the same order on all ranks.
Status FusedOptimizer::exchange_looking(Round round) {
    Status own;
    for (Bucket& bucket : buckets_) {
        if (own.ok()) own = check_has_gradients(bucket);
    }
    ONEBIT_RETURN_IF_ERROR(agree(round, own));
    for (Bucket& bucket : buckets_) {
        if (bucket.compresses) start_early(bucket, round, {});
    }
    bool moved = false;
    const bool in_stream = buckets_.front().allreduce->channel().is_stream_ordered();
    ONEBIT_RETURN_IF_ERROR(in_stream ? finish_exchanges() : progress(&moved));
    for (Bucket& bucket : buckets_) {
        if (bucket.compresses) continue;
        look_at_gradients(bucket, Passes::Look::kGather);
        if (const Status summed = begin_sum(bucket, bucket.sum); !summed.ok()) return break_all(summed);
    }
    return conclude_tentative(round, {});
}

Status FusedOptimizer::grad_ready(std::size_t number) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    if (!has_buckets()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.bucket_size is 0: no exchange can begin before the step");
    }
    ONEBIT_RETURN_IF_ERROR(check_number(number));
    const Tensor& tensor = tensors_[number];
    ONEBIT_RETURN_IF_ERROR(check_has_gradients(tensor));
    ONEBIT_RETURN_IF_ERROR(settings_.backend->check_ready());
    if (ready_[number]) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: its gradients are ready already: step first",
                             tensor.name.c_str());
    }
    begun_ = ready_[number] = true;
    ++buckets_[bucket_of_[number]].tensors_ready;

    const Round round = coming_round();
    if (!exchanges_early(round)) return {};
    for (Bucket& bucket : buckets_) { // in their order
        if (bucket.tensors_ready < bucket.layout.tensors().size()) break;
        if (!bucket.started) start_early(bucket, round, check_has_gradients(bucket));
    }
    bool moved = false;
    (void)progress(&moved);
    return check_usable();
}

Status FusedOptimizer::exchange_early(Round round, const Status& refusal) {
    for (Bucket& bucket : buckets_) {
        if (bucket.started) continue;
        start_early(bucket, round, refusal.ok() ? check_has_gradients(bucket) : refusal);
        (void)Fiber::pause();
    }
    return conclude_tentative(round, refusal);
}

/// All exchanges are under way: decides whether they count. `refusal`: this rank's refusal, whatever its gradients are.
Status FusedOptimizer::conclude_tentative(Round round, const Status& refusal) {
    Status own;
    ONEBIT_RETURN_IF_ERROR(find_in_gradients(&own));
    if (!refusal.ok()) own = refusal;
    const Status agreed = agree(round, own, [this](bool* moved) { return progress(moved); });
    // The exchanges are finished even where the step is refused: all ranks have begun the same exchanges.
    ONEBIT_RETURN_IF_ERROR(finish_exchanges());
    ONEBIT_RETURN_IF_ERROR(agreed);
    ONEBIT_RETURN_IF_ERROR(find_factor(round));
    return commit_exchanges(round);
}

/// Starts whatever the gradients are: the ranks agree later whether the exchange counts. `unread`: why the gradients
/// can't be read; then the messages' old contents are exchanged, and won't count.
void FusedOptimizer::start_early(Bucket& bucket, Round round, const Status& unread) {
    const bool exact = averages_exactly(bucket, round);
    bucket.found = unread;
    bucket.looked = !unread.ok();
    if (unread.ok()) {
        look_at_gradients(bucket, exact                            ? Passes::Look::kGather
                                  : bucket.passes->encoder_looks() ? Passes::Look::kWhileEncoding
                                                                   : Passes::Look::kSearch);
    }
    factor_ = 1 / settings_.gradient_scale;
    if (exact) {
        (void)begin_sum(bucket, bucket.sum); // can't fail with buckets
    } else if (!unread.ok()) {
        bucket.allreduce->start_tentative(steps_, nullptr);
    } else {
        start_compressed(bucket);
    }
    bucket.started = true;
}

void FusedOptimizer::start_compressed(Bucket& bucket) {
    bucket.passes->prepare_source();
    bucket.allreduce->start_tentative(steps_, bucket.source.get());
}

/// Finds the first error in the gradients of any bucket; the exchanges go on meanwhile. Fails where an exchange is
/// broken.
Status FusedOptimizer::find_in_gradients(Status* own) {
    const Status found = wait_until_done("a look at the gradients", patience(), [this](bool* done, bool* moved) {
        ONEBIT_RETURN_IF_ERROR(progress(moved));
        *done = true;
        for (Bucket& bucket : buckets_) {
            if (!bucket.looked) bucket.looked = bucket.passes->has_looked(false, &bucket.found);
            *done = *done && bucket.looked;
        }
        return Status();
    });
    if (!found.ok()) return break_all(found);
    const auto bad = std::ranges::find_if(buckets_, [](const Bucket& bucket) { return !bucket.found.ok(); });
    if (bad != buckets_.end()) *own = bad->found;
    return {};
}

/// Moves every exchange on until it has to wait for a peer. *moved: at least one made progress. Fails where an exchange
/// is broken.
Status FusedOptimizer::progress(bool* moved) {
    *moved = false;
    for (Bucket& bucket : buckets_) {
        Allreduce& allreduce = *bucket.allreduce;
        while (allreduce.in_flight() && allreduce.broken().ok()) {
            Step step = Step::kDone;
            const Status status = allreduce.advance(&step);
            if (!allreduce.broken().ok()) (void)break_all(status);
            if (!status.ok() && exchange_failure_.ok()) exchange_failure_ = status;
            if (waits(step)) break;
            *moved = true;
            (void)Fiber::pause();
        }
    }
    return buckets_.front().allreduce->broken(); // if one is, all are
}

/// Waits until no exchange is under way any more; fails only where an exchange can't finish.
Status FusedOptimizer::finish_exchanges() {
    const Status finished = wait_until_done("a step's exchange", patience(), [this](bool* done, bool* moved) {
        ONEBIT_RETURN_IF_ERROR(progress(moved));
        *done = std::ranges::none_of(buckets_, [](const Bucket& bucket) { return bucket.allreduce->in_flight(); });
        return Status();
    });
    return finished.ok() ? finished : break_all(buckets_.front().allreduce->abandon(finished));
}

/// Lets all exchanges count, or none where a message has overflowed, which all ranks have seen.
Status FusedOptimizer::commit_exchanges(Round round) {
    for (Bucket& bucket : buckets_) {
        if (averages_exactly(bucket, round)) continue;
        if (exchange_failure_.ok()) {
            bucket.allreduce->commit();
        } else if (!has_buckets()) { // as after an exchange in place: the result is the same wherever tensors lie
            if (const Status reset = bucket.allreduce->reset(); !reset.ok()) return break_all(reset);
            ONEBIT_RETURN_IF_ERROR(void_message(bucket));
        }
    }
    if (exchange_failure_.ok() || has_buckets()) return exchange_failure_;
    return Status::error(exchange_failure_.code(), "%s; the error state has been reset",
                         exchange_failure_.message().c_str());
}

/// The step that had begun is over.
void FusedOptimizer::forget_exchanges() {
    begun_ = false;
    ready_.assign(ready_.size(), false);
    for (Bucket& bucket : buckets_) {
        bucket.tensors_ready = 0;
        bucket.started = false;
    }
    exchange_failure_ = {};
}

} // namespace onebit
