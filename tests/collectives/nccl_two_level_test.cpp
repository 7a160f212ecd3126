// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Two levels in a GPU's memory, over an emulated NCCL, throughout or inside a node alone: the bits of the host's two
// levels in every case. Each test is one story, which ranks run twice: on the host over loopback and on the GPU. Both
// runs must report the same, and common results must be the same on all ranks.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/allreduce.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/operation/state.hpp"
#include "compress/device_memory.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/environment.hpp"
#include "support/gpu_ranks.hpp"
#include "support/handles.hpp"
#include "support/loopback_ranks.hpp"
#include "support/nccl_ranks.hpp"

namespace onebit {
namespace {

using onebit_test::EmulatedNccl;
using onebit_test::Mode;
using onebit_test::Variable;
using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

/// The report of a rank.
struct Told {
    std::vector<Values> common;    ///< the same on all ranks
    std::vector<Values> own;       ///< errors
    std::vector<Bytes> states;     ///< saved
    std::vector<std::string> said; ///< the same on all ranks: the calls' messages
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    Status status;
};

bool same_bits(const std::vector<Values>& a, const std::vector<Values>& b) {
    return std::ranges::equal(a, b, onebit_test::same_bits);
}

/// A handle and a rank's actions on it.
class Actor {
  public:
    Actor(Communicator& communicator, onebit_memory_t memory, std::size_t count, Mode mode, onebit_check_t check,
          Told* says)
        : told(*says), count_(count), rank_(communicator.rank()), on_gpu_(memory == ONEBIT_MEMORY_CUDA) {
        onebit_allreduce_config_t config = onebit_test::form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count, mode);
        config.memory = memory;
        config.check = check;
        created_ = Allreduce::create(communicator, &config, {}, &handle_);
        Memory& where = on_gpu_ ? device_memory() : host_memory();
        input_ = AlignedBuffer<float>(count, where);
        output_ = AlignedBuffer<float>(count, where);
    }

    const Status& created() const { return created_; }
    Allreduce& handle() { return *handle_; }
    int rank() const { return rank_; }
    bool on_gpu() const { return on_gpu_; }

    Values data(unsigned step, onebit_test::Kind kind = onebit_test::Kind::heavy_tailed) const {
        return onebit_test::make_data(kind, count_, 61, rank_, step);
    }

    /// One call, in place or not. Reports the output, and the call's message.
    void call(const Values& values, bool in_place) {
        AlignedBuffer<float>& result = in_place ? input_ : output_;
        output_.copy_from(Values(count_, 7.0F).data());
        input_.copy_from(values.data());
        const Status status = handle_->run(input_.data(), result.data());
        told.said.push_back(status.message());
        // After a failed call in place the buffer holds this rank's own values.
        tell(result, in_place && !status.ok() ? &told.own : &told.common);
        if (!in_place) tell(input_, &told.own);
    }
    void call(unsigned step) { call(data(step), step % 2 == 1); }

    void tell_errors() {
        Values worker(count_, NAN);
        Values server(handle_->server_chunk().count, NAN);
        told.said.push_back(handle_->get_error(worker.data(), server.data()).message());
        const Chunk part = handle_->worker_part();
        const Chunk chunk = handle_->server_chunk();
        told.own.push_back(worker);
        told.own.push_back(server);
        told.own.push_back({static_cast<float>(part.begin), static_cast<float>(part.count),
                            static_cast<float>(chunk.begin), static_cast<float>(chunk.count)});
    }
    void tell_state() {
        Bytes state(state_size(*handle_));
        told.said.push_back(pack_state(*handle_, state.data(), state.size()).message());
        told.states.push_back(state);
    }
    void load(const Bytes& state) { told.said.push_back(unpack_state(*handle_, state.data(), state.size()).message()); }

    void set_mask(unsigned seed) {
        onebit_test::Random random(seed, 0, 0);
        std::vector<std::uint32_t> mask(ceil_divide(count_, kWordElements));
        for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random.next());
        told.said.push_back(handle_->set_mask(mask.data()).message());
    }

    Told& told;

  private:
    void tell(AlignedBuffer<float>& buffer, std::vector<Values>* to) const {
        buffer.copy_to(to->emplace_back(count_).data());
    }

    std::size_t count_;
    int rank_;
    bool on_gpu_;
    std::unique_ptr<Allreduce> handle_;
    Status created_;
    AlignedBuffer<float> input_;
    AlignedBuffer<float> output_;
};

using Story = std::function<void(Actor&)>;

/// The transports of a GPU's values.
enum class Way { kNccl, kNcclInNode };

/// Both, one after the other.
Way each_way() {
    return GENERATE(Way::kNccl, Way::kNcclInNode);
}

struct Setting {
    Way way = Way::kNccl;
    int nodes = 2;
    int places = 2;
    std::size_t count = 9001;
    Mode mode = onebit_test::default_mode();
    onebit_check_t check = ONEBIT_CHECK_FULL;
};

Status live(Communicator& communicator, onebit_memory_t memory, const Setting& setting, const Story& story,
            Told* told) {
    Actor actor(communicator, memory, setting.count, setting.mode, setting.check, told);
    ONEBIT_RETURN_IF_ERROR(actor.created());
    story(actor);
    actor.handle().fill_info(&told->info);
    return {};
}

Status live(std::unique_ptr<Transport> transport, onebit_memory_t memory, const Setting& setting, const Story& story,
            Told* told) {
    std::unique_ptr<Communicator> communicator;
    ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
    return live(*communicator, memory, setting, story, told);
}

std::vector<Told> live_on_host(const Setting& setting, const Story& story) {
    const Variable node_size("ONEBIT_NODE_SIZE", std::to_string(setting.places).c_str());
    return onebit_test::run_loopback_ranks<Told>(static_cast<std::size_t>(setting.nodes * setting.places),
                                                 [&](std::unique_ptr<Transport> transport, Told* told) {
                                                     return live(std::move(transport), ONEBIT_MEMORY_HOST, setting,
                                                                 story, told);
                                                 });
}

std::vector<Told> live_on_gpu(EmulatedNccl& nccl, const Setting& setting, const Story& story) {
    const Variable node_size("ONEBIT_NODE_SIZE", std::to_string(setting.places).c_str());
    const int ranks = setting.nodes * setting.places;
    if (setting.way == Way::kNcclInNode) {
        const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
        return onebit_test::run_gpu_ranks<Told>(ranks, [&](Communicator& communicator, Told* told) {
            return live(communicator, ONEBIT_MEMORY_CUDA, setting, story, told);
        });
    }
    return onebit_test::run_nccl_ranks<Told>(nccl, ranks, [&](std::unique_ptr<Transport> transport, Told* told) {
        return live(std::move(transport), ONEBIT_MEMORY_CUDA, setting, story, told);
    });
}

void compare(const std::vector<Told>& on_gpu, const std::vector<Told>& on_host) {
    REQUIRE(on_gpu.size() == on_host.size());
    for (std::size_t r = 0; r < on_gpu.size(); ++r) {
        CAPTURE(r, on_gpu[r].status.message(), on_host[r].status.message());
        REQUIRE(on_gpu[r].status.ok());
        REQUIRE(on_host[r].status.ok());
        for (const Told* told : {&on_gpu[r], &on_host[r]}) {
            CHECK(told->info.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
            CHECK(same_bits(told->common, on_host[0].common));
            CHECK(told->said == on_host[0].said);
        }
        CHECK((on_gpu[r].info.transport == std::string("nccl") ||
               on_gpu[r].info.transport == std::string("nccl+loopback, staged")));
        CHECK(same_bits(on_gpu[r].own, on_host[r].own));
        CHECK(on_gpu[r].states == on_host[r].states);
    }
}

/// On both.
void live_and_compare(const Setting& setting, const Story& story) {
    CAPTURE(setting.way, setting.nodes, setting.places, setting.count, setting.mode.name());
    EmulatedNccl nccl;
    compare(live_on_gpu(nccl, setting, story), live_on_host(setting, story));
}

bool all_good(const Told& told) {
    return std::ranges::all_of(told.said, [](const std::string& said) { return said.empty(); });
}

TEST_CASE("two levels over NCCL give the bits of the host's", "[nccl][two_level]") {
    const Way way = each_way();
    const Variable piece("ONEBIT_PIECE", "1"); // so that four blocks travel together
    const auto [nodes, places] = GENERATE(std::pair(2, 2), std::pair(2, 3), std::pair(3, 2));
    // One word, so that shards are empty; three, so that chunks are empty; whole words and a few bits; shards and
    // chunks of equal length except a few bits; several steps, one of them of several chunks.
    for (const std::size_t count : {6, 70, 4099, 12669, 40001}) {
        std::vector<Mode> modes = onebit_test::all_modes();
        if (count == 4099) modes.push_back({ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT8});
        for (const Mode mode : modes) {
            const bool usual = mode.scale == ONEBIT_SCALE_L2 && mode.group == ONEBIT_GROUP_BLOCK;
            const bool contrary = mode.scale == ONEBIT_SCALE_L1 && mode.group == ONEBIT_GROUP_BUFFER;
            if (!usual && !(contrary && count == 4099)) continue;
            if (count == 40001 && nodes * places > 4) continue; // an emulated GPU is slow
            const Setting setting = {.way = way, .nodes = nodes, .places = places, .count = count, .mode = mode};
            live_and_compare(setting, [](Actor& actor) {
                for (unsigned step = 0; step < 2; ++step) actor.call(step);
                actor.tell_errors();
                actor.set_mask(5);
                for (unsigned step = 2; step < 4; ++step) actor.call(step);
                actor.tell_errors();
                actor.told.said.push_back(actor.handle().set_mask(nullptr).message());
                actor.call(4);
                actor.told.said.push_back(actor.handle().reset().message());
                actor.tell_errors();
            });
        }
    }
}

TEST_CASE("on two levels, too, messages of equal length go by NCCL's own calls", "[nccl][two_level]") {
    struct Shape {
        // On 2 x 2 ranks: 8 are two each; 6 are 2, 1, 2, 1; 7 are 2, 2, 2, 1; 15 are 4, 4, 4, 3; 13 are 4, 3, 3, 3.
        // Inside a node each shard takes, with its scales, a multiple of 4: lengths are equal up to 7.
        std::size_t words;
        int all_gathers; // on all ranks together: of results between the nodes, and inside them
        int all_to_alls; // between the nodes
        int all_gathers_in_nodes;
    };
    const auto [words, all_gathers, all_to_alls, all_gathers_in_nodes] =
        GENERATE(Shape{8, 8, 4, 4}, Shape{6, 4, 0, 4}, Shape{7, 6, 2, 4}, Shape{15, 2, 2, 0}, Shape{13, 2, 2, 0});
    const std::size_t missing = GENERATE(0, 31);
    for (const Way way : {Way::kNccl, Way::kNcclInNode}) {
        CAPTURE(way, words, missing);
        const Setting setting = {.way = way, .count = 32 * words - missing};
        const Story story = [](Actor& actor) { actor.call(0); };
        EmulatedNccl nccl;
        compare(live_on_gpu(nccl, setting, story), live_on_host(setting, story));
        CHECK(EmulatedNccl::calls("ncclAllGather") == (way == Way::kNccl ? all_gathers : all_gathers_in_nodes));
        CHECK(EmulatedNccl::calls("ncclAlltoAll") == (way == Way::kNccl ? all_to_alls : 0));
    }
}

TEST_CASE("sizes of pieces change no bit of two levels over NCCL", "[nccl][two_level]") {
    const Way way = each_way();
    const onebit_group_t group = GENERATE(ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER);
    const Setting setting = {.way = way, .count = 100001, .mode = {ONEBIT_SCALE_L2, group}, .check = ONEBIT_CHECK_NONE};
    const Story story = [](Actor& actor) {
        for (unsigned step = 0; step < 2; ++step) actor.call(step);
        actor.tell_errors();
    };
    const std::vector<Told> on_host = live_on_host(setting, story);
    EmulatedNccl nccl;
    for (const char* const elements : {"1", "262144"}) {
        CAPTURE(elements);
        const Variable piece("ONEBIT_PIECE", elements);
        compare(live_on_gpu(nccl, setting, story), on_host);
    }
}

TEST_CASE("a state goes from the host's two levels to a GPU's and back", "[nccl][two_level]") {
    const Setting setting = {.way = each_way(), .count = 20011};
    const Story first = [](Actor& actor) {
        for (unsigned step = 0; step < 3; ++step) actor.call(step);
        actor.tell_state();
    };
    EmulatedNccl nccl;
    const std::vector<Told> before = live_on_host(setting, first);
    REQUIRE(all_good(before[0]));
    compare(live_on_gpu(nccl, setting, first), before); // the saved bytes are the same
    live_and_compare(setting, [&](Actor& actor) {
        actor.load(before[static_cast<std::size_t>(actor.rank())].states[0]);
        for (unsigned step = 3; step < 5; ++step) actor.call(step);
        actor.tell_state();
    });

    const Bytes none(64); // both refuse it
    live_and_compare(setting, [&](Actor& actor) { actor.load(none); });
}

TEST_CASE("on two levels over NCCL a NaN changes nothing", "[nccl][two_level]") {
    const std::size_t count = 40001;
    const Way way = each_way();
    live_and_compare({.way = way, .count = count}, [=](Actor& actor) {
        actor.call(0);
        for (const bool in_place : {false, true}) {
            Values bad = actor.data(1);
            if (actor.rank() == 3) bad[12345] = NAN;
            actor.call(bad, in_place);
            const std::string said = actor.told.said.back();
            if (said.find("rank 3: sendbuf[12345] is ") == std::string::npos) actor.told.said.emplace_back("unclear");
            actor.tell_errors();
        }
        actor.call(2);
    });
    EmulatedNccl nccl;
    const std::vector<Told> told = live_on_gpu(nccl, {.way = way, .count = count}, [=](Actor& actor) {
        actor.call(Values(count, actor.rank() == 0 ? INFINITY : 1.0F), false);
    });
    for (const Told& rank : told) {
        CHECK(rank.said[0] == "rank 0: sendbuf[0] is inf");
        CHECK(rank.common[0] == Values(count, 7.0F));
    }
}

TEST_CASE("on two levels over NCCL an overflow is said by all, whosever shard it is in", "[nccl][two_level]") {
    const std::size_t count = 40001;
    const Way way = each_way();
    const std::size_t where = GENERATE(5, 40000);
    CAPTURE(way, where);
    for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
        const Setting setting = {.way = way, .count = count, .mode = {ONEBIT_SCALE_L2, group}};
        const Story story = [=](Actor& actor) {
            actor.call(0);
            Values huge(count, 0.0F);
            huge[where] = 3e38F;
            AlignedBuffer<float> buffer(count, actor.on_gpu() ? device_memory() : host_memory());
            for (int call = 0; call < 2; ++call) { // the second time with the error of the first
                buffer.copy_from(huge.data());
                actor.told.said.push_back(actor.handle().run(buffer.data(), buffer.data()).message());
            }
            actor.tell_errors();
            for (unsigned step = 1; step < 3; ++step) actor.call(step);
        };
        EmulatedNccl nccl;
        const std::vector<Told> on_gpu = live_on_gpu(nccl, setting, story);
        compare(on_gpu, live_on_host(setting, story));
        CHECK(on_gpu[0].said[1].empty());
        CHECK_THAT(on_gpu[0].said[2], ContainsSubstring("overflowed") && ContainsSubstring("has been reset"));
    }
}

TEST_CASE("two levels over NCCL: bytes, exact calls in between, starts", "[nccl][two_level]") {
    const std::size_t count = 100000;
    EmulatedNccl nccl;
    const Setting setting = {.way = each_way(), .count = count, .check = ONEBIT_CHECK_NONE};
    const std::vector<Told> told = live_on_gpu(nccl, setting, [=](Actor& actor) {
        actor.call(0);
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        actor.handle().fill_info(&info);
        actor.told.own.push_back({static_cast<float>(info.last_bytes_sent)});
        const Status refused = actor.handle().set_algorithm(ONEBIT_ALGORITHM_FLAT);
        actor.told.said.push_back(refused.code() == ONEBIT_ERROR_INVALID_ARGUMENT ? "" : "not refused");
        for (const onebit_algorithm_t form : {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_TWO_LEVEL}) {
            actor.told.said.push_back(actor.handle().set_algorithm(form).message());
            if (form == ONEBIT_ALGORITHM_DENSE) actor.call(1);
        }
        const DeviceArray<float> buffer(actor.data(1));
        actor.told.said.push_back(actor.handle().start(buffer.data(), buffer.data()).message());
        for (bool done = false; !done;) actor.told.said.push_back(actor.handle().test(&done).message());
        actor.told.common.push_back(buffer.get());
    });
    const std::vector<Told> twin = live_on_host({.count = count}, [](Actor& actor) {
        for (unsigned step = 0; step < 2; ++step) actor.call(step);
    });
    for (const Told& rank : told) {
        CAPTURE(rank.status.message());
        REQUIRE(rank.status.ok());
        CHECK(all_good(rank));
        CHECK(onebit_test::same_bits(rank.common[0], twin[0].common[0]));
        CHECK(onebit_test::same_bits(rank.common[2], twin[0].common[1]));
        // In the node: half of the values, and the bits of a shard. Between nodes: twice a quarter of the bits.
        const double bits = count / 8.0;
        CHECK(rank.own[1][0] == Approx(count / 2.0 * 4 + bits / 2 + bits / 2).epsilon(0.02));
    }
}

TEST_CASE("AUTO considers two levels over NCCL; where there are none pipelined is taken", "[nccl][two_level]") {
    struct Chosen {
        std::string reason;
        onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO;
        Status status;
    };
    const auto choose = [](onebit_algorithm_t form, const char* node_size) {
        const Variable size("ONEBIT_NODE_SIZE", node_size);
        const Variable measure("ONEBIT_MEASURE", "0");
        EmulatedNccl nccl;
        return onebit_test::run_nccl_ranks<Chosen>(
            nccl, 4, [&](std::unique_ptr<Transport> transport, Chosen* chosen) -> Status {
                std::unique_ptr<Communicator> communicator;
                ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
                onebit_allreduce_config_t config = onebit_test::form_config(form, 30000);
                config.memory = ONEBIT_MEMORY_CUDA;
                std::unique_ptr<Allreduce> handle;
                ONEBIT_RETURN_IF_ERROR(Allreduce::create(*communicator, &config, {}, &handle));
                chosen->reason = handle->plan().reason;
                chosen->algorithm = handle->plan().algorithm;
                return {};
            });
    };
    for (const Chosen& chosen : choose(ONEBIT_ALGORITHM_AUTO, "2")) {
        CAPTURE(chosen.status.message());
        CHECK_THAT(chosen.reason, ContainsSubstring("two_level") && ContainsSubstring("estimated"));
    }
    {
        const Variable forced("ONEBIT_ALGORITHM", "two_level");
        for (const Chosen& chosen : choose(ONEBIT_ALGORITHM_AUTO, "2")) {
            CHECK(chosen.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
        }
    }
    const std::pair<const char*, const char*> none[] = {
        {"1", "each node has one rank"}, {"4", "all ranks are on one node"}, {"3", "different numbers of ranks"}};
    for (const auto& [size, objection] : none) {
        for (const Chosen& chosen : choose(ONEBIT_ALGORITHM_TWO_LEVEL, size)) {
            CHECK(chosen.algorithm == ONEBIT_ALGORITHM_PIPELINED);
            CHECK_THAT(chosen.reason, ContainsSubstring("not two_level: ") && ContainsSubstring(objection));
        }
    }
}

TEST_CASE("a neighbour that doesn't come breaks two levels over NCCL, and lets go of the stream", "[nccl][two_level]") {
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    EmulatedNccl nccl;
    const Setting setting = {.way = each_way(), .check = ONEBIT_CHECK_NONE};
    const std::vector<Told> told = live_on_gpu(nccl, setting, [](Actor& actor) {
        if (actor.rank() != 0) return;
        actor.call(0);
        if (actor.handle().check_not_broken().ok()) actor.told.said.emplace_back("not broken");
    });
    const std::vector<std::string> complaints = nccl.take_complaints(); // none if the neighbour timed out first
    if (setting.way == Way::kNccl) {
        CHECK(complaints == std::vector<std::string>{"messages that nobody has received"});
    }
    CHECK_THAT(told[0].said[0], ContainsSubstring("receive values"));
    CHECK(told[0].said.size() == 1);
    for (const Told& rank : told) CHECK(rank.status.message().empty());
}

TEST_CASE("a node that doesn't come breaks two levels on the other one", "[nccl][two_level]") {
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_NONE, ONEBIT_CHECK_FULL);
    EmulatedNccl nccl;
    std::atomic<int> waiting = 2; // the other node stays until they end
    const Setting setting = {.way = Way::kNcclInNode, .check = check};
    const std::vector<Told> told = live_on_gpu(nccl, setting, [&](Actor& actor) {
        if (actor.rank() < 2) {
            actor.call(0);
            if (actor.handle().check_not_broken().ok()) actor.told.said.emplace_back("not broken");
            --waiting;
        }
        while (waiting > 0) std::this_thread::yield();
    });
    for (std::size_t r = 0; r < 2; ++r) {
        CHECK(told[r].said.size() == 1);
        CHECK_THAT(told[r].said[0], ContainsSubstring("no answer from a peer") &&
                                        ContainsSubstring(check == ONEBIT_CHECK_NONE ? "'receive chunks'" : "'agree'"));
    }
    for (const Told& rank : told) CHECK(rank.status.message().empty());
}

} // namespace
} // namespace onebit
