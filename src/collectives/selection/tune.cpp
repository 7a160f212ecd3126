// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/tune.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/allreduce.hpp"
#include "collectives/communicator/compare_ranks.hpp"
#include "collectives/communicator/together.hpp"
#include "collectives/communicator/tuning_table.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "collectives/selection/estimates.hpp"
#include "collectives/selection/factors_plan.hpp"
#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/file.hpp"

namespace onebit {
namespace {

/// The values that calls are measured with, and where they lie.
struct Buffers {
    onebit_memory_t memory = ONEBIT_MEMORY_HOST;
    void* stream = nullptr;
    onebit_codec_t codec = ONEBIT_CODEC_SIGN; ///< that calls are measured with
    std::shared_ptr<const MemoryBackend> backend;
    // Not in place: where the forms are close to each other, dense sums gain more from that than compressed ones.
    AlignedBuffer<float> input;
    AlignedBuffer<float> output;
};

/// A form at one size, and how long its calls took on this rank.
struct Contender {
    onebit_algorithm_t form;
    std::unique_ptr<Allreduce> allreduce;
    std::vector<double> microseconds;

    Status call(Buffers& buffers) {
        const auto begin = std::chrono::steady_clock::now();
        ONEBIT_RETURN_IF_ERROR(allreduce->run(buffers.input.data(), buffers.output.data()));
        ONEBIT_RETURN_IF_ERROR(buffers.backend->settle());
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
        microseconds.push_back(time.count());
        return {};
    }

    double median() {
        const auto middle = microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2);
        std::nth_element(microseconds.begin(), middle, microseconds.end());
        return *middle;
    }
};

/// Each number becomes the largest of all ranks' numbers, because a call takes as long as its slowest rank.
Status take_slowest(Communicator& communicator, const Status& own, std::vector<double>* times) {
    const std::size_t n = times->size();
    std::vector<double> all(n * static_cast<std::size_t>(communicator.size()));
    ONEBIT_RETURN_IF_ERROR(communicator.agree_and_gather(own, times->data(), n * sizeof(double), all.data()));
    for (std::size_t i = 0; i < all.size(); ++i) (*times)[i % n] = std::max((*times)[i % n], all[i]);
    return {};
}

/// Each call begins on all ranks together: a rank that is done early must not be charged for the time that the other
/// ranks' last call, of another form, still takes. *all_know: whether an agreement failed, which all ranks know, and
/// not a call, which may have failed on this rank alone.
Status call_all(Communicator& communicator, std::vector<Contender>& contenders, std::size_t times, Buffers& buffers,
                bool* all_know) {
    for (std::size_t i = 0; i < times; ++i) {
        for (Contender& contender : contenders) {
            const Status begun = communicator.agree({});
            *all_know = !begun.ok();
            ONEBIT_RETURN_IF_ERROR(begun);
            ONEBIT_RETURN_IF_ERROR(catch_exceptions([&] { return contender.call(buffers); }));
        }
    }
    return {};
}

/// All forms at one size, in turn, as often as fits into `seconds`.
Status measure_row(Communicator& communicator, std::span<const onebit_algorithm_t> forms, double seconds,
                   Buffers& buffers, Costs::Row* row) {
    constexpr double kFewest = 3;
    constexpr std::size_t kMost = 200;
    std::vector<Contender> contenders;
    contenders.reserve(forms.size());
    for (const onebit_algorithm_t form : forms) {
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(row->count);
        config.memory = buffers.memory;
        config.stream = buffers.stream;
        config.codec = buffers.codec;
        config.algorithm = form;
        Contender contender = {form, nullptr, {}};
        contender.microseconds.reserve(kMost);
        ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &config, {}, &contender.allreduce));
        contenders.push_back(std::move(contender));
    }

    // The first calls warm up. The second ones say how many there is time for. All ranks must make as many.
    std::vector<double> round_us(1);
    bool all_know = false;
    // A lost peer was waited for once: the other ranks, too, are told instead of asked.
    const Status warm = communicator.give_up_if_lost(call_all(communicator, contenders, 2, buffers, &all_know));
    if (all_know || !communicator.usable()) return warm;
    for (Contender& contender : contenders) {
        if (warm.ok()) round_us[0] += contender.microseconds.back();
        contender.microseconds.clear();
    }
    ONEBIT_RETURN_IF_ERROR(take_slowest(communicator, warm, &round_us));
    const double calls = std::clamp(seconds * 1e6 / round_us[0] - 2, kFewest, double{kMost});

    const Status measured = communicator.give_up_if_lost(
        call_all(communicator, contenders, static_cast<std::size_t>(calls), buffers, &all_know));
    if (all_know || !communicator.usable()) return measured;
    std::vector<double> medians(contenders.size());
    if (measured.ok()) std::ranges::transform(contenders, medians.begin(), &Contender::median);
    ONEBIT_RETURN_IF_ERROR(take_slowest(communicator, measured, &medians));
    for (std::size_t i = 0; i < contenders.size(); ++i) {
        const Contender& contender = contenders[i];
        const bool fell_back = contender.allreduce->plan().algorithm != contender.form;
        row->microseconds[contender.form] = fell_back ? Costs::kNever : medians[i];
    }
    return {};
}

/// A form that was impossible at some size is left out at all sizes.
void drop_partial_forms(std::vector<Costs::Row>& rows) {
    for (const onebit_algorithm_t form : kChosenForms) {
        const bool partial = std::ranges::any_of(
            rows, [form](const Costs::Row& row) { return row.microseconds[form] == Costs::kNever; });
        if (!partial) continue;
        for (Costs::Row& row : rows) row.microseconds[form] = Costs::kNever;
    }
}

/// The smallest possible size, and powers of two from some hundred elements on. The last two sizes are not too close to
/// each other: larger sizes are judged by the line through them.
std::vector<std::uint64_t> sizes_between(std::uint64_t least, std::uint64_t most) {
    constexpr std::uint64_t kFirst = 256;
    std::vector<std::uint64_t> sizes = {least};
    for (std::uint64_t size = kFirst; size < most - most / 3; size *= 2) {
        if (size > least) sizes.push_back(size);
    }
    if (most > least) sizes.push_back(most);
    return sizes;
}

Status check_order(const TuningOrder& order, int ranks) {
    if (order.codecs.empty()) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "num_codecs is 0");
    std::array<bool, kCodecs> has{};
    for (std::size_t i = 0; i < order.codecs.size(); ++i) {
        const onebit_codec_t codec = order.codecs[i];
        if (codec == ONEBIT_CODEC_POWERSGD) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                                 "codecs[%zu]: ONEBIT_CODEC_POWERSGD goes by the times of %s: name that one", i,
                                 name_of(kTimedForFactors));
        }
        if (static_cast<std::size_t>(codec) >= kCodecs) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "codecs[%zu]: %d is not a codec", i,
                                 static_cast<int>(codec));
        }
        if (std::exchange(has[codec], true)) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "codecs[%zu]: %s is there twice", i, name_of(codec));
        }
    }
    if (order.max_count < static_cast<std::uint64_t>(ranks) || order.max_count > SIZE_MAX / 8) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "max_count: %llu is not a possible number of elements",
                             static_cast<unsigned long long>(order.max_count));
    }
    if (!(order.seconds > 0) || !std::isfinite(order.seconds)) { // a NaN is neither
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "seconds: %g is not a positive number", order.seconds);
    }
    return {};
}

Status fill_buffers(std::uint64_t count, Buffers* buffers) {
    AlignedBuffer<float> values(count);
    for (std::size_t i = 0; i < count; ++i) { // of many magnitudes, for codecs that look for the largest
        const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U;
        values[i] = static_cast<float>(static_cast<std::int32_t>(mixed) >> 8) * 0x1p-23F;
    }
    Memory& memory = buffers->backend->memory();
    if (&memory == &host_memory()) {
        buffers->input = std::move(values);
    } else {
        buffers->input = AlignedBuffer<float>(count, memory);
        buffers->input.copy_from(values.data());
    }
    buffers->output = AlignedBuffer<float>(count, memory); // no page is touched for the first time in a call
    return {};
}

/// Elements of a call that takes longer than a latency on any network.
constexpr std::uint64_t kShowsRates = std::uint64_t{1} << 16;

/// What one call of each form took.
double round_us(const Costs::Row& row) {
    double sum = 0;
    for (const double time : row.microseconds) sum += time == Costs::kNever ? 0 : time;
    return sum;
}

/// A call that never ended may still write to the buffers: they stay, unless all calls are known to have ended.
class KeptUnlessDone {
  public:
    explicit KeptUnlessDone(Buffers& buffers) : buffers_(buffers) {}
    ~KeptUnlessDone() {
        if (done_) return;
        buffers_.input.leak();
        buffers_.output.leak();
    }
    KeptUnlessDone(const KeptUnlessDone&) = delete;
    KeptUnlessDone& operator=(const KeptUnlessDone&) = delete;
    void done() { done_ = true; }

  private:
    Buffers& buffers_;
    bool done_ = false;
};

/// A row for each size, until a round takes longer than `patience_us`. Small calls don't end this, because they show no
/// rates. Values are as the handle has them. The codec has its default settings.
Status measure_rows(Communicator& communicator, const onebit_allreduce_config_t& handle,
                    std::span<const onebit_algorithm_t> forms, std::span<const std::uint64_t> sizes, double seconds,
                    double patience_us, std::vector<Costs::Row>* rows) {
    std::shared_ptr<const MemoryBackend> backend;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(
        catch_exceptions([&] { return make_memory_backend(handle.memory, handle.stream, &backend); })));
    const Entered entered(backend);
    Buffers buffers = {handle.memory, handle.stream, handle.codec, backend, {}, {}};
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] { return fill_buffers(sizes.back(), &buffers); })));
    for (const std::uint64_t size : sizes) {
        Costs::Row row;
        row.count = size;
        KeptUnlessDone kept(buffers);
        ONEBIT_RETURN_IF_ERROR(
            measure_row(communicator, forms, seconds / static_cast<double>(sizes.size()), buffers, &row));
        kept.done();
        rows->push_back(row);
        if (size >= kShowsRates && round_us(row) > patience_us) break;
    }
    drop_partial_forms(*rows);
    return {};
}

/// Sizes up to this are measured at the start for handles of any size.
constexpr std::uint64_t kAlwaysMeasured = std::uint64_t{1} << 20;

/// The same for large handles, in the memory that a node's ranks share. (ONEBIT_NODE_SIZE's nodes share theirs.)
std::uint64_t largest_measured(const Communicator& communicator) {
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 24;
    constexpr std::uint64_t kLargestOfNode = std::uint64_t{1} << 27;
    if (communicator.environment().node_size > 0) return kAlwaysMeasured;
    const std::uint64_t most_places = std::ranges::max(communicator.groups().place_of_rank) + std::uint64_t{1};
    return std::clamp(kLargestOfNode / most_places, kAlwaysMeasured, kLargest);
}

/// Appends rows as long as they have the forms of the rows before them; false if a row lacks one.
bool append_rows(const std::vector<Costs::Row>& further, std::vector<Costs::Row>* rows) {
    const auto lacks = [&](const Costs::Row& row, onebit_algorithm_t form) {
        return row.microseconds[form] == Costs::kNever && rows->front().microseconds[form] != Costs::kNever;
    };
    for (const Costs::Row& row : further) {
        const bool complete = rows->empty() || std::ranges::none_of(kChosenForms, [&](onebit_algorithm_t form) {
                                  return lacks(row, form);
                              });
        if (!complete) return false;
        rows->push_back(row);
    }
    drop_partial_forms(*rows); // those that the first rows lack
    return true;
}

Status write_table(const TuningTable& table, const std::string& path) {
    const std::string text = print_tuning_table(table);
    ReplacedFile file(path, 0666); // no secret: the umask says who may read it
    ONEBIT_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
    return file.replace_for_good();
}

} // namespace

Status tune(Communicator& communicator, const TuningOrder& order, const Status& own) {
    const Status possible = own.ok() ? check_order(order, communicator.size()) : own;
    std::uint64_t codecs = 0; // a bit for each
    if (possible.ok()) {
        for (const onebit_codec_t codec : order.codecs) codecs |= std::uint64_t{1} << codec;
    }
    const std::array<NamedValue, 3> same = {{{"codecs (2^i for codec i)", codecs},
                                             {"max_count", order.max_count},
                                             NamedValue::of_double("seconds", order.seconds)}};
    ONEBIT_RETURN_IF_ERROR(compare_across_ranks(communicator, possible, same));

    TuningTable table;
    table.ranks = static_cast<std::size_t>(communicator.size());
    table.nodes = communicator.groups().nodes;
    onebit_allreduce_config_t on_host = ONEBIT_ALLREDUCE_CONFIG_INIT(order.max_count);
    const std::vector<std::uint64_t> sizes = sizes_between(table.ranks, order.max_count);
    const std::vector<onebit_algorithm_t> forms =
        forms_for(communicator.groups(), on_host.memory, communicator.transport());
    const double seconds = order.seconds / static_cast<double>(order.codecs.size());
    std::array<std::optional<KnownCosts>, kCodecs> next;
    for (std::size_t codec = 0; codec < kCodecs; ++codec) { // in the same order on all ranks
        if ((codecs >> codec & 1) == 0) continue;
        on_host.codec = static_cast<onebit_codec_t>(codec);
        ONEBIT_RETURN_IF_ERROR(know_costs(communicator, on_host.memory, on_host.codec));
        std::vector<Costs::Row> rows;
        ONEBIT_RETURN_IF_ERROR(measure_rows(communicator, on_host, forms, sizes, seconds, Costs::kNever, &rows));
        table.costs[codec] = Costs(std::move(rows));
        next[codec] = communicator.costs(on_host.memory, on_host.codec);
        next[codec]->set(*table.costs[codec], "measured");
    }
    ONEBIT_RETURN_IF_ERROR(communicator.agree({})); // all ranks know the same from here on
    for (std::size_t codec = 0; codec < kCodecs && !communicator.environment().deterministic; ++codec) {
        if (!next[codec]) continue;
        communicator.costs(on_host.memory, static_cast<onebit_codec_t>(codec)) = std::move(*next[codec]);
    }
    const bool writes = communicator.rank() == 0 && !order.path.empty();
    return communicator.agree(catch_exceptions([&] { return writes ? write_table(table, order.path) : Status(); }));
}

namespace {

/// Measures, and updates what is known. Ends with an agreement.
Status measure_further(Communicator& communicator, const onebit_allreduce_config_t& handle, KnownCosts* known) {
    constexpr double kPatienceUs = 20e3;
    const auto ranks = static_cast<std::uint64_t>(communicator.size());
    const bool first = known->wants_measuring(kAlwaysMeasured);
    std::vector<Costs::Row> rows = first ? std::vector<Costs::Row>() : known->costs().rows();
    const std::uint64_t measured_to = first ? 0 : rows.back().count;
    const std::uint64_t largest = largest_measured(communicator);
    std::vector<std::uint64_t> sizes;
    if (first) sizes.push_back(ranks);
    for (std::uint64_t size = 1024; size <= largest; size *= 4) {
        const bool needed = size <= kAlwaysMeasured || size / 4 < handle.count;
        if (needed && size > std::max(ranks, measured_to)) sizes.push_back(size);
    }

    std::vector<onebit_algorithm_t> forms = forms_for(communicator.groups(), handle.memory, communicator.transport());
    std::erase(forms, ONEBIT_ALGORITHM_RING); // pays on networks that are better tuned for
    std::vector<Costs::Row> further;
    ONEBIT_RETURN_IF_ERROR(measure_rows(communicator, handle, forms, sizes, kStartSeconds, kPatienceUs, &further));
    const bool in_time = round_us(further.back()) <= kPatienceUs;
    const bool all_forms = append_rows(further, &rows);
    const std::uint64_t reached = rows.back().count;
    const bool to_the_end = !in_time || !all_forms || reached * 4 > largest;
    known->set(Costs(std::move(rows)), "measured at the start, to " + std::to_string(reached) + " elements",
               to_the_end ? UINT64_MAX : reached);
    return communicator.agree({});
}

} // namespace

/// If a rank can't measure, all keep the estimate; ranks never have different costs.
Status measure_at_start(Communicator& communicator, const onebit_allreduce_config_t& handle) {
    KnownCosts& known = communicator.costs(handle.memory, handle.codec);
    if (static_cast<std::uint64_t>(communicator.size()) > kShowsRates) {
        known.keep_estimate("of so many ranks few sizes can be measured");
        return {};
    }
    const bool first = known.wants_measuring(kAlwaysMeasured);
    std::optional<KnownCosts> next;
    const Status measured = together(communicator, [&] {
        next.emplace(known);
        return measure_further(communicator, handle, &*next);
    });
    if (!communicator.usable()) return measured;
    if (!measured.ok()) {
        ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
            next.emplace(known);
            next->keep_estimate((first ? "measuring failed: " : "measuring larger sizes failed: ") +
                                measured.message());
            return Status();
        })));
    }
    known = std::move(*next);
    return {};
}

} // namespace onebit
