// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Every call, with memory that runs out at every place.
#include "faults/allocation_sweep.hpp"

#include <cstring>
#include <optional>

#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/failing_allocations.hpp"
#include "support/files.hpp"
#include "support/fresh_communicator.hpp"
#include "support/handles.hpp"
#include "support/training.hpp"

namespace onebit_test {
namespace {

const char* form_name(onebit_algorithm_t form) {
    const char* const names[] = {"auto", "dense", "flat", "pipelined", "two_level", "bruck", "ring", "levels"};
    return names[static_cast<int>(form)];
}

// ---- creation ----

Sweep creation_of(const onebit_allreduce_config_t& config) {
    return {std::string("create ") + form_name(config.algorithm), [config](onebit_comm_t comm, RankLog& log) {
                return std::make_unique<Creation<onebit_allreduce_t>>(
                    log, [=](onebit_allreduce_t* handle) { return onebit_allreduce_create(comm, &config, handle); },
                    onebit_allreduce_destroy);
            }};
}

// ---- allreduce ----

// An allreduce beside a twin that always has memory.
class Average : public Subject {
  public:
    Average(onebit_comm_t comm, const onebit_allreduce_config_t& config, bool in_parts, RankLog& log)
        : log_(log), in_parts_(in_parts), count_(config.count), input_(count_), output_(count_) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_create(comm, &config, &handle_));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_create(comm, &config, &twin_));
        next();
    }
    ~Average() override {
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_destroy(twin_));
        (void)onebit_allreduce_destroy(handle_); // destroying a broken one may fail
    }

    onebit_status_t call() override {
        if (!in_parts_) return onebit_allreduce_run(handle_, input_.data(), output_.data());
        const onebit_status_t started = onebit_allreduce_start(handle_, input_.data(), output_.data());
        return started != ONEBIT_SUCCESS ? started : onebit_allreduce_wait(handle_);
    }
    Bytes state() override { return state_of(handle_); }
    void succeeded() override {
        std::vector<float> expected(count_);
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_run(twin_, input_.data(), expected.data()));
        ONEBIT_EXPECT(log_, same_bits(expected, output_));
        ONEBIT_EXPECT(log_, log_.same_on_all(output_.data(), count_ * sizeof(float)));
        ONEBIT_EXPECT(log_, state_of(twin_) == state_of(handle_));
        next();
    }

  protected:
    onebit_allreduce_t handle() const { return handle_; }
    onebit_allreduce_t twin() const { return twin_; }
    RankLog& log() const { return log_; }
    std::size_t count() const { return count_; }
    Bytes state_of(onebit_allreduce_t handle) {
        Bytes bytes;
        std::uint64_t size = 0;
        if (onebit_allreduce_state_size(handle, &size) != ONEBIT_SUCCESS) return bytes; // broken
        bytes.resize(size);
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_pack_state(handle, bytes.data(), size));
        append(bytes, output_);
        return bytes;
    }

  private:
    void next() { input_ = make_data(Kind::gaussian, count_, 5, log_.rank(), ++step_); }

    RankLog& log_;
    bool in_parts_;
    std::size_t count_;
    std::vector<float> input_, output_;
    onebit_allreduce_t handle_ = nullptr, twin_ = nullptr;
    std::uint64_t step_ = 0;
};

Sweep averages_of(const onebit_allreduce_config_t& config, bool in_parts) {
    return {std::string(in_parts ? "start and wait " : "run ") + form_name(config.algorithm),
            [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Average>(comm, config, in_parts, log); },
            3};
}

const std::vector<onebit_algorithm_t>& all_forms() {
    static const std::vector<onebit_algorithm_t> forms = {
        ONEBIT_ALGORITHM_AUTO,      ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED,
        ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING, ONEBIT_ALGORITHM_LEVELS};
    return forms;
}

// A call on the handle of an Average.
class OnAverage final : public Average {
  public:
    using Call = std::function<onebit_status_t(onebit_allreduce_t)>;
    OnAverage(onebit_comm_t comm, const onebit_allreduce_config_t& config, RankLog& log, Call call)
        : Average(comm, config, false, log), call_(std::move(call)) {
        ONEBIT_EXPECT_OK(log, Average::call());
        Average::succeeded();
    }
    onebit_status_t call() override { return call_(handle()); }
    void succeeded() override {
        ONEBIT_EXPECT_OK(log(), call_(twin()));
        ONEBIT_EXPECT_OK(log(), Average::call()); // it works as before
        Average::succeeded();
    }

  private:
    Call call_;
};

Sweep calls_on(const std::string& name, onebit_algorithm_t form, const OnAverage::Call& call) {
    return {name + " " + form_name(form), [=](onebit_comm_t comm, RankLog& log) {
                return std::make_unique<OnAverage>(comm, form_config(form, 5000), log, call);
            }};
}

// Saves the handle's state to files; call saves over an earlier save.
class StateFiles final : public Average {
  public:
    StateFiles(onebit_comm_t comm, const onebit_allreduce_config_t& config, RankLog& log)
        : Average(comm, config, false, log), directory_(log), prefix_(directory_.prefix("state")) {
        save_and_go_on();
    }
    onebit_status_t call() override { return onebit_allreduce_save(handle(), prefix_.c_str()); }
    Bytes state() override {
        Bytes bytes = Average::state();
        append(bytes, read_file(directory_.file("state", log().rank())));
        for (const std::string& name : directory_.listing()) bytes.insert(bytes.end(), name.begin(), name.end());
        return bytes;
    }
    void succeeded() override {
        ONEBIT_EXPECT_OK(log(), onebit_allreduce_load(twin(), prefix_.c_str()));
        save_and_go_on();
    }

  private:
    void save_and_go_on() {
        ONEBIT_EXPECT_OK(log(), call());
        ONEBIT_EXPECT_OK(log(), Average::call());
        Average::succeeded();
    }
    SharedDirectory directory_;
    std::string prefix_; // made before memory runs out
};

Sweep states_through_files(onebit_algorithm_t form) {
    return {std::string("save ") + form_name(form), [=](onebit_comm_t comm, RankLog& log) {
                return std::make_unique<StateFiles>(comm, form_config(form, 5000), log);
            }};
}

// Goes back to a state that was packed, from a later one.
class Unpacking final : public Average {
  public:
    Unpacking(onebit_comm_t comm, const onebit_allreduce_config_t& config, RankLog& log)
        : Average(comm, config, false, log), directory_(log), prefix_(directory_.prefix("state")) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(handle(), prefix_.c_str()));
        std::uint64_t size = 0;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_state_size(handle(), &size));
        packed_.resize(size);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_pack_state(handle(), packed_.data(), size));
    }
    void prepare() override {
        ONEBIT_EXPECT_OK(log(), Average::call());
        Average::succeeded();
    }
    onebit_status_t call() override {
        from_file_ = !from_file_;
        if (from_file_) return onebit_allreduce_load(handle(), prefix_.c_str());
        return onebit_allreduce_unpack_state(handle(), packed_.data(), packed_.size());
    }
    void succeeded() override {
        ONEBIT_EXPECT_OK(log(), onebit_allreduce_unpack_state(twin(), packed_.data(), packed_.size()));
    }

  private:
    SharedDirectory directory_;
    std::string prefix_;
    Bytes packed_;
    bool from_file_ = false;
};

Sweep unpacking_of(onebit_algorithm_t form) {
    return {std::string("unpack and load ") + form_name(form), [=](onebit_comm_t comm, RankLog& log) {
                return std::make_unique<Unpacking>(comm, form_config(form, 5000), log);
            }};
}

// ---- other calls on a communicator ----

class Destruction final : public Subject {
  public:
    using Destroy = std::function<onebit_status_t()>;
    Destruction(RankLog& log, std::function<Destroy(RankLog&)> make) : log_(log), make_(std::move(make)) {}
    void prepare() override { destroy_ = make_(log_); }
    onebit_status_t call() override {
        const onebit_status_t status = destroy_();
        return status == ONEBIT_ERROR_OUT_OF_MEMORY ? ONEBIT_ERROR_INTERNAL : status; // must not occur here
    }

  private:
    RankLog& log_;
    std::function<Destroy(RankLog&)> make_;
    Destroy destroy_;
};

class Tuning final : public Subject {
  public:
    Tuning(onebit_comm_t comm, RankLog& log)
        : comm_(comm), log_(log), directory_(log), path_(directory_.prefix("table")) {}
    onebit_status_t call() override {
        constexpr onebit_codec_t kCodecs[] = {ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT8};
        return onebit_comm_tune_codecs(comm_, kCodecs, 2, 256, 1e-6, path_.c_str());
    }
    void succeeded() override {
        onebit_allreduce_t handle = nullptr;
        const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_AUTO, 2000);
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_create(comm_, &config, &handle));
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_destroy(handle));
    }

  private:
    onebit_comm_t comm_;
    RankLog& log_;
    SharedDirectory directory_;
    std::string path_;
};

// ---- optimizers ----

const Sizes kSizes = {1200, 40, 1300}; // two buckets

// All kinds, as they are, in buckets, and with clipping.
std::vector<onebit_optimizer_config_t> optimizers() {
    std::vector<onebit_optimizer_config_t> configs;
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        onebit_optimizer_config_t config = quick_config(kind);
        configs.push_back(config);
        config.bucket_size = 200;
        configs.push_back(config);
        config.max_grad_norm = 0.5;
        config.bucket_size = 0;
        configs.push_back(config);
    }
    return configs;
}

std::string config_name(const onebit_optimizer_config_t& config) {
    return name_of(config.kind) + (config.bucket_size > 0 ? ", buckets" : "") +
           (config.max_grad_norm > 0 ? ", clipped" : "");
}

Sweep creation_of_optimizer(const onebit_optimizer_config_t& config) {
    return {"create " + config_name(config), [=](onebit_comm_t comm, RankLog& log) {
                auto values = std::make_shared<std::vector<float>>(2 * total(kSizes), 0.5F);
                return std::make_unique<Creation<onebit_optimizer_t>>(
                    log,
                    [=](onebit_optimizer_t* handle) {
                        onebit_tensor_t tensors[3];
                        float* at = values->data();
                        for (std::size_t k = 0; k < kSizes.size(); at += kSizes[k++]) {
                            tensors[k] = ONEBIT_TENSOR_INIT(at, at + total(kSizes), kSizes[k]);
                        }
                        return onebit_optimizer_create(comm, &config, tensors, kSizes.size(), handle);
                    },
                    onebit_optimizer_destroy);
            }};
}

// An optimizer beside a twin that always has memory.
class Step : public Subject {
  public:
    Step(onebit_comm_t comm, const onebit_optimizer_config_t& config, bool ready, RankLog& log)
        : log_(log), ready_(ready), training_(comm, config, kSizes, log), twin_(comm, config, kSizes, log) {}

    void prepare() override {
        const std::vector<float> gradient = gradient_(log_.rank(), step_ + 1);
        training_.set_gradients(gradient);
        twin_.set_gradients(gradient);
    }
    onebit_status_t call() override {
        for (std::size_t k = kSizes.size(); ready_ && k-- > 0;) { // optional: the step does whatever this call couldn't
            (void)onebit_optimizer_grad_ready(training_.get(), k);
        }
        return onebit_optimizer_step(training_.get());
    }
    Bytes state() override { return state_of(training_); }
    void succeeded() override {
        ++step_;
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_step(twin_.get()));
        ONEBIT_EXPECT(log_, state_of(twin_) == state_of(training_));
    }

  protected:
    RankLog& log() { return log_; }
    Training& training() { return training_; }
    Training& twin() { return twin_; }
    void steps(std::uint64_t n) {
        for (std::uint64_t t = 0; t < n; ++t) {
            Step::prepare();
            ONEBIT_EXPECT_OK(log_, Step::call());
            Step::succeeded();
        }
    }
    std::uint64_t made() const { return step_; }
    void go_back_to(std::uint64_t step) { step_ = step; }
    Bytes state_of(Training& training) {
        OptimizerErrors errors{std::vector<float>(total(kSizes)), std::vector<float>(total(kSizes))};
        if (onebit_optimizer_get_error(training.get(), errors.worker.data(), errors.server.data()) != ONEBIT_SUCCESS) {
            return {}; // broken
        }
        const onebit_optimizer_info_t info = training.info();
        Bytes bytes = training.copies();
        append(bytes, training.parameters());
        append(bytes, errors.worker);
        append(bytes, errors.server);
        append(bytes, std::vector<std::uint64_t>{static_cast<std::uint64_t>(info.frozen), info.steps, info.freeze_step,
                                                 info.masked, info.exact_rounds, info.compressed_rounds, info.skipped});
        append(bytes, std::vector<double>{info.grad_norm});
        return bytes;
    }

  private:
    RankLog& log_;
    bool ready_;
    Training training_, twin_;
    Gradient gradient_ = gaussian_gradient(total(kSizes), 3);
    std::uint64_t step_ = 0;
};

Sweep steps_of(const onebit_optimizer_config_t& config, bool ready) {
    return {"step " + config_name(config) + (ready ? ", ready early" : ""),
            [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Step>(comm, config, ready, log); }, 14};
}

// Saves over an earlier save.
class Save final : public Step {
  public:
    Save(onebit_comm_t comm, const onebit_optimizer_config_t& config, std::uint64_t first, RankLog& log)
        : Step(comm, config, false, log), directory_(log), prefix_(directory_.prefix("state")) {
        steps(first);
        ONEBIT_EXPECT_OK(log, call());
        steps(1);
    }
    void prepare() override {}
    onebit_status_t call() override { return onebit_optimizer_save(training().get(), prefix_.c_str()); }
    Bytes state() override {
        Bytes bytes = Step::state();
        append(bytes, read_file(directory_.file("state", log().rank())));
        for (const std::string& name : directory_.listing()) bytes.insert(bytes.end(), name.begin(), name.end());
        return bytes;
    }
    void succeeded() override {
        ONEBIT_EXPECT_OK(log(), onebit_optimizer_load(twin().get(), prefix_.c_str()));
        steps(1);
    }

  private:
    SharedDirectory directory_;
    std::string prefix_;
};

Sweep saves_of(const onebit_optimizer_config_t& config, std::uint64_t steps) {
    return {"save " + config_name(config) + " after step " + std::to_string(steps),
            [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Save>(comm, config, steps, log); }};
}

// Loads a state saved after `saved` steps into an optimizer that has made `first` steps.
class Load final : public Step {
  public:
    Load(onebit_comm_t comm, const onebit_optimizer_config_t& config, std::uint64_t first, std::uint64_t saved,
         RankLog& log)
        : Step(comm, config, false, log), directory_(log), first_(first), saved_(saved), saved_prefix_(prefix(saved)) {
        for (const std::uint64_t at : {std::min(first, saved), std::max(first, saved)}) {
            steps(at - made());
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training().get(), prefix(at).c_str()));
        }
        load_both(first);
    }
    void prepare() override {}
    onebit_status_t call() override { return onebit_optimizer_load(training().get(), saved_prefix_.c_str()); }
    void succeeded() override {
        ONEBIT_EXPECT_OK(log(), onebit_optimizer_load(twin().get(), saved_prefix_.c_str()));
        go_back_to(saved_);
        steps(1);
        load_both(first_);
    }

  private:
    void load_both(std::uint64_t at) {
        for (Training* const one : {&training(), &twin()}) {
            ONEBIT_EXPECT_OK(log(), onebit_optimizer_load(one->get(), prefix(at).c_str()));
        }
        go_back_to(at);
    }
    std::string prefix(std::uint64_t at) const { return directory_.prefix(std::to_string(at)); }
    SharedDirectory directory_;
    std::uint64_t first_, saved_;
    std::string saved_prefix_;
};

Sweep loads_of(const onebit_optimizer_config_t& config, std::uint64_t first, std::uint64_t saved) {
    return {"load " + config_name(config) + " of step " + std::to_string(saved) + " after " + std::to_string(first),
            [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Load>(comm, config, first, saved, log); }};
}

} // namespace

TEST_CASE("communicators in one process are created with memory or not at all", "[memory][communicator]") {
    for (const bool all_behind : {false, true}) {
        bool happened = true;
        for (long n = 1; happened; ++n) {
            onebit_comm_t comms[3] = {nullptr, nullptr, nullptr};
            onebit_status_t status = ONEBIT_SUCCESS;
            {
                const FailingAllocation failing(n, all_behind);
                status = onebit_comm_create_loopback(3, comms);
                happened = FailingAllocation::happened();
            }
            INFO("allocation " << n);
            CHECK((status == ONEBIT_SUCCESS || (happened && status == ONEBIT_ERROR_OUT_OF_MEMORY)));
            for (onebit_comm_t comm : comms) {
                CHECK((comm != nullptr) == (status == ONEBIT_SUCCESS));
                if (comm != nullptr) CHECK(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
            }
        }
    }
}

TEST_CASE("allreduces are created with memory, or on no rank", "[memory][create]") {
    for (const onebit_algorithm_t form : all_forms()) {
        for (const std::uint64_t count : {10, 5000}) {
            for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE}) {
                onebit_allreduce_config_t config = form_config(form, count);
                config.check = check;
                run_sweep(creation_of(config));
            }
        }
    }
}

TEST_CASE("allreduces run whatever memory there is", "[memory][run]") {
    for (const onebit_algorithm_t form : all_forms()) {
        for (const std::uint64_t count : {10, 5000}) {
            for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE}) {
                onebit_allreduce_config_t config = form_config(form, count);
                config.check = check;
                for (const bool in_parts : {false, true}) run_sweep(averages_of(config, in_parts));
            }
        }
    }
}

TEST_CASE("allreduces on levels of single ranks are created and run whatever memory there is",
          "[memory][create][run]") {
    const Variable node_size("ONEBIT_NODE_SIZE", "1"); // so that the last level is between all
    const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_LEVELS, 5000);
    run_sweep(creation_of(config));
    run_sweep(averages_of(config, true));
    const std::vector<std::uint32_t> mask(200, 0x0f0f0f0f);
    run_sweep(calls_on("mask", ONEBIT_ALGORITHM_LEVELS,
                       [mask](onebit_allreduce_t handle) { return onebit_allreduce_set_mask(handle, mask.data()); }));
    run_sweep(states_through_files(ONEBIT_ALGORITHM_LEVELS));
    run_sweep(unpacking_of(ONEBIT_ALGORITHM_LEVELS));
}

TEST_CASE("allreduces of matrices are created and run whatever memory there is", "[memory][create][run]") {
    static constexpr std::uint64_t shapes[] = {40, 50, 1, 7, 60, 30}; // of which two have factors
    onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_FLAT, 3807);
    config.codec = ONEBIT_CODEC_POWERSGD;
    config.shapes = shapes;
    config.num_shapes = 3;
    run_sweep(creation_of(config));
    for (const std::uint32_t threads : {1U, 2U}) {
        config.threads = threads;
        run_sweep(averages_of(config, true));
    }
}

TEST_CASE("settings and saved states of allreduces are changed with memory, or on no rank", "[memory][settings]") {
    for (const onebit_algorithm_t form : {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED}) {
        const std::vector<std::uint32_t> mask(200, 0x7fffffffU);
        run_sweep(calls_on("mask", form, [mask](onebit_allreduce_t handle) {
            return onebit_allreduce_set_mask(handle, mask.data());
        }));
        Sweep dense = calls_on("dense", form, [](onebit_allreduce_t handle) {
            return onebit_allreduce_set_algorithm(handle, ONEBIT_ALGORITHM_DENSE);
        });
        dense.ranks = {1}; // local
        run_sweep(dense);
        run_sweep(states_through_files(form));
        run_sweep(unpacking_of(form));
    }
}

TEST_CASE("what is destroyed needs no memory", "[memory][destroy]") {
    run_sweep({"destroy an allreduce", [](onebit_comm_t comm, RankLog& log) {
                   return std::make_unique<Destruction>(log, [=](RankLog& rank_log) {
                       onebit_allreduce_t handle = nullptr;
                       const onebit_allreduce_config_t config = flat_config(5000);
                       ONEBIT_EXPECT_OK(rank_log, onebit_allreduce_create(comm, &config, &handle));
                       return [handle] { return onebit_allreduce_destroy(handle); };
                   });
               }});
    run_sweep({"destroy a communicator", [](onebit_comm_t comm, RankLog& log) {
                   return std::make_unique<Destruction>(log, [=](RankLog& rank_log) {
                       const onebit_comm_t fresh = fresh_communicator(comm, rank_log);
                       return [fresh] { return onebit_comm_destroy(fresh); };
                   });
               }});
    run_sweep({"free memory", [](onebit_comm_t comm, RankLog& log) {
                   return std::make_unique<Destruction>(log, [=](RankLog& rank_log) {
                       void* memory = nullptr;
                       ONEBIT_EXPECT_OK(rank_log, onebit_mem_alloc(comm, 1000, &memory));
                       return [memory] { return onebit_mem_free(memory); };
                   });
               }});
}

TEST_CASE("memory to share is there, or on no rank", "[memory][mem_alloc]") {
    run_sweep({"mem_alloc", [](onebit_comm_t comm, RankLog& log) {
                   return std::make_unique<Creation<void*>>(
                       log, [=](void** memory) { return onebit_mem_alloc(comm, 10000, memory); }, onebit_mem_free);
               }});
}

TEST_CASE("a communicator is tuned with memory, or on no rank", "[memory]") {
    run_sweep({"tune", [](onebit_comm_t comm, RankLog& log) { return std::make_unique<Tuning>(comm, log); }});
}

TEST_CASE("optimizers are created with memory, or on no rank", "[memory][optimizer][create]") {
    for (const onebit_optimizer_config_t& config : optimizers()) run_sweep(creation_of_optimizer(config));
}

TEST_CASE("steps are made with memory, or on no rank", "[memory][optimizer][step]") {
    for (const onebit_optimizer_config_t& config : optimizers()) {
        for (const bool ready : {false, true}) {
            if (!ready || config.bucket_size > 0) run_sweep(steps_of(config, ready));
        }
    }
}

TEST_CASE("optimizers are saved and loaded with memory, or on no rank", "[memory][optimizer][save]") {
    for (const onebit_optimizer_config_t& config : optimizers()) {
        if (config.max_grad_norm > 0) continue; // whose states hold nothing more
        for (const std::uint64_t steps : {2, 9}) {
            for (Sweep sweep : {saves_of(config, steps), loads_of(config, steps, 11 - steps)}) {
                sweep.ranks = {3}; // files are slow
                run_sweep(sweep);
            }
        }
    }
}

} // namespace onebit_test
