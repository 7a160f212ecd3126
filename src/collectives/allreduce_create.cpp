// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How a handle is created and destroyed: what its channels, its codec and each of its forms are made of.

#include <utility>

#include "collectives/allreduce.hpp"
#include "collectives/forms/device_two_level.hpp"
#include "collectives/forms/flat_plain.hpp"
#include "collectives/forms/two_level.hpp"
#include "collectives/sums/shared_allreduce.hpp"

namespace onebit {
namespace {

/// The tags of exchanges on one channel; and on the channel between nodes.
enum Tag : int {
    kPlainTag = 2,
    kSumTag = 4,
    kPipelinedTag = kSumTag + DirectSum::kTags,
    kBruckTag = 12,
    kDenseTag = 14,      // and those behind it: two for each bit of the number of ranks, and two
    kFactorsTag = 50,    // and PowerSgd::kTags of them
    kRingTag = kFewTags, // and all behind it
};
constexpr int kAcrossTag = 0;
static_assert(kFactorsTag + PowerSgd::kTags <= Collective::kSpareTag);

/// How many tags the channel needs.
int tags_of(const Plan& plan, int ranks) {
    if (plan.algorithm != ONEBIT_ALGORITHM_RING) return kFewTags;
    return kRingTag + PipelinedFlat::ring_tags(plan.count, static_cast<std::size_t>(ranks), plan.piece_blocks);
}

} // namespace

Status Allreduce::create(Communicator& communicator, const onebit_allreduce_config_t* config, const Status& own,
                         std::unique_ptr<Allreduce>* allreduce, const AllreduceUses& uses, const char* why) {
    Parts parts;
    Plan& plan = parts.plan;
    ONEBIT_RETURN_IF_ERROR(make_plan(communicator, config, own, why, &plan));
    ONEBIT_RETURN_IF_ERROR(make_parts(communicator, &parts));
    const int tags = tags_of(plan, communicator.size());
    ONEBIT_RETURN_IF_ERROR(communicator.make_room(tags));
    const Entered entered(parts.backend);
    // With tentative calls, plan_sum plans sums.
    const bool sums = plan.compresses() ? uses.exact_sums : !uses.tentative_calls;
    plan.shares_sums = plan.can_share_sums && sums;
    const bool shares_memory = plan.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL || plan.shares_sums;
    std::unique_ptr<Allreduce> made;
    std::unique_ptr<TwoLevelForm::Channels> channels; // where memory is shared
    Status ready = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&parts.channel, tags));
        made.reset(new Allreduce(std::move(parts), uses));
        made->shared_buffers_ = communicator.shared_buffers();
        if (shares_memory) channels = std::make_unique<TwoLevelForm::Channels>();
        return made->plan_.shares_sums ? made->channel_->plan_memory(&channels->memory) : Status();
    });
    if (plan.algorithm == ONEBIT_ALGORITHM_LEVELS) {
        ONEBIT_RETURN_IF_ERROR(communicator.agree(ready));
        ready = LevelsAllreduce::open_channels(*made->channel_, made->plan_.levels, &made->level_channels_);
    }
    if (shares_memory) { // waits for the other ranks: only where all ranks come here
        ONEBIT_RETURN_IF_ERROR(communicator.agree(ready));
        ONEBIT_RETURN_IF_ERROR(made->share_memory(communicator, std::move(channels)));
    }
    if (ready.ok()) ready = catch_exceptions([&] { return made->allocate(communicator.environment()); });
    const Status agreed = communicator.agree(ready);
    if (made != nullptr && !communicator.usable()) made->break_off(agreed);
    ONEBIT_RETURN_IF_ERROR(agreed);
    *allreduce = std::move(made);
    return {};
}

/// If a node can't share memory, for lack of memory or at all, all ranks do without.
Status Allreduce::share_memory(Communicator& communicator, std::unique_ptr<TwoLevelForm::Channels> channels) {
    const Status opened = communicator.give_up_if_lost(catch_exceptions([&] {
        if (!plan_.shares_sums) return open_two_levels(communicator, channels.get());
        return channel_->share_memory(
            SharedAllreduce::shared_bytes(elements_, plan_.count, static_cast<std::size_t>(channel_->size())),
            patience_, &channels->memory);
    }));
    const bool can_do_without =
        opened.code() == ONEBIT_ERROR_OUT_OF_MEMORY || opened.code() == ONEBIT_ERROR_UNSUPPORTED;
    Status agreed = communicator.agree(can_do_without ? Status() : opened);
    const bool all_can = agreed.ok();
    if (all_can) agreed = communicator.agree(opened);
    if (agreed.ok()) {
        channels_ = std::move(*channels);
        return {};
    }
    if (all_can && communicator.usable()) {
        plan_.do_without_shared_memory(agreed.message());
        return {};
    }
    channels->give_up(agreed);
    (void)channels.release(); // messages may still be under way
    return agreed;
}

Status Allreduce::open_two_levels(Communicator& communicator, TwoLevelForm::Channels* channels) {
    if (plan_.memory != ONEBIT_MEMORY_HOST) {
        return DeviceTwoLevel::open_channels(*channel_, communicator, *backend_, channels);
    }
    return TwoLevelAllreduce::open_channels(*channel_, communicator, *codec_, elements_, plan_, extras().rounds(),
                                            channels);
}

FlatAllreduce::Extras Allreduce::extras() const {
    return {.keep_results = uses_.keep_results,
            .tentative_calls = uses_.tentative_calls || plan_.tentative,
            .op = plan_.op};
}

Status Allreduce::allocate(const Environment& environment) {
    ONEBIT_RETURN_IF_ERROR(equip(environment));
    // The dense form takes memory, which not every handle needs.
    const bool dense_alone = !compresses() && !uses_.tentative_calls; // plan_sum plans the others' sums
    if (dense_alone || uses_.exact_sums) ONEBIT_RETURN_IF_ERROR(add_dense());
    if (!compresses()) return {};

    if (plan_.averages_factors()) return add_power_sgd();
    if (plan_.algorithm == ONEBIT_ALGORITHM_LEVELS) return add_levels();
    if (plan_.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL) return add_two_levels();
    flat_ = std::make_unique<FlatAllreduce>(*codec_, plan_.count, static_cast<std::size_t>(channel_->rank()),
                                            static_cast<std::size_t>(channel_->size()), extras());
    delivery_ = flat_.get();
    std::unique_ptr<PlainFlat> plain;
    ONEBIT_RETURN_IF_ERROR(PlainFlat::create(*channel_, *flat_, PlainFlat::kDirect, kPlainTag, &plain));
    add(ONEBIT_ALGORITHM_FLAT, std::move(plain));
    if (channel_->is_stream_ordered()) { // pieces start in an order that depends on others' arrival
        ONEBIT_RETURN_IF_ERROR(PlainFlat::create(*channel_, *flat_, PlainFlat::kDirect, kPipelinedTag, &plain));
        add(ONEBIT_ALGORITHM_PIPELINED, std::move(plain));
    } else {
        ONEBIT_RETURN_IF_ERROR(add_pipelined(ONEBIT_ALGORITHM_PIPELINED, PipelinedFlat::Way::kStraight, kPipelinedTag));
    }
    if (plan_.algorithm == ONEBIT_ALGORITHM_BRUCK) {
        ONEBIT_RETURN_IF_ERROR(PlainFlat::create(*channel_, *flat_, plan_.radix, kBruckTag, &plain));
        add(ONEBIT_ALGORITHM_BRUCK, std::move(plain));
    }
    if (plan_.algorithm == ONEBIT_ALGORITHM_RING) {
        ONEBIT_RETURN_IF_ERROR(add_pipelined(ONEBIT_ALGORITHM_RING, PipelinedFlat::Way::kRing, kRingTag));
    }
    return {};
}

Status Allreduce::add_pipelined(onebit_algorithm_t name, PipelinedFlat::Way way, int tag) {
    std::unique_ptr<PipelinedFlat> made;
    ONEBIT_RETURN_IF_ERROR(PipelinedFlat::create(*channel_, *flat_, way, plan_.piece_blocks, tag, &made));
    add(name, std::move(made));
    return {};
}

Status Allreduce::add_two_levels() {
    std::unique_ptr<TwoLevelForm> made;
    if (plan_.memory == ONEBIT_MEMORY_HOST) {
        std::unique_ptr<TwoLevelAllreduce> on_host;
        ONEBIT_RETURN_IF_ERROR(TwoLevelAllreduce::create(channels_, shared_buffers_, *codec_, elements_, plan_,
                                                         extras(), kAcrossTag, &on_host));
        delivery_ = &on_host->delivery();
        made = std::move(on_host);
    } else {
        ONEBIT_RETURN_IF_ERROR(DeviceTwoLevel::create(channels_, *codec_, plan_.op,
                                                      backend_->make_arithmetic(plan_.threads), plan_.count,
                                                      plan_.piece_blocks, kAcrossTag, &made));
    }
    sharded_ = made.get();
    add(ONEBIT_ALGORITHM_TWO_LEVEL, std::move(made));
    return {};
}

Status Allreduce::add_levels() {
    std::unique_ptr<LevelsAllreduce> made;
    ONEBIT_RETURN_IF_ERROR(
        LevelsAllreduce::create(level_channels_, *codec_, elements_, plan_, extras(), uses_.sources, &made));
    sharded_ = levels_ = made.get();
    delivery_ = &made->delivery();
    add(ONEBIT_ALGORITHM_LEVELS, std::move(made));
    return {};
}

Status Allreduce::add_power_sgd() {
    std::unique_ptr<PowerSgd> made;
    const PowerSgd::Settings settings = {
        .op = plan_.op, .threads = plan_.threads, .numeric = &numeric_kernels(codec_->kernels())};
    ONEBIT_RETURN_IF_ERROR(
        PowerSgd::create(*channel_, plan_.nodes, *backend_, elements_, plan_.matrices, settings, kFactorsTag, &made));
    mask_hash_ = plan_.matrices.hash();
    power_sgd_ = made.get();
    add(ONEBIT_ALGORITHM_FLAT, std::move(made));
    return {};
}

Status Allreduce::add_dense() {
    std::unique_ptr<Algorithm> dense;
    if (plan_.shares_sums) {
        dense = std::make_unique<SharedAllreduce>(*channel_, *channels_.memory, shared_buffers_, elements_, plan_.count,
                                                  plan_.threads);
    } else {
        ONEBIT_RETURN_IF_ERROR(
            backend_->make_dense(*channel_, plan_.nodes, elements_, plan_.count, plan_.threads, kDenseTag, &dense));
    }
    add(ONEBIT_ALGORITHM_DENSE, std::move(dense));
    return {};
}

Status Allreduce::make_sums() {
    return form(ONEBIT_ALGORITHM_DENSE).algorithm == nullptr ? add_dense() : Status();
}

void Allreduce::drop_sums() {
    if (compresses() && !plan_.shares_sums) form(ONEBIT_ALGORITHM_DENSE) = {}; // the node goes on counting
}

/// A call is: check and agree (unless the sum tells), the algorithm's own stages, and the conclusion. An average of
/// finite values is finite. An exact sum may not be finite. A compressed sum's scales tell.
void Allreduce::add(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm) {
    const bool checked = plan_.check != ONEBIT_CHECK_NONE;
    // Twice where maybe only some ranks can look on the way.
    const int looks = !checked || plan_.sum_tells() ? 0 : plan_.checks_sums_on_the_way() ? 2 : 1;
    std::vector<Stage> behind;
    if (name == ONEBIT_ALGORITHM_DENSE && plan_.checks_sums()) {
        behind.push_back({"look at the sum", [this](Step* step) { return preflight_->check_sum(step); }});
    }
    add_form(name, std::move(algorithm), looks, std::move(behind));
}

Allreduce::~Allreduce() {
    if (close()) return;
    (void)flat_.release();
    (void)direct_sum_.release();
    (void)channels_.memory.release();
    (void)channels_.across.release();
    (void)channels_.node.release();
    for (auto& channel : level_channels_.of_level) (void)channel.release();
}

Status Allreduce::plan_sum(float* values) {
    direct_sum_.reset();
    if (values == nullptr) return {};
    return DirectSum::create(*channel_, sum_levels(plan_.nodes, static_cast<std::size_t>(channel_->rank())),
                             backend_->make_arithmetic(plan_.threads), values, plan_.count, kSumTag, &direct_sum_);
}

} // namespace onebit
