// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A transport that wraps another forwards every verb, progress and giving up among them.
#include "transport/forwarding.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "support/catch2.hpp"
#include "transport/loopback.hpp"
#include "transport/per_level.hpp"
#include "transport/staged.hpp"

namespace onebit {
namespace {

using Calls = std::vector<std::string>;

/// Notes each verb that reaches it. All verbs are overridden: a new verb in Transport needs an override here.
class Recorder final : public Transport {
  public:
    explicit Recorder(Calls& calls) : calls_(calls) {}

    const char* name() const override { return note("name", "recorder"); }
    int rank() const override { return note("rank", 0); }
    int size() const override { return note("size", 1); }
    bool reaches_devices() const override { return note("reaches_devices", true); }
    bool is_stream_ordered() const override { return note("is_stream_ordered", false); }
    bool has_stream_ordered_nodes() const override { return note("has_stream_ordered_nodes", false); }
    std::optional<void*> stream() const override { return note("stream", std::optional<void*>()); }
    std::shared_ptr<AbortSwitch> abort_switch() const override { return note("abort_switch", switch_); }
    TagSpace* tag_space() override { return note("tag_space", static_cast<TagSpace*>(nullptr)); }
    std::uint64_t node_identity() const override { return note("node_identity", std::uint64_t{7}); }
    Status duplicate(int, std::unique_ptr<Transport>* channel) override { return make("duplicate", channel); }
    Status split(const std::vector<int>&, std::unique_ptr<Transport>* channel) override {
        return make("split", channel);
    }
    Status make_group(const std::vector<int>&, std::unique_ptr<Transport>* channel) override {
        return make("make_group", channel);
    }
    Status split_nodes(const std::vector<int>&, std::unique_ptr<Transport>* channel) override {
        return make("split_nodes", channel);
    }
    Status share_memory(std::size_t, const Patience&, std::unique_ptr<SharedMemory>*) override {
        return note("share_memory", Status());
    }
    Status plan_memory(std::unique_ptr<SharedMemory>*) override { return note("plan_memory", Status()); }
    Status plan_exchange(std::vector<Part>, std::vector<Part>, int, std::unique_ptr<Exchange>*) override {
        return note("plan_exchange", Status());
    }
    Status plan_sum(std::size_t, std::unique_ptr<Sum>*) override { return note("plan_sum", Status()); }
    bool has_native(Pattern) const override { return note("has_native", false); }
    Status plan_native(Pattern, const void*, void*, std::size_t, std::unique_ptr<Exchange>*) override {
        return note("plan_native", Status());
    }
    Status progress() override { return note("progress", Status()); }
    std::uint64_t bytes_sent() const override { return note("bytes_sent", std::uint64_t{3}); }
    void give_up(const Status&) override { (void)note("give_up", 0); }
    std::vector<int> silent_ranks() override { return note("silent_ranks", std::vector<int>()); }

  private:
    template <typename Value>
    Value note(const char* verb, Value value) const {
        calls_.emplace_back(verb);
        return value;
    }
    Status make(const char* verb, std::unique_ptr<Transport>* channel) {
        *channel = std::make_unique<Recorder>(calls_);
        return note(verb, Status());
    }

    Calls& calls_;
    std::shared_ptr<AbortSwitch> switch_ = std::make_shared<AbortSwitch>();
};

struct Verb {
    const char* name;
    std::function<void(Transport&)> call;
};

const std::vector<Verb>& all_verbs() {
    static const std::vector<Verb> verbs = {
        {"name", [](Transport& t) { (void)t.name(); }},
        {"rank", [](Transport& t) { (void)t.rank(); }},
        {"size", [](Transport& t) { (void)t.size(); }},
        {"reaches_devices", [](Transport& t) { (void)t.reaches_devices(); }},
        {"is_stream_ordered", [](Transport& t) { (void)t.is_stream_ordered(); }},
        {"has_stream_ordered_nodes", [](Transport& t) { (void)t.has_stream_ordered_nodes(); }},
        {"stream", [](Transport& t) { (void)t.stream(); }},
        {"abort_switch", [](Transport& t) { (void)t.abort_switch(); }},
        {"tag_space", [](Transport& t) { (void)t.tag_space(); }},
        {"node_identity", [](Transport& t) { (void)t.node_identity(); }},
        {"duplicate",
         [](Transport& t) {
             std::unique_ptr<Transport> channel;
             (void)t.duplicate(kFewTags, &channel);
         }},
        {"split",
         [](Transport& t) {
             std::unique_ptr<Transport> channel;
             (void)t.split({0}, &channel);
         }},
        {"make_group",
         [](Transport& t) {
             std::unique_ptr<Transport> channel;
             (void)t.make_group({0}, &channel);
         }},
        {"split_nodes",
         [](Transport& t) {
             std::unique_ptr<Transport> channel;
             (void)t.split_nodes({0}, &channel);
         }},
        {"share_memory",
         [](Transport& t) {
             std::unique_ptr<SharedMemory> memory;
             (void)t.share_memory(64, {1, t.abort_switch()}, &memory);
         }},
        {"plan_memory",
         [](Transport& t) {
             std::unique_ptr<SharedMemory> memory;
             (void)t.plan_memory(&memory);
         }},
        {"plan_exchange",
         [](Transport& t) {
             std::unique_ptr<Exchange> exchange;
             (void)t.plan_exchange({}, {}, 0, &exchange);
         }},
        {"plan_sum",
         [](Transport& t) {
             std::unique_ptr<Sum> sum;
             (void)t.plan_sum(1, &sum);
         }},
        {"has_native", [](Transport& t) { (void)t.has_native(Pattern::kAllGather); }},
        {"plan_native",
         [](Transport& t) {
             std::unique_ptr<Exchange> exchange;
             (void)t.plan_native(Pattern::kAllGather, nullptr, nullptr, 4, &exchange);
         }},
        {"progress", [](Transport& t) { (void)t.progress(); }},
        {"bytes_sent", [](Transport& t) { (void)t.bytes_sent(); }},
        {"give_up", [](Transport& t) { t.give_up({}); }},
        {"silent_ranks", [](Transport& t) { (void)t.silent_ranks(); }},
    };
    return verbs;
}

/// `changed`: the verbs that a wrapper answers by itself.
void check_wrapper(const std::function<std::unique_ptr<Transport>(Calls&)>& wrap, const Calls& changed) {
    for (const Verb& verb : all_verbs()) {
        CAPTURE(verb.name);
        Calls calls;
        const std::unique_ptr<Transport> wrapper = wrap(calls);
        calls.clear();
        verb.call(*wrapper);
        const bool passed_on = std::find(calls.begin(), calls.end(), verb.name) != calls.end();
        const bool may_answer = std::find(changed.begin(), changed.end(), verb.name) != changed.end();
        CHECK((passed_on || may_answer));
    }
}

TEST_CASE("every wrapper hands on every verb but those that it changes", "[transport][forwarding]") {
    check_wrapper([](Calls& calls) { return std::make_unique<ForwardingTransport>(std::make_unique<Recorder>(calls)); },
                  {});
    check_wrapper([](Calls& calls) { return make_staged_transport(std::make_unique<Recorder>(calls), nullptr, false); },
                  {"name", "reaches_devices"});
    check_wrapper(
        [](Calls& calls) { return make_per_level_transport(std::make_unique<Recorder>(calls), {0}, nullptr, nullptr); },
        // Without another transport inside the nodes its nodes are the base's parts.
        {"name", "has_stream_ordered_nodes", "stream", "node_identity", "make_group", "split_nodes"});
}

TEST_CASE("a communicator of GPUs has no parts, and says what to split instead", "[transport][forwarding]") {
    Calls base;
    const auto transport = make_per_level_transport(std::make_unique<Recorder>(base), {0}, nullptr, nullptr);
    std::unique_ptr<Transport> part;
    const Status refused = transport->make_group({0}, &part);
    CHECK(refused.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(refused.message(), ContainsSubstring("split the one that it was made of"));
}

TEST_CASE("transports per level give up both levels, and take the node's for nodes", "[transport][forwarding]") {
    Calls base;
    Calls node;
    const auto transport =
        make_per_level_transport(std::make_unique<Recorder>(base), {0}, std::make_unique<Recorder>(node), nullptr);
    transport->give_up({});
    CHECK(std::find(base.begin(), base.end(), "give_up") != base.end());
    CHECK(std::find(node.begin(), node.end(), "give_up") != node.end());
    std::unique_ptr<Transport> channel;
    REQUIRE(transport->split_nodes({0}, &channel).ok());
    CHECK(std::find(node.begin(), node.end(), "duplicate") != node.end());
}

} // namespace
} // namespace onebit
