// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/preflight.hpp"

#include <algorithm>
#include <utility>

namespace onebit {

Status Preflight::check_buffers(const Buffer& input, const Buffer& output, std::size_t in_place) const {
    const std::pair<const Buffer&, const char*> buffers[] = {{input, "sendbuf"}, {output, "recvbuf"}};
    for (const auto& [buffer, name] : buffers) {
        if (buffer.data == nullptr && buffer.count > 0) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s is NULL", name);
        }
        if (reinterpret_cast<std::uintptr_t>(buffer.data) % elements_.bytes() != 0) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s = %p is not aligned to %zu bytes", name,
                                 buffer.data, elements_.bytes());
        }
    }
    const auto begin_of = [](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data); };
    const auto end_of = [&](const Buffer& buffer) { return begin_of(buffer) + buffer.count * elements_.bytes(); };
    const bool both = input.count > 0 && output.count > 0;
    const bool overlap = both && begin_of(input) < end_of(output) && begin_of(output) < end_of(input);
    const bool output_is_part = output.count <= input.count;
    const Buffer& part = output_is_part ? output : input;
    const Buffer& whole = output_is_part ? input : output;
    if (overlap && begin_of(part) != begin_of(whole) + in_place * elements_.bytes()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "sendbuf and recvbuf overlap without being %s",
                             input.count == output.count ? "the same" : "in place");
    }
    for (const auto& [buffer, name] : buffers) {
        if (buffer.count > 0) ONEBIT_RETURN_IF_ERROR(backend_.check_buffer(buffer.data, name));
    }
    return {};
}

void Preflight::begin(const Status& own, const Call& call) {
    call_ = call;
    own_ = own;
    unchecked_ = call.tentative && (call.apart || !call.if_all_apart) ? 0 : call.count;
    agreed_ = false;
    voted_ = false;
    verdict_ = {};
    refused_ = false;
}

// ---------------------------------------------------------------------------------------------------- stages ----

/// Looks for a NaN or an infinity, then tells the other ranks what was found. From the end to the beginning: the values
/// read last are still in the cache when the encoder, which begins at the beginning, needs them.
Status Preflight::check_values(Step* step) {
    if (!agreed_ && own_.ok() && unchecked_ > 0) return check_slice(step);
    *step = Step::kDone;
    if (agreed_) return {};
    begin_agreement();
    return {};
}

Status Preflight::check_slice(Step* step) {
    const std::size_t length = std::min(unchecked_, search_.values_at_once());
    std::size_t bad = length;
    const bool known = search_.find_nonfinite(elements_.at(call_.input, unchecked_ - length), length, &bad);
    *step = known ? Step::kAgain : Step::kWait;
    if (!known) return {};
    unchecked_ -= length;
    own_ = search_.failure();
    if (own_.ok() && bad < length) note_nonfinite(unchecked_ + bad);
    return {};
}

void Preflight::note_nonfinite(std::size_t index) {
    own_ = catch_exceptions([&] {
        float bits = 0; // room for one element of any type
        backend_.memory().copy(&bits, elements_.at(call_.input, index), elements_.bytes());
        return Status::error(ONEBIT_ERROR_NONFINITE, "sendbuf[%zu] is %g", index,
                             static_cast<double>(elements_.value(&bits, 0)));
    });
}

void Preflight::begin_agreement() {
    agreement_.begin(
        own_, static_cast<std::uint32_t>(call_.algorithm), call_.calls,
        {"the algorithm (1 dense, 2 flat, 3 pipelined, 4 two_level, 5 bruck, 6 ring)", "the number of calls so far"},
        call_.apart);
}

/// Goes on only if all ranks are ready.
Status Preflight::agree(Step* step) {
    *step = Step::kDone;
    if (agreed_) return {};
    ONEBIT_RETURN_IF_ERROR(agreement_.advance(step));
    if (*step != Step::kDone) return {};
    refused_ = !agreement_.verdict().ok();
    agreed_ = true;
    ONEBIT_RETURN_IF_ERROR(agreement_.verdict());
    if (call_.if_all_apart) see_who_is_apart();
    return {};
}

/// If only some are, they look at their values now: the others' values would be lost if the result were called off.
void Preflight::see_who_is_apart() {
    const std::size_t apart = agreement_.flagged();
    call_.if_all_apart = false; // from now on
    call_.tentative = apart == agreement_.ranks();
    agreed_ = call_.tentative || apart == 0;
    unchecked_ = call_.apart ? call_.count : 0;
}

/// All messages have been sent and received, whatever the verdict.
Status Preflight::conclude(Step* step) {
    *step = Step::kDone;
    refused_ = !verdict_.ok();
    return verdict_;
}

Status Preflight::check_sum(Step* step) const {
    std::size_t bad = call_.output_count;
    const bool known = search_.find_nonfinite(call_.output, call_.output_count, &bad);
    *step = known ? Step::kDone : Step::kWait;
    if (!known || bad == call_.output_count) return search_.failure();
    return Status::error(ONEBIT_ERROR_NONFINITE, "element %zu of the result overflows %s", call_.output_first + bad,
                         name_of(elements_.type()));
}

Status Preflight::check_part_of_sum(Step* step) {
    own_ = check_sum(step);
    if (*step == Step::kDone) begin_agreement();
    return {};
}

Status Preflight::agree_on_sum(Step* step) {
    ONEBIT_RETURN_IF_ERROR(agreement_.advance(step));
    if (*step != Step::kDone) return {};
    refused_ = !agreement_.verdict().ok();
    return agreement_.verdict();
}

// ------------------------------------------------------------------------------------------------------ vote ----

/// If all values are finite, their sums with the error have overflowed, which shows in the result on every rank. Or, on
/// two levels, another rank of the node has a NaN, and says so itself.
bool Preflight::doubt(const Slice& slice) {
    if (!own_.ok()) return true;
    const std::size_t begin = slice.begin() - call_.first;
    const std::size_t bad = search_.first_nonfinite(elements_.at(call_.input, begin), slice.count());
    own_ = search_.failure();
    if (own_.ok() && bad < slice.count()) note_nonfinite(begin + bad);
    return !own_.ok();
}

void Preflight::refuse(const Status& why) {
    if (own_.ok()) own_ = why;
}

Status Preflight::cast() {
    voted_ = true;
    begin_agreement();
    Step sent = Step::kWait;
    return agreement_.advance(&sent);
}

Status Preflight::test(bool* known) {
    *known = false;
    if (!voted_) return {};
    Step step = Step::kWait;
    if (!agreement_.decided()) ONEBIT_RETURN_IF_ERROR(agreement_.advance(&step));
    *known = agreement_.decided();
    if (*known) verdict_ = agreement_.verdict();
    return {};
}

} // namespace onebit
