// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// States of optimizers whose compressed exchange has two levels, in files and in blobs: training goes on from them bit
// for bit among the same nodes. Any other ranks, with two levels or without, take over what is still to be delivered.
#include "optim/moved_states.hpp"
#include "optim/two_levels.hpp"
#include "support/blobs.hpp"
#include "support/files.hpp"
#include "support/forge.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;

namespace {

// Nodes of one rank each have one level.
struct Layout : Nodes {
    bool flat() const { return places == 1; }
    std::string name() const { return flat() ? std::to_string(nodes) + " ranks" : Nodes::name(); }
};

constexpr Layout flat_four{{4, 1}}, two_nodes{{2, 2}};

// Several tensors, one of them never compressed, and a row that has no gradient before `row_begins`.
Setup moved_setup(onebit_optimizer_kind_t kind, const Layout& layout, std::uint64_t bucket_size = 0) {
    Setup setup{quick_config(kind), {1330, 610, 200, 1, 3000}};
    setup.config.bucket_size = bucket_size;
    setup.config.algorithm = layout.flat() ? ONEBIT_ALGORITHM_PIPELINED : ONEBIT_ALGORITHM_TWO_LEVEL;
    setup.places = layout.places;
    setup.copies = true;
    setup.copy_type = ONEBIT_BFLOAT16;
    leave_out(setup, {2});
    return setup;
}

Gradient moved_gradient(std::uint64_t row_begins = UINT64_MAX, std::uint64_t seed = 1) {
    return beginning_late(gaussian_gradient(1330 + 610 + 200 + 1 + 3000, seed), 40, 50, row_begins);
}

std::vector<float> elsewhere(const Setup& setup) {
    return std::vector<float>(total(setup.sizes), 0.25F);
}

std::size_t apart(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& magnitude) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i) wrong += std::fabs(a[i] - b[i]) <= 1e-5 * magnitude[i] ? 0 : 1;
    return wrong;
}

void expect_moved(Training& training, const Layout& layout, const Whole& saved, RankLog& log) {
    const Whole loaded = whole_of(training, layout.nodes, log);
    std::vector<double> size;
    for (double x : saved.parameters) size.push_back(std::fabs(x) + 1);
    ONEBIT_EXPECT(log, apart(loaded.parameters, saved.parameters, size) == 0);
    ONEBIT_EXPECT(log, apart(loaded.undelivered, saved.undelivered, saved.magnitude) == 0);
    std::size_t larger = 0; // none is: each is a mean of earlier ones
    for (std::size_t i = 0; i < saved.largest.size(); ++i)
        larger += loaded.largest[i] <= saved.largest[i] * (1 + 1e-6) ? 0 : 1;
    ONEBIT_EXPECT(log, larger == 0);
    ONEBIT_EXPECT(log, training.copies() == converted(training.parameters(), ONEBIT_BFLOAT16));
    const onebit_optimizer_info_t &now = loaded.info, &then = saved.info;
    ONEBIT_EXPECT(log, now.steps == then.steps && now.freeze_step == then.freeze_step);
    ONEBIT_EXPECT(log, now.frozen == then.frozen && now.masked == then.masked);
    ONEBIT_EXPECT(log, now.exact_rounds == then.exact_rounds && now.compressed_rounds == then.compressed_rounds);
    // Without local steps the parameters are exactly the same.
    const bool parted = training.info().steps == 11 && loaded.info.compressed_rounds + loaded.info.exact_rounds < 11;
    if (!parted) ONEBIT_EXPECT(log, same_bits(training.parameters(), saved.first));
    // A rank has the errors of its shard, in each of three buckets at most.
    const OptimizerErrors errors = training.errors();
    const auto zeros = std::count(errors.worker.begin(), errors.worker.end(), 0.0F);
    const auto count = static_cast<std::ptrdiff_t>(training.count());
    ONEBIT_EXPECT(log, count - zeros <= count / layout.places + 3 * 32);
}

// Ten more steps, with the same bits on all ranks wherever they exchange something.
void expect_goes_on(Training& training, RankLog& log) {
    const std::vector<float> start = training.parameters();
    const std::uint64_t at = training.info().steps;
    for (std::uint64_t t = at + 1; t <= at + 10; ++t) {
        const onebit_optimizer_info_t before = training.info();
        training.steps(moved_gradient(), t, t);
        if (has_exchanged(before, training.info())) ONEBIT_EXPECT(log, training.parameters_same_on_all());
    }
    std::size_t moved = 0, finite = 0;
    const std::vector<float> now = training.parameters();
    for (std::size_t i = 0; i < now.size(); ++i) {
        moved += now[i] != start[i] ? 1 : 0;
        finite += std::isfinite(now[i]) ? 1 : 0;
    }
    ONEBIT_EXPECT(log, moved >= now.size() - 12 && moved <= now.size() - 10); // a row has no gradients
    ONEBIT_EXPECT(log, finite == now.size());
}

// Runs on ranks in this layout. Only if ranks are threads can a test have several numbers of ranks, or several sets of
// nodes.
void run_layout(const Layout& layout, const Body& body) {
    const Variable node_size("ONEBIT_NODE_SIZE", std::to_string(layout.places).c_str());
    run_ranks(layout.ranks(), body);
}
bool can_move(const Layout& from, const Layout& to) {
    return can_have_ranks(from.ranks()) && can_have_ranks(to.ranks()) && can_have_ranks(1);
}

} // namespace

TEST_CASE("optimizers on two levels: a saved or packed state is gone on with bit for bit",
          "[optimizer][two_level][save][blobs]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    run_nodes(nodes, [=](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        // 0/1 Adam's compressed rounds before the freeze; right at it; after it; between two rounds.
        for (const std::uint64_t at : {4U, 6U, 7U, 10U, 11U, 13U}) {
            if (nodes.ranks() > 4 && at % 5 > 1) continue; // more ranks take longer
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                const std::uint64_t bucket_size = (at + compressed) % 2 == 1 ? 1500 : 0;
                log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", after step " +
                            std::to_string(at) + ", buckets of " + std::to_string(bucket_size) + ", " + nodes.name());
                Setup setup = moved_setup(kind, {nodes}, bucket_size);
                setup.config.compressed = compressed;
                setup.config.max_grad_norm = at % 3 == 1 ? 40 : 0;
                const Gradient gradient = moved_gradient(9);
                Training uninterrupted(comm, setup, log), loaded(comm, setup, elsewhere(setup), log),
                    unpacked(comm, setup, elsewhere(setup), log);
                uninterrupted.steps(gradient, 1, at);
                const Snapshot before(uninterrupted);
                const std::string prefix = directory.prefix(std::to_string(at) + std::to_string(compressed));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(uninterrupted.get(), prefix.c_str()));
                std::vector<Bytes> blobs = all_packed(uninterrupted.get(), log);
                ONEBIT_EXPECT(log, Snapshot(uninterrupted).same_as(before));
                loaded.steps(moved_gradient(9, 2), 1, at % 9); // a past that must leave no trace
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(loaded.get(), prefix.c_str()));
                if (log.rank() != static_cast<int>(at) % log.size()) // which has all of them
                    blobs = {blobs[static_cast<std::size_t>(log.rank())]};
                ONEBIT_EXPECT_OK(log, unpack(unpacked.get(), blobs));
                ONEBIT_EXPECT(log, loaded.errors().same_as(before.errors));
                ONEBIT_EXPECT(log, unpacked.errors().same_as(before.errors));
                for (std::uint64_t t = at + 1; t <= at + 7; ++t) {
                    for (Training* const each : {&uninterrupted, &loaded, &unpacked}) each->steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(uninterrupted)));
                    ONEBIT_EXPECT(log, Snapshot(unpacked).same_as(Snapshot(uninterrupted)));
                }
            }
        }
    });
}

// All in one communicator of two nodes of two.
TEST_CASE("optimizers on two levels: the same ranks take a state from one level to two and back",
          "[optimizer][two_level][save][blobs][long]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const bool to_two = GENERATE(true, false);
    run_nodes(two_by_two, [=](onebit_comm_t comm, RankLog& log) {
        const Layout from = to_two ? flat_four : two_nodes, to = to_two ? two_nodes : flat_four;
        const SharedDirectory directory(log);
        for (const std::uint64_t at : {3U, 5U, 6U, 10U, 11U}) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                const std::uint64_t bucket_size = (at + compressed) % 2 == 1 ? 1500 : 0;
                log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", after step " +
                            std::to_string(at) + ", from " + from.name() + " to " + to.name());
                Setup old = moved_setup(kind, from, bucket_size), now = moved_setup(kind, to, bucket_size);
                old.config.compressed = now.config.compressed = compressed;
                Training saved(comm, old, log), loaded(comm, now, elsewhere(now), log),
                    unpacked(comm, now, elsewhere(now), log);
                saved.steps(moved_gradient(), 1, at);
                const Whole whole = whole_of(saved, from.nodes, log);
                const std::string prefix = directory.prefix(std::to_string(at) + std::to_string(compressed));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(saved.get(), prefix.c_str()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(loaded.get(), prefix.c_str()));
                std::vector<Bytes> blobs = all_packed(saved.get(), log);
                if (log.last_rank()) std::reverse(blobs.begin(), blobs.end());
                ONEBIT_EXPECT_OK(log, unpack(unpacked.get(), blobs));
                ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(unpacked)));
                expect_moved(loaded, to, whole, log);
                expect_goes_on(loaded, log);
                for (std::uint64_t t = at + 1; t <= at + 10; ++t) unpacked.steps(moved_gradient(), t, t);
                ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(unpacked)));
                // A moved state is saved and loaded like any other.
                const std::string again = directory.prefix("again");
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(loaded.get(), again.c_str()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(unpacked.get(), again.c_str()));
                for (Training* const each : {&loaded, &unpacked}) each->steps(moved_gradient(), at + 11, at + 14);
                ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(unpacked)));
            }
        }
    });
}

TEST_CASE("optimizers on two levels: one's own blob of the other layout is refused by all",
          "[optimizer][two_level][blobs][bad input]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const bool to_two = GENERATE(true, false);
    run_nodes(two_by_two, [=](onebit_comm_t comm, RankLog& log) {
        const Layout from = to_two ? flat_four : two_nodes, to = to_two ? two_nodes : flat_four;
        const Setup old = moved_setup(kind, from), now = moved_setup(kind, to);
        Training saved(comm, old, log), other(comm, now, log), twin(comm, now, log);
        saved.steps(moved_gradient(), 1, 10);
        for (Training* const each : {&other, &twin}) each->steps(moved_gradient(9, 2), 1, 12);
        const std::vector<Bytes> all = all_packed(saved.get(), log);
        const Bytes own = all[static_cast<std::size_t>(log.rank())];
        const std::vector<Bytes> without_one(all.begin() + 1, all.end());
        const std::vector<std::vector<Bytes>> too_few = {
            {own}, log.last_rank() ? std::vector<Bytes>{own} : all, log.rank() == 1 ? without_one : all};
        for (std::size_t k = 0; k < too_few.size(); ++k) {
            log.context(name_of(kind) + " on " + to.name() + ", case " + std::to_string(k));
            const onebit_status_t status = unpack(other.get(), too_few[k]);
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_BAD_STATE || status == ONEBIT_ERROR_MISMATCH);
            ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
            ONEBIT_EXPECT(log, Snapshot(other).same_as(Snapshot(twin)));
        }
        for (Training* const each : {&other, &twin}) each->steps(moved_gradient(9, 2), 13, 14);
        ONEBIT_EXPECT(log, Snapshot(other).same_as(Snapshot(twin)));
        ONEBIT_EXPECT_OK(log, unpack(other.get(), all));
        expect_moved(other, to, whole_of(saved, from.nodes, log), log);
    });
}

TEST_CASE("optimizers on two levels: other ranks and other nodes take over a state",
          "[optimizer][two_level][save][blobs]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const auto [from, to] = GENERATE(table<Layout, Layout>({{two_nodes, flat_four},
                                                            {flat_four, two_nodes},
                                                            {two_nodes, {{2, 1}}},
                                                            {two_nodes, {{3, 1}}},
                                                            {two_nodes, {{1, 1}}},
                                                            {{{2, 1}}, two_nodes},
                                                            {{{3, 1}}, two_nodes},
                                                            {two_nodes, {{3, 2}}},
                                                            {{{3, 2}}, two_nodes},
                                                            {{{3, 2}}, {{2, 3}}},
                                                            {{{2, 3}}, {{4, 2}}}}));
    if (!can_move(from, to) || (is_sanitized() && to.ranks() > 4)) return;
    const std::uint64_t at = GENERATE(std::uint64_t{5}, std::uint64_t{10}, std::uint64_t{11});
    const std::uint64_t bucket_size = at == 11 ? 1500 : 0;
    INFO(name_of(kind) << " after step " << at << ", from " << from.name() << " to " << to.name());
    const OwnDirectory directory;
    Setup old = moved_setup(kind, from, bucket_size), now = moved_setup(kind, to, bucket_size);
    old.config.compressed = now.config.compressed = at == 5 ? ONEBIT_COMPRESSED_MOMENTA : ONEBIT_COMPRESSED_UPDATES;
    Whole whole;
    std::vector<Bytes> blobs;
    run_layout(from, [&, from = from](onebit_comm_t comm, RankLog& log) {
        Training training(comm, old, log);
        training.steps(moved_gradient(), 1, at);
        const Whole mine = whole_of(training, from.nodes, log);
        const std::vector<Bytes> packed = all_packed(training.get(), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
        if (log.rank() != 0) return;
        whole = mine;
        blobs = packed;
    });
    run_layout(to, [&, to = to](onebit_comm_t comm, RankLog& log) {
        Training loaded(comm, now, elsewhere(now), log), unpacked(comm, now, elsewhere(now), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(loaded.get(), directory.prefix().c_str()));
        ONEBIT_EXPECT_OK(log, unpack(unpacked.get(), blobs));
        ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(unpacked)));
        expect_moved(loaded, to, whole, log);
        expect_goes_on(loaded, log);
    });
}

// If all ranks have the same gradients and the shards stay the same, the number of ranks makes no difference: all nodes
// send the same message, with one scale for the shard, and the servers have nothing to add. 32 elements are one shard.
TEST_CASE("optimizers on two levels: equal ranks go on elsewhere as they would have", "[optimizer][two_level][save]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const auto [from, to, size] = GENERATE(table<Layout, Layout, std::size_t>({{flat_four, two_nodes, 32},
                                                                               {two_nodes, flat_four, 32},
                                                                               {two_nodes, {{3, 1}}, 32},
                                                                               {{{3, 1}}, two_nodes, 32},
                                                                               {{{2, 3}}, {{3, 2}}, 32},
                                                                               {two_nodes, {{3, 2}}, 3001},
                                                                               {{{3, 2}}, two_nodes, 3001}}));
    const std::size_t count = size;
    if (!can_move(from, to) || (is_sanitized() && from.ranks() + to.ranks() > 8)) return;
    const std::uint64_t at = GENERATE(std::uint64_t{6}, std::uint64_t{10}, std::uint64_t{11});
    INFO(name_of(kind) << " after step " << at << ", from " << from.name() << " to " << to.name());
    const auto setup_in = [&](const Layout& layout) {
        Setup setup{quick_config(kind), {count - 20, 20}};
        setup.config.group = ONEBIT_GROUP_BUFFER;
        setup.config.algorithm = layout.flat() ? ONEBIT_ALGORITHM_PIPELINED : ONEBIT_ALGORITHM_TWO_LEVEL;
        return setup;
    };
    const OwnDirectory directory;
    const Gradient gradient = [inner = gaussian_gradient(count, 1)](int, std::uint64_t t) { return inner(0, t); };
    std::vector<float> expected;
    run_layout(from, [&, from = from](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup_in(from), log);
        training.steps(gradient, 1, at);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
        training.steps(gradient, at + 1, at + 10);
        if (log.rank() == 0) expected = training.parameters();
    });
    run_layout(to, [&, to = to](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup_in(to), std::vector<float>(count, 0.25F), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        training.steps(gradient, at + 1, at + 10);
        const std::vector<float> now = training.parameters();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < now.size(); ++i)
            wrong += std::fabs(now[i] - expected[i]) <= 1e-4F * (1 + std::fabs(expected[i])) ? 0 : 1;
        ONEBIT_EXPECT(log, wrong == 0);
    });
}

// Elements 40 to 49 have gradients from step 8 on. Their admission is due at step 12.
TEST_CASE("optimizers on two levels: masked elements that wait to be admitted are, elsewhere",
          "[optimizer][two_level][save][mask]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const auto [from, to] = GENERATE(table<Layout, Layout>(
        {{two_nodes, flat_four}, {flat_four, two_nodes}, {two_nodes, {{3, 1}}}, {{{3, 2}}, two_nodes}}));
    if (!can_move(from, to) || (is_sanitized() && from.ranks() > 4)) return;
    INFO(name_of(kind) << ", from " << from.name() << " to " << to.name());
    const auto setup_in = [&](const Layout& layout) {
        Setup setup = moved_setup(kind, layout, 1500);
        setup.groups[0].beta2 = 0.9;
        setup.config.follow_interval = 6;
        setup.config.thaw_ratio = 1e6;
        return setup;
    };
    const OwnDirectory directory;
    run_layout(from, [&, from = from](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup_in(from), log);
        training.steps(moved_gradient(8), 1, 9);
        ONEBIT_EXPECT(log, training.info().masked == 10);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
    });
    run_layout(to, [&, to = to](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup_in(to), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        const std::vector<float> start = training.parameters();
        // There are no more gradients: only the saved ones count.
        const auto idle = [&](int, std::uint64_t) { return std::vector<float>(training.count()); };
        training.steps(idle, 10, 16);
        const std::vector<float> now = training.parameters();
        ONEBIT_EXPECT(log, training.info().masked == 0);
        std::size_t moved = 0;
        for (std::size_t i = 40; i < 50; ++i) moved += now[i] != start[i] && std::isfinite(now[i]) ? 1 : 0;
        ONEBIT_EXPECT(log, moved == 10);
    });
}

TEST_CASE("optimizers on two levels: a state of a seat that can't be is refused by all",
          "[optimizer][two_level][save][blobs][bad input]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        const std::string prefix = directory.prefix("state");
        const Setup setup = moved_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM, two_nodes);
        Training training(comm, setup, log), twin(comm, setup, log);
        training.steps(moved_gradient(), 1, 9);
        twin.steps(moved_gradient(), 1, 9);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
        const Bytes sound = read_file(directory.file("state", log.rank()));
        const std::uint32_t rank = static_cast<std::uint32_t>(log.rank()), place = 1U << 20;
        ONEBIT_EXPECT(log, get<std::uint32_t>(sound, kSeatAt) == 2 * place + rank);
        struct Forged {
            std::uint32_t seat;
            bool on_all;
        };
        const Forged all_forged[] = {
            {3 * place + rank, true}, // four ranks aren't nodes of three
            {place + rank, true},     // one level
            {4 * place + rank, true}, // one node
            {rank, true},             // nodes of none
            {2 * place + 2, false},   // another rank's
            {2 * place + 4, false},   // of a third node
            {3 * place + 3, false},   // of other nodes
            {0, false},               // of no nodes
            {0x7fffffff, false},
            {0xffffffff, false},
        };
        for (const Forged& each : all_forged) {
            log.context("seat " + std::to_string(each.seat) + (each.on_all ? " on all" : " on the last"));
            Bytes forged = sound;
            if (each.on_all || log.last_rank()) put(forged, kSeatAt, each.seat);
            repair_optimizer(forged);
            write_file(directory.file("state", log.rank()), forged);
            log.barrier();
            for (const onebit_status_t status :
                 {onebit_optimizer_load(training.get(), prefix.c_str()), unpack(training.get(), {forged})}) {
                ONEBIT_EXPECT(log, status == ONEBIT_ERROR_BAD_STATE || status == ONEBIT_ERROR_MISMATCH);
                ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
            }
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        }
        training.steps(moved_gradient(), 10, 12);
        ONEBIT_EXPECT_OK(log, unpack(training.get(), {sound}));
        ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
    });
}
