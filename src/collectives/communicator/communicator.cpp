// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/communicator/together.hpp"
#include "collectives/communicator/tuning_table.hpp"
#include "core/copy_bytes.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/wait.hpp"
#include "numeric/kernels.hpp"
#include "transport/give_up.hpp"
#include "transport/nodes.hpp"
#include "transport/tag_space.hpp"

namespace onebit {
namespace {

/// The version of docs/WIRE_FORMAT.md.
constexpr std::uint32_t kWireFormat = 1;
/// What ranks tell each other when a handle is created is in the library's own format, which patches don't change.
constexpr std::uint64_t kLibraryVersion = version_to_agree_on(ONEBIT_VERSION_NUMBER);

/// Exchanges of the communicator's own channel.
enum Tag : int { kAgreementTag = 0, kGatherTag = 2 };

/// The file's text, once it is known to be a table, and the table; nothing where no file is named.
Status read_tuning_table(const std::string& name, std::string* text, TuningTable* table) {
    if (name.empty()) return {};
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(read_file(name, kLongestTuningTable, &bytes));
    text->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return parse_tuning_table(*text, name, table);
}

} // namespace

Status Communicator::look_at_environment(double timeout) {
    const Status read = read_environment(&environment_);
    if (timeout > 0) environment_.timeout = timeout;
    patience_.timeout = environment_.timeout; // before the first wait, whatever else is wrong
    ONEBIT_RETURN_IF_ERROR(read);
    return check_kernels(environment_.kernels);
}

Status Communicator::make(std::unique_ptr<Transport>* transport, std::unique_ptr<Communicator>* communicator) {
    return catch_exceptions([&] {
        std::unique_ptr<Communicator> made(new Communicator());
        ONEBIT_RETURN_IF_ERROR(Agreement::create(**transport, kAgreementTag, &made->agreement_));
        made->patience_.abort_switch = (*transport)->abort_switch();
        made->transport_ = std::move(*transport);
        *communicator = std::move(made);
        return Status();
    });
}

Status Communicator::create_local(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator) {
    std::unique_ptr<Communicator> made;
    ONEBIT_RETURN_IF_ERROR(make(&transport, &made));
    ONEBIT_RETURN_IF_ERROR(made->look_at_environment());
    const std::vector<std::uint64_t> one_node(static_cast<std::size_t>(made->size()),
                                              made->transport_->node_identity());
    ONEBIT_RETURN_IF_ERROR(made->find_groups(one_node));
    std::string text;
    ONEBIT_RETURN_IF_ERROR(read_tuning_table(made->environment_.tuning, &text, &made->tuning_table_));
    *communicator = std::move(made);
    return {};
}

Status Communicator::create(std::unique_ptr<Transport> transport, const Status& own,
                            std::unique_ptr<Communicator>* communicator, double timeout) {
    std::unique_ptr<Communicator> made;
    if (const Status begun = make(&transport, &made); !begun.ok()) {
        transport->give_up(begun); // the others wait in their first agreement
        return begun;
    }
    ONEBIT_RETURN_IF_ERROR(together(*made, [&] { return made->meet(own, timeout); }));
    *communicator = std::move(made);
    return {};
}

Status Communicator::meet(const Status& own, double timeout) {
    const Status checked = catch_exceptions([&] {
        const Status environment = look_at_environment(timeout);
        return own.ok() ? environment : own;
    });
    ONEBIT_RETURN_IF_ERROR(
        agree(checked, kWireFormat, kLibraryVersion,
              {"the version of the wire format", "the version of onebit (100 times major + minor)"}));
    std::uint64_t identity = 0;
    std::vector<std::uint64_t> identities;
    const Status found = catch_exceptions([&] {
        identity = transport_->node_identity();
        identities.resize(static_cast<std::size_t>(size()));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(agree_and_gather(found, &identity, sizeof(identity), identities.data()));
    ONEBIT_RETURN_IF_ERROR(agree(catch_exceptions([&] { return find_groups(identities); })));
    measurable_ = size() > 1;
    return share_tuning_table(environment_.tuning, &tuning_table_);
}

Status Communicator::set(const char* name, const char* value) {
    constexpr const char* kForgetful[] = {"ONEBIT_TUNING", "ONEBIT_MEASURE", "ONEBIT_DETERMINISTIC"};
    Environment changed;
    bool forgets = false; // what has been measured
    std::uint64_t name_hash = 0;
    const Status own = catch_exceptions([&] {
        changed = environment_;
        ONEBIT_RETURN_IF_ERROR(change_environment(name, value, &changed));
        name_hash = hash_bytes(name, std::strlen(name));
        forgets =
            std::ranges::any_of(kForgetful, [&](const char* forgetful) { return std::strcmp(name, forgetful) == 0; });
        return check_kernels(changed.kernels);
    });
    ONEBIT_RETURN_IF_ERROR(agree(own, 0, name_hash, {"", "the variable to be set (its name's hash)"}));
    if (forgets) {
        TuningTable table;
        ONEBIT_RETURN_IF_ERROR(share_tuning_table(changed.tuning, &table));
        tuning_table_ = std::move(table);
        costs_ = {};
    }
    environment_ = std::move(changed);
    patience_.timeout = environment_.timeout;
    return {};
}

Status Communicator::split(int color, int key, const Status& own, std::unique_ptr<Communicator>* part) {
    const Wish mine = {color, key};
    std::vector<Wish> wishes;
    std::vector<int> members;
    const Status prepared = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        wishes.resize(static_cast<std::size_t>(size()));
        members.reserve(wishes.size());
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(agree_and_gather(prepared, &mine, sizeof(mine), wishes.data()));
    const auto wish = [&](int rank) { return wishes[static_cast<std::size_t>(rank)]; };
    for (int r = 0; r < size(); ++r) {
        if (color >= 0 && wish(r).color == color) members.push_back(r);
    }
    std::sort(members.begin(), members.end(),
              [&](int a, int b) { return std::pair(wish(a).key, a) < std::pair(wish(b).key, b); });
    std::unique_ptr<Communicator> made;
    ONEBIT_RETURN_IF_ERROR(make_room_for_part());
    ONEBIT_RETURN_IF_ERROR(agree(catch_exceptions([&] { return make_part(members, &made); })));
    *part = std::move(made);
    return {};
}

Status Communicator::make_part(const std::vector<int>& members, std::unique_ptr<Communicator>* part) {
    std::unique_ptr<Transport> transport;
    ONEBIT_RETURN_IF_ERROR(transport_->make_group(members, &transport));
    if (transport == nullptr) return {};
    std::vector<int> nodes;
    nodes.reserve(members.size());
    for (const int member : members) nodes.push_back(groups_.node_of_rank[static_cast<std::size_t>(member)]);
    std::unique_ptr<Communicator> made;
    ONEBIT_RETURN_IF_ERROR(make(&transport, &made));
    made->environment_ = environment_;
    made->measurable_ = measurable_ && made->size() > 1;
    made->patience_.timeout = patience_.timeout;
    made->groups_ = NodeGroups::of(number_by_first_rank(nodes));
    made->tuning_table_ = tuning_table_;
    *part = std::move(made);
    return {};
}

Status Communicator::find_groups(const std::vector<std::uint64_t>& identities) {
    std::vector<int> nodes = number_by_first_rank(identities);
    if (const unsigned size = environment_.node_size; size > 0) {
        const std::vector<int> real = nodes;
        for (std::size_t r = 0; r < nodes.size(); ++r) {
            const std::size_t first = r / size * size;
            if (real[r] != real[first]) {
                return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                                     "environment: ONEBIT_NODE_SIZE=%u: ranks %zu and %zu share no memory", size, first,
                                     r);
            }
            nodes[r] = static_cast<int>(r / size);
        }
    }
    groups_ = NodeGroups::of(nodes);
    return {};
}

Status Communicator::share_tuning_table(const std::string& name, TuningTable* table) {
    std::string text;
    const Status read =
        catch_exceptions([&] { return rank() == 0 ? read_tuning_table(name, &text, table) : Status(); });
    const std::uint64_t length = text.size();
    std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size()));
    ONEBIT_RETURN_IF_ERROR(agree_and_gather(read, &length, sizeof(length), lengths.data()));
    if (lengths[0] == 0) return agree({});

    // An all-gather, of which only rank 0's part is used: it happens once, and a table has a few kilobytes.
    const std::size_t bytes = (lengths[0] + 3) / 4 * 4;
    std::string all;
    const Status allocated = catch_exceptions([&] {
        text.resize(bytes);
        all.resize(bytes * static_cast<std::size_t>(size()));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(agree_and_gather(allocated, text.data(), bytes, all.data()));
    return agree(
        catch_exceptions([&] { return parse_tuning_table(all.substr(0, lengths[0]), "ONEBIT_TUNING", table); }));
}

Communicator::~Communicator() {
    if (!broken_.ok()) (void)agreement_.release(); // messages may still arrive: what they are written to must stay
}

Status Communicator::agree(const Status& own, std::uint32_t word, std::uint64_t value,
                           std::array<const char*, 2> what) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    Status verdict = decide_now(*agreement_, patience_, own, word, value, what);
    return agreement_->decided() ? verdict : remember(verdict);
}

Status Communicator::agree_and_gather(const Status& own, const void* mine, std::size_t bytes, void* all) {
    const auto ranks = static_cast<std::size_t>(size());
    auto gathered = std::make_unique<std::vector<std::byte>>();
    std::unique_ptr<Exchange> exchange;
    const Status planned = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        gathered->resize(bytes * ranks);
        copy_bytes(gathered->data() + bytes * static_cast<std::size_t>(rank()), mine, bytes);
        return plan_all_gather(*transport_, kGatherTag, gathered->data(), bytes, &exchange);
    });
    ONEBIT_RETURN_IF_ERROR(agree(planned));
    const Status status = [&] {
        ONEBIT_RETURN_IF_ERROR(exchange->start());
        return wait_until_done("gather", patience_, [&](bool* done, bool*) { return exchange->test(done); });
    }();
    if (!status.ok()) {
        (void)gathered.release(); // as in the destructor
        return remember(status);
    }
    copy_bytes(all, gathered->data(), bytes * ranks);
    return {};
}

Status Communicator::open_channel(std::unique_ptr<Transport>* channel, int tags) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    return transport_->duplicate(tags, channel);
}

Status Communicator::open_node_channel(std::unique_ptr<Transport>* channel) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    return transport_->split_nodes(groups_.node_of_rank, channel);
}

Status Communicator::make_room(int tags) {
    const TagSpace* const space = transport_->tag_space();
    return space == nullptr || space->has_room(tags_with_splits(tags) + kSplitTags) ? Status() : reclaim_tags();
}

Status Communicator::reclaim_tags() {
    constexpr std::size_t kWordsAtOnce = 1024;
    TagSpace& tags = *transport_->tag_space();
    const std::size_t words = tags.held_words();
    std::vector<std::uint64_t> held;
    std::vector<std::uint64_t> of_all;
    const Status prepared = catch_exceptions([&] {
        held = tags.held();
        of_all.resize(std::min(words, kWordsAtOnce) * static_cast<std::size_t>(size()));
        return Status();
    });
    for (std::size_t begin = 0; begin < words; begin += kWordsAtOnce) {
        const std::size_t some = std::min(words - begin, kWordsAtOnce);
        std::uint64_t* const mine = held.data() + begin;
        ONEBIT_RETURN_IF_ERROR(agree_and_gather(prepared, mine, some * sizeof(std::uint64_t), of_all.data()));
        for (std::size_t i = 0; i < some * static_cast<std::size_t>(size()); ++i) mine[i % some] |= of_all[i];
    }
    tags.free_all_but(held);
    return {};
}

Status Communicator::open_part(std::unique_ptr<Transport>* channel) {
    std::vector<int> everyone;
    ONEBIT_RETURN_IF_ERROR(agree(catch_exceptions([&] {
        for (int r = 0; r < size(); ++r) everyone.push_back(r);
        return Status();
    })));
    ONEBIT_RETURN_IF_ERROR(make_room_for_part());
    return agree(catch_exceptions([&] { return transport_->make_group(everyone, channel); }));
}

Status Communicator::make_room_for_part() {
    const TagSpace* const tags = transport_->tag_space();
    return tags == nullptr || tags->has_room_for_part() ? Status() : reclaim_tags();
}

Status Communicator::give_up_if_lost(const Status& status) {
    return status.code() == ONEBIT_ERROR_TIMEOUT && usable() ? remember(status) : status;
}

Status Communicator::remember(const Status& status) {
    const Status why = give_up_on(*transport_, status);
    broken_ =
        Status::error(why.code(), "the communicator is broken, destroy it; what broke it: %s", why.message().c_str());
    return why;
}

} // namespace onebit
