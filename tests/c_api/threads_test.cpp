// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Threads and processes in a program: forks, threads that the system refuses, small stacks. Nothing hangs, and nothing
// ends the process.
#include <pthread.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <fstream>
#include <thread>

#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/sanitized.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

// Returns an error with the condition's text unless the condition holds.
#define WRONG_UNLESS(condition) \
    if (!(condition)) return failed(#condition)

std::string failed(const char* condition) {
    std::string text = condition;
    text += ": ";
    text += onebit_last_error();
    return text;
}

constexpr std::size_t count = 30000;

// Every kind with the sign and with a grouped code.
std::vector<onebit_optimizer_config_t> quick_configs() {
    std::vector<onebit_optimizer_config_t> configs;
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        const std::pair<onebit_codec_t, onebit_datatype_t> codecs[] = {
            {ONEBIT_CODEC_SIGN, ONEBIT_FLOAT32},  {ONEBIT_CODEC_INT4, ONEBIT_FLOAT32},
            {ONEBIT_CODEC_SIGN, ONEBIT_BFLOAT16}, {ONEBIT_CODEC_MEANS, ONEBIT_FLOAT32},
            {ONEBIT_CODEC_TOPK, ONEBIT_BFLOAT16}, {ONEBIT_CODEC_RANDOMK, ONEBIT_INT8}};
        for (const auto& [codec, error_type] : codecs) {
            configs.push_back(quick_config(kind));
            configs.back().codec = codec;
            configs.back().error_type = error_type;
        }
    }
    return configs;
}

// One rank's allreduces, and steps of every optimizer, on a communicator of its own.
std::string use(std::uint32_t threads, std::vector<float>* results) {
    onebit_comm_t comm = nullptr;
    WRONG_UNLESS(onebit_comm_create_loopback(1, &comm) == ONEBIT_SUCCESS);
    onebit_allreduce_config_t config = flat_config(count);
    config.threads = threads;
    onebit_allreduce_t reduce = nullptr;
    WRONG_UNLESS(onebit_allreduce_create(comm, &config, &reduce) == ONEBIT_SUCCESS);
    const std::vector<float> values = make_data(Kind::gaussian, count, 3, 0, 0);
    results->resize(count);
    for (int i = 0; i < 3; ++i)
        WRONG_UNLESS(onebit_allreduce_run(reduce, values.data(), results->data()) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_destroy(reduce) == ONEBIT_SUCCESS);
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        std::vector<float> parameters = initial_parameters(count);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), values.data(), count);
        onebit_optimizer_config_t training = quick_config(kind);
        training.threads = threads;
        onebit_optimizer_t optimizer = nullptr;
        WRONG_UNLESS(onebit_optimizer_create(comm, &training, &tensor, 1, &optimizer) == ONEBIT_SUCCESS);
        for (int i = 0; i < 8; ++i) WRONG_UNLESS(onebit_optimizer_step(optimizer) == ONEBIT_SUCCESS);
        WRONG_UNLESS(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
        results->insert(results->end(), parameters.begin(), parameters.end());
    }
    WRONG_UNLESS(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
    return "";
}

std::string use_as(std::uint32_t threads, const std::vector<float>& expected) {
    std::vector<float> results;
    const std::string wrong = use(threads, &results);
    if (!wrong.empty()) return wrong;
    return same_bits(results, expected) ? "" : "other results";
}

// Occasional calls of a program: files, tuning, memory, errors, gradients of 16 bits under a mask, and clipped.
std::string use_rarely() {
    onebit_comm_t comm = nullptr;
    WRONG_UNLESS(onebit_comm_create_loopback(1, &comm) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_comm_tune(comm, 1000, 1e-3, nullptr) == ONEBIT_SUCCESS);
    void* memory = nullptr;
    WRONG_UNLESS(onebit_mem_alloc(comm, 1000, &memory) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_mem_free(memory) == ONEBIT_SUCCESS);
    const std::string prefix = (fs::temp_directory_path() / ("onebit-stack-" + std::to_string(getpid()))).string();
    std::vector<float> values(count, 1.0F);
    onebit_allreduce_config_t config = flat_config(count);
    onebit_allreduce_t reduce = nullptr;
    WRONG_UNLESS(onebit_allreduce_create(comm, &config, &reduce) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_start(reduce, values.data(), values.data()) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_wait(reduce) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_save(reduce, prefix.c_str()) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_load(reduce, prefix.c_str()) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_run(reduce, nullptr, nullptr) == ONEBIT_ERROR_INVALID_ARGUMENT);
    values[77] = HUGE_VALF;
    WRONG_UNLESS(onebit_allreduce_run(reduce, values.data(), values.data()) == ONEBIT_ERROR_NONFINITE);
    WRONG_UNLESS(onebit_allreduce_destroy(reduce) == ONEBIT_SUCCESS);
    const std::uint64_t shapes[] = {10, count / 10, 1, count % 10};
    config.codec = ONEBIT_CODEC_POWERSGD;
    config.datatype = ONEBIT_FLOAT16;
    config.shapes = shapes;
    config.num_shapes = count % 10 == 0 ? 1 : 2;
    std::vector<std::uint16_t> halves(count, 0x3c00);
    WRONG_UNLESS(onebit_allreduce_create(comm, &config, &reduce) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_run(reduce, halves.data(), halves.data()) == ONEBIT_SUCCESS);
    WRONG_UNLESS(onebit_allreduce_destroy(reduce) == ONEBIT_SUCCESS);
    for (onebit_optimizer_config_t training : quick_configs()) {
        std::vector<float> parameters = initial_parameters(count);
        std::vector<std::uint16_t> gradients(count, 0x3c00), copy(count);
        std::fill_n(gradients.begin(), 999, std::uint16_t{0});
        onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), count);
        tensor.gradient_type = tensor.copy_type = ONEBIT_FLOAT16;
        tensor.copy = copy.data();
        training.max_grad_norm = 1;
        onebit_optimizer_t optimizer = nullptr;
        WRONG_UNLESS(onebit_optimizer_create(comm, &training, &tensor, 1, &optimizer) == ONEBIT_SUCCESS);
        for (int i = 0; i < 12; ++i) WRONG_UNLESS(onebit_optimizer_step(optimizer) == ONEBIT_SUCCESS);
        WRONG_UNLESS(onebit_optimizer_save(optimizer, prefix.c_str()) == ONEBIT_SUCCESS);
        WRONG_UNLESS(onebit_optimizer_load(optimizer, prefix.c_str()) == ONEBIT_SUCCESS);
        gradients[5] = 0x7e00; // a NaN
        WRONG_UNLESS(onebit_optimizer_step(optimizer) == ONEBIT_ERROR_NONFINITE);
        WRONG_UNLESS(onebit_optimizer_load(optimizer, "/nowhere/at/all") == ONEBIT_ERROR_IO);
        WRONG_UNLESS(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
    }
    WRONG_UNLESS(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
    std::error_code ignored;
    fs::remove(prefix + ".0-of-1.onebit", ignored);
    return "";
}

std::size_t address_space() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

} // namespace

TEST_CASE("a forked child computes the same as its parent, whatever the parent's threads are at", "[threads]") {
    std::vector<float> expected;
    REQUIRE(use(2, &expected) == "");
    std::atomic<bool> stop{false};
    std::vector<std::thread> others; // use the tables of handles all the time
    // GCC's address sanitizer leaves its allocator's locks as they are at a fork. The child may wait for one that a
    // thread of the parent held. So the parent has no other threads there.
    for (int i = 0; i < (is_sanitized() ? 0 : 2); ++i) {
        others.emplace_back([&] {
            onebit_comm_t comm = nullptr;
            int rank = 0;
            while (!stop) {
                onebit_comm_create_loopback(1, &comm);
                onebit_comm_rank(comm, &rank);
                onebit_comm_destroy(comm);
            }
        });
    }
    for (int i = 0; i < (is_sanitized() ? 4 : 20); ++i)
        CHECK(in_child([&] { return use_as(i % 3 + 1U, expected); }) == "");
    stop = true;
    for (std::thread& other : others) other.join();
    CHECK(use_as(2, expected) == ""); // the parent is unchanged
    CHECK(in_child([&] { return in_child([&] { return use_as(2, expected); }); }) == "");
}

TEST_CASE("a forked child is told at once that a handle is its parent's", "[threads]") {
    onebit_comm_t comms[2];
    REQUIRE(onebit_comm_create_loopback(2, comms) == ONEBIT_SUCCESS);
    onebit_comm_t alone = nullptr;
    REQUIRE(onebit_comm_create_loopback(1, &alone) == ONEBIT_SUCCESS);
    void* memory = nullptr;
    REQUIRE(onebit_mem_alloc(alone, 1000, &memory) == ONEBIT_SUCCESS);
    onebit_allreduce_config_t config = flat_config(count);
    config.threads = 2;
    onebit_allreduce_t reduce = nullptr;
    REQUIRE(onebit_allreduce_create(alone, &config, &reduce) == ONEBIT_SUCCESS);
    std::vector<float> values(count, 1.0F), gradients(count, 1.0F);
    const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(values.data(), gradients.data(), count);
    const onebit_optimizer_config_t training = quick_config(ONEBIT_OPTIMIZER_ADAM);
    onebit_optimizer_t optimizer = nullptr;
    REQUIRE(onebit_optimizer_create(alone, &training, &tensor, 1, &optimizer) == ONEBIT_SUCCESS);

    CHECK(in_child([&]() -> std::string {
              const auto refused = [](onebit_status_t status) {
                  return status == ONEBIT_ERROR_INVALID_HANDLE && holds(onebit_last_error(), "fork;parent");
              };
              int number = 0;
              onebit_allreduce_t made = nullptr;
              WRONG_UNLESS(refused(onebit_comm_rank(comms[0], &number)));
              WRONG_UNLESS(refused(onebit_allreduce_create(comms[1], &config, &made)));
              WRONG_UNLESS(refused(onebit_allreduce_run(reduce, values.data(), values.data())));
              WRONG_UNLESS(refused(onebit_allreduce_wait(reduce)));
              WRONG_UNLESS(refused(onebit_optimizer_step(optimizer)));
              WRONG_UNLESS(refused(onebit_optimizer_save(optimizer, "/tmp/nothing")));
              WRONG_UNLESS(onebit_mem_free(memory) == ONEBIT_SUCCESS);
              WRONG_UNLESS(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
              WRONG_UNLESS(onebit_allreduce_destroy(reduce) == ONEBIT_SUCCESS);
              for (const onebit_comm_t comm : {comms[0], comms[1], alone})
                  WRONG_UNLESS(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
              return "";
          }) == "");

    // The child's calls have not touched the parent's objects.
    CHECK(onebit_allreduce_run(reduce, values.data(), values.data()) == ONEBIT_SUCCESS);
    CHECK(onebit_optimizer_step(optimizer) == ONEBIT_SUCCESS);
    CHECK(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
    CHECK(onebit_allreduce_destroy(reduce) == ONEBIT_SUCCESS);
    CHECK(onebit_mem_free(memory) == ONEBIT_SUCCESS);
    for (const onebit_comm_t comm : {comms[0], comms[1], alone}) CHECK(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
}

TEST_CASE("a child that ends as a program does ends", "[threads]") {
    std::vector<float> expected;
    REQUIRE(use(3, &expected) == "");
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) || is_sanitized()));
}

TEST_CASE("threads that the system refuses are an error of all ranks, and one thread is enough", "[threads]") {
    if (is_sanitized()) return;
    std::vector<float> expected;
    REQUIRE(use(1, &expected) == "");
    const auto with_limit = [&](const auto& limit) -> std::string {
        onebit_comm_t comms[2];
        WRONG_UNLESS(onebit_comm_create_loopback(2, comms) == ONEBIT_SUCCESS);
        std::atomic<bool> begin{false};
        onebit_status_t theirs = ONEBIT_SUCCESS;
        std::string reason;
        std::thread other([&] {
            while (!begin) usleep(1000);
            const onebit_allreduce_config_t config = flat_config(count);
            onebit_allreduce_t reduce = nullptr;
            theirs = onebit_allreduce_create(comms[1], &config, &reduce);
            reason = onebit_last_error();
        });
        limit();
        onebit_allreduce_config_t config = flat_config(count);
        config.threads = 1000;
        onebit_allreduce_t reduce = nullptr;
        begin = true;
        const onebit_status_t mine = onebit_allreduce_create(comms[0], &config, &reduce);
        other.join();
        WRONG_UNLESS(mine == ONEBIT_ERROR_OUT_OF_MEMORY && theirs == ONEBIT_ERROR_OUT_OF_MEMORY);
        WRONG_UNLESS(holds(onebit_last_error(), "threads;1000;no more") && holds(reason, "rank 0;threads"));
        return use_as(1, expected);
    };
    CHECK(in_child([&] {
              return with_limit([] {
                  const rlimit limit = {address_space() + (std::size_t{100} << 20), RLIM_INFINITY};
                  setrlimit(RLIMIT_AS, &limit);
              });
          }) == "");
    CHECK(in_child([&] {
              return with_limit([] {
                  if (getuid() == 0 && setuid(65534) != 0) return; // the limit doesn't apply to root
                  const rlimit limit = {3, 3};
                  setrlimit(RLIMIT_NPROC, &limit);
              });
          }) == "");
}

namespace {

// One of four ranks, on two nodes: blocks of one tensor, and of several with gradients of 16 bits.
std::string step_on_two_levels(onebit_comm_t comm) {
    for (onebit_optimizer_config_t training : quick_configs()) {
        if (!freezes(training.kind) && training.codec == ONEBIT_CODEC_SIGN) continue; // exact: on one level
        std::vector<float> parameters = initial_parameters(count);
        const std::vector<float> gradients = make_data(Kind::gaussian, count, 3, 0, 0);
        const std::vector<std::uint16_t> halves(7000, 0x3f80);
        std::vector<onebit_tensor_t> tensors = {ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), count - 7000)};
        for (std::size_t begin = count - 7000; begin < count; begin += 1000) {
            tensors.push_back(ONEBIT_TENSOR_INIT(parameters.data() + begin, nullptr, 1000));
            tensors.back().gradients = halves.data() + (begin - (count - 7000));
            tensors.back().gradient_type = ONEBIT_BFLOAT16;
        }
        training.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL;
        onebit_optimizer_t optimizer = nullptr;
        WRONG_UNLESS(onebit_optimizer_create(comm, &training, tensors.data(), tensors.size(), &optimizer) ==
                     ONEBIT_SUCCESS);
        for (int i = 0; i < 10; ++i) WRONG_UNLESS(onebit_optimizer_step(optimizer) == ONEBIT_SUCCESS);
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        WRONG_UNLESS(onebit_optimizer_get_info(optimizer, &info) == ONEBIT_SUCCESS);
        WRONG_UNLESS(info.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && info.compressed_rounds > 0);
        WRONG_UNLESS(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
    }
    WRONG_UNLESS(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
    return "";
}

} // namespace

TEST_CASE("every call works on a thread with 64 KiB of stack", "[threads]") {
    if (is_sanitized()) return;
    std::vector<float> expected;
    REQUIRE(use(1, &expected) == "");
    struct Job {
        const std::vector<float>& expected;
        std::string wrong;
    } job = {expected, "not run"};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, std::size_t{64} << 10) == 0);
    pthread_t thread;
    const auto body = [](void* argument) -> void* {
        Job& own = *static_cast<Job*>(argument);
        own.wrong = use_as(1, own.expected);
        if (own.wrong.empty()) own.wrong = use_as(2, own.expected);
        if (own.wrong.empty()) own.wrong = use_rarely();
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, body, &job) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    CHECK(job.wrong == "");
}

// The encoder's source works in blocks of its own there.
TEST_CASE("steps on two levels work on threads with 64 KiB of stack", "[threads]") {
    if (is_sanitized()) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    struct Job {
        onebit_comm_t comm = nullptr;
        pthread_t thread = {};
        std::string wrong = "not run";
    };
    std::array<Job, 4> jobs;
    std::array<onebit_comm_t, 4> comms = {};
    REQUIRE(onebit_comm_create_loopback(4, comms.data()) == ONEBIT_SUCCESS);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, std::size_t{64} << 10) == 0);
    const auto body = [](void* argument) -> void* {
        Job& own = *static_cast<Job*>(argument);
        own.wrong = step_on_two_levels(own.comm);
        return nullptr;
    };
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        jobs[r].comm = comms[r];
        REQUIRE(pthread_create(&jobs[r].thread, &attributes, body, &jobs[r]) == 0);
    }
    for (Job& job : jobs) pthread_join(job.thread, nullptr);
    pthread_attr_destroy(&attributes);
    for (const Job& job : jobs) CHECK(job.wrong == "");
}

// ------------------------------------------------------------------------------- what is started, and who ends it ----

TEST_CASE("a started step goes on in whichever thread tests it", "[optimizer][started]") {
    const int n = GENERATE(1, 3);
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            Setup setup{quick_config(kind), {3000, 33, 1201}};
            setup.config.threads = 2; // each calling thread's own
            Training training(comm, setup, log), twin(comm, setup, log);
            const Gradient gradient = gaussian_gradient(training.count(), 1);
            for (std::uint64_t t = 1; t <= 9; ++t) {
                training.set_gradients(gradient(log.rank(), t));
                onebit_status_t status = ONEBIT_ERROR_INTERNAL;
                std::thread([&] { status = onebit_optimizer_step_start(training.get()); }).join();
                ONEBIT_EXPECT_OK(log, status);
                for (int done = 0; done == 0;) {
                    std::thread([&] { status = onebit_optimizer_step_test(training.get(), &done); }).join();
                    ONEBIT_EXPECT_OK(log, status);
                    if (done == 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_step_test(training.get(), &done));
                }
                twin.steps(gradient, t, t);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("a step that has no memory to be started in is refused, and the next one is made", "[optimizer][started]") {
    if (is_sanitized()) return;
    CHECK(in_child([]() -> std::string {
              onebit_comm_t comm = nullptr;
              WRONG_UNLESS(onebit_comm_create_loopback(1, &comm) == ONEBIT_SUCCESS);
              std::vector<float> x(100, 1.0F), g(100, 0.5F);
              const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x.data(), g.data(), x.size());
              const onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.1);
              onebit_optimizer_t optimizer = nullptr;
              WRONG_UNLESS(onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer) == ONEBIT_SUCCESS);
              const rlimit none = {address_space(), RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
              setrlimit(RLIMIT_AS, &none);
              const onebit_status_t started = onebit_optimizer_step_start(optimizer);
              const onebit_status_t refused = onebit_optimizer_step_wait(optimizer);
              setrlimit(RLIMIT_AS, &all);
              WRONG_UNLESS(started == ONEBIT_SUCCESS && refused == ONEBIT_ERROR_OUT_OF_MEMORY);
              WRONG_UNLESS(x[0] == 1.0F);
              WRONG_UNLESS(onebit_optimizer_step_start(optimizer) == ONEBIT_SUCCESS);
              WRONG_UNLESS(onebit_optimizer_step_wait(optimizer) == ONEBIT_SUCCESS);
              WRONG_UNLESS(x[0] < 1.0F);
              WRONG_UNLESS(onebit_optimizer_destroy(optimizer) == ONEBIT_SUCCESS);
              return "";
          }) == "");
}

TEST_CASE("progress skips what another thread is using, and counts it", "[async][progress]") {
    run_ranks(2, [](onebit_comm_t comm, RankLog& log) {
        Allreduce waited(comm, flat_config(1001), log), other(comm, flat_config(1001), log);
        std::vector<float> of_waited(1001, 1.0F), of_other(1001, 2.0F);
        int active = -1;
        if (log.rank() == 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(waited.get(), of_waited.data(), of_waited.data()));
            onebit_status_t status = ONEBIT_ERROR_INTERNAL;
            std::thread waiting([&] {
                do status = onebit_allreduce_wait(waited.get()); // BUSY where the reset below comes upon it first
                while (status == ONEBIT_ERROR_BUSY);
            });
            while (onebit_allreduce_reset(waited.get()) != ONEBIT_ERROR_BUSY ||
                   !holds(onebit_last_error(), "another thread")) {
                std::this_thread::yield();
            }
            ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            ONEBIT_EXPECT(log, active == 1);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(other.get(), of_other.data(), of_other.data()));
            ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            ONEBIT_EXPECT(log, active == 2);
            log.barrier(); // the other rank begins
            waiting.join();
            ONEBIT_EXPECT_OK(log, status);
        } else {
            log.barrier();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(waited.get(), of_waited.data(), of_waited.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(other.get(), of_other.data(), of_other.data()));
        }
        do {
            ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            std::this_thread::yield();
        } while (active > 0);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(other.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(waited.get()));
    });
}
