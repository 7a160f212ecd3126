// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory that runs out while reduce-scatters and all-gathers are created, called, saved and loaded.
#include "faults/allocation_sweep.hpp"
#include "support/directory.hpp"
#include "support/shard_handles.hpp"

namespace onebit_test {
namespace {

constexpr onebit_algorithm_t kAlgorithms[] = {ONEBIT_ALGORITHM_AUTO, ONEBIT_ALGORITHM_DENSE,
                                              ONEBIT_ALGORITHM_PIPELINED};

// What handles are created with, on any number of ranks.
struct Settings {
    onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_PIPELINED;
    onebit_check_t check = ONEBIT_CHECK_FULL;
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;

    onebit_shard_config_t config(const Cut& cut) const {
        onebit_shard_config_t config = shard_config(cut, default_mode(), algorithm);
        config.check = check;
        config.codec = codec;
        return config;
    }
    std::string name() const {
        return std::to_string(algorithm) + ", check " + std::to_string(check) + ", codec " + std::to_string(codec);
    }
};

std::vector<Settings> all_settings() {
    std::vector<Settings> all;
    for (const onebit_algorithm_t algorithm : kAlgorithms)
        for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE})
            all.push_back({algorithm, check, ONEBIT_CODEC_SIGN});
    all.push_back({ONEBIT_ALGORITHM_PIPELINED, ONEBIT_CHECK_FULL, ONEBIT_CODEC_INT4});
    return all;
}

template <class Collective>
Sweep creation_of(const Settings& settings) {
    return {std::string("create ") + Collective::name + " " + settings.name(), [=](onebit_comm_t comm, RankLog& log) {
                using Handle = typename Collective::Handle;
                const auto cut = std::make_shared<Cut>(mixed_cut(log.size()));
                onebit_shard_config_t config = settings.config(*cut); // while there is memory
                return std::make_unique<Creation<Handle>>(
                    log,
                    [cut, comm, config](Handle* handle) mutable {
                        config.counts = cut->counts.data();
                        return Collective::create(comm, &config, handle);
                    },
                    Collective::destroy);
            }};
}

// Calls on a handle beside a twin that always has memory.
template <class Collective>
class Called : public Subject {
  public:
    Called(onebit_comm_t comm, const Settings& settings, bool in_parts, RankLog& log)
        : log_(log), in_parts_(in_parts), cut_(mixed_cut(log.size())), twin_(comm, settings.config(cut_), log) {
        const onebit_shard_config_t config = settings.config(cut_);
        ONEBIT_EXPECT_OK(log, Collective::create(comm, &config, &handle_));
        output_.assign(twin_.output_count(), 0.0F);
        next();
    }
    ~Called() override {
        (void)Collective::destroy(handle_); // destroying a broken one may fail
    }

    onebit_status_t call() override {
        if (!in_parts_) return Collective::run(handle_, input_.data(), output_.data());
        const onebit_status_t started = Collective::start(handle_, input_.data(), output_.data());
        return started != ONEBIT_SUCCESS ? started : Collective::wait(handle_);
    }
    Bytes state() override {
        std::uint64_t size = 0;
        if (Collective::state_size(handle_, &size) != ONEBIT_SUCCESS) return {}; // broken
        Bytes bytes(size);
        ONEBIT_EXPECT_OK(log_, Collective::pack_state(handle_, bytes.data(), size));
        append(bytes, output_);
        return bytes;
    }
    void succeeded() override {
        expect_bits(log_, "the result", output_, twin_.run(input_));
        std::vector<float> error(twin_.input_count());
        ONEBIT_EXPECT_OK(log_, Collective::get_error(handle_, error.data()));
        expect_bits(log_, "the error", error, twin_.error());
        next();
    }

  protected:
    typename Collective::Handle handle() const { return handle_; }
    Shards<Collective>& twin() { return twin_; }
    RankLog& log() const { return log_; }

  private:
    void next() { input_ = twin_.input(Kind::gaussian, 5, ++step_); }

    RankLog& log_;
    bool in_parts_;
    Cut cut_;
    Shards<Collective> twin_;
    std::vector<float> input_, output_;
    typename Collective::Handle handle_ = nullptr;
    std::uint64_t step_ = 0;
};

template <class Collective>
Sweep calls_of(const Settings& settings, bool in_parts) {
    return {std::string(in_parts ? "start and wait " : "run ") + Collective::name + " " + settings.name(),
            [=](onebit_comm_t comm, RankLog& log) {
                return std::make_unique<Called<Collective>>(comm, settings, in_parts, log);
            },
            3};
}

enum class What { save, load, unpack };

// Saves over an earlier save, or goes back to a state from a later one.
template <class Collective>
class Stored final : public Called<Collective> {
    using Base = Called<Collective>;

  public:
    Stored(onebit_comm_t comm, What what, RankLog& log)
        : Base(comm, {}, false, log), what_(what), directory_(log), prefix_(directory_.prefix("state")) {
        step();
        ONEBIT_EXPECT_OK(log, Collective::save(this->handle(), prefix_.c_str()));
        packed_ = this->twin().packed();
    }
    void prepare() override { step(); }
    onebit_status_t call() override {
        if (what_ == What::save) return Collective::save(this->handle(), prefix_.c_str());
        if (what_ == What::load) return Collective::load(this->handle(), prefix_.c_str());
        return Collective::unpack_state(this->handle(), packed_.data(), packed_.size());
    }
    Bytes state() override {
        Bytes bytes = Base::state();
        for (const std::string& name : directory_.listing()) bytes.insert(bytes.end(), name.begin(), name.end());
        return bytes;
    }
    void succeeded() override {
        if (what_ == What::save)
            ONEBIT_EXPECT_OK(this->log(), Collective::load(this->twin().get(), prefix_.c_str()));
        else
            ONEBIT_EXPECT_OK(this->log(), Collective::unpack_state(this->twin().get(), packed_.data(), packed_.size()));
        step();
    }

  private:
    void step() {
        ONEBIT_EXPECT_OK(this->log(), Base::call());
        Base::succeeded();
    }
    What what_;
    SharedDirectory directory_;
    std::string prefix_; // made before memory runs out
    Bytes packed_;
};

} // namespace

TEMPLATE_TEST_CASE("shards are created with memory, or on no rank", "[memory][shards][create]", ReduceScatter,
                   AllGather) {
    for (const Settings& settings : all_settings()) run_sweep(creation_of<TestType>(settings));
}

TEMPLATE_TEST_CASE("shards' calls run whatever memory there is", "[memory][shards][run]", ReduceScatter, AllGather) {
    for (const Settings& settings : all_settings())
        for (const bool in_parts : {false, true}) run_sweep(calls_of<TestType>(settings, in_parts));
}

TEMPLATE_TEST_CASE("shards' saved states are changed with memory, or on no rank", "[memory][shards][state]",
                   ReduceScatter, AllGather) {
    for (const What what : {What::save, What::load, What::unpack}) {
        run_sweep(
            {std::string("stored ") + TestType::name + " " + std::to_string(static_cast<int>(what)),
             [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Stored<TestType>>(comm, what, log); }});
    }
}

} // namespace onebit_test
