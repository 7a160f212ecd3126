// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Pre-trains a small BERT with libtorch: torch computes the gradients, onebit averages them over the ranks and updates
// the parameters, in torch's own memory.
//
//     mpirun -n 4 pretrain_bert TEXT_FILE --arm onebit_adam
//
// All code that concerns onebit is in this file. scripts/convergence.py runs the arms and draws the curves.

#include <mpi.h>
#include <onebit/onebit_mpi.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <onebit/onebit.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "examples.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "text.hpp"

namespace {

constexpr std::uint64_t kMaxSkips = 10; // in a row: after so many the parameters themselves are useless

struct Ranks {
    int rank;
    int size;
};

// The text as tokens. Each rank evaluates with its own part of the held-out text.
struct Data {
    std::vector<bert::Token> training;
    std::vector<bert::Batch> held_out;
    std::int64_t vocabulary;
    double unigram_loss;
};

using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

enum Group : std::uint32_t { kDecayed = 0, kUndecayed = 1 };

double sum_over_ranks(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
}

Data make_data(const bert::Options& options, Ranks ranks) {
    const std::string text = bert::read_text(options.text, MPI_COMM_WORLD);
    const std::size_t cut = bert::held_out_begin(text);
    const bert::Vocabulary vocabulary(std::string_view(text).substr(0, cut), options.vocabulary);
    const std::vector<bert::Token> tail = vocabulary.encode(std::string_view(text).substr(cut));
    auto batches = [&](std::size_t first, std::size_t step) {
        return bert::held_out_batches(tail, options.sequence, vocabulary.size(), 4 * options.batch, first, step);
    };
    Data data = {vocabulary.encode(std::string_view(text).substr(0, cut)), batches(ranks.rank, ranks.size),
                 static_cast<std::int64_t>(vocabulary.size()), 0.0};
    if (batches(0, 1).empty()) throw std::runtime_error("the text is too short to hold any of it out");
    data.unigram_loss = bert::unigram_loss(data.training, batches(0, 1), vocabulary.size());
    return data;
}

bert::Bert make_model(const bert::Options& options, std::int64_t vocabulary) {
    torch::manual_seed(options.seed); // the same parameters on every rank
    return bert::Bert(bert::Shape{vocabulary, options.sequence, options.width, options.heads, options.layers});
}

// Registers torch's parameters where they lie. Gradients are allocated here, once. torch adds to existing gradients,
// and zero_gradients keeps their memory, so that the pointers stay valid.
std::vector<onebit_tensor_t> make_tensors(const NamedParameters& parameters) {
    std::vector<onebit_tensor_t> tensors;
    for (const auto& item : parameters) {
        torch::Tensor p = item.value();
        TORCH_CHECK(p.is_contiguous() && p.scalar_type() == torch::kFloat32);
        p.mutable_grad() = torch::zeros_like(p);
        onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(p.data_ptr<float>(), p.grad().data_ptr<float>(), p.numel());
        tensor.group = p.dim() > 1 ? kDecayed : kUndecayed; // weights and embeddings; biases and normalisations
        tensor.name = item.key().c_str();
        tensors.push_back(tensor);
    }
    return tensors;
}

// In place: module.zero_grad() would throw the memory away.
void zero_gradients(bert::BertImpl& model) {
    for (torch::Tensor& p : model.parameters()) p.mutable_grad().zero_();
}

onebit::Communicator make_communicator() {
    onebit_comm_t comm;
    onebit::check(onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
    return onebit::Communicator(comm);
}

onebit::Optimizer make_optimizer(const onebit::Communicator& comm, const bert::Options& options,
                                 bert::BertImpl& model) {
    onebit_param_group_t decayed = ONEBIT_PARAM_GROUP_INIT(options.lr);
    decayed.beta2 = options.beta2;
    decayed.weight_decay = options.weight_decay;
    decayed.eps = 1e-6; // BERT's
    onebit_param_group_t undecayed = decayed;
    undecayed.weight_decay = 0;
    const onebit_param_group_t groups[] = {decayed, undecayed}; // indexed by Group

    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(options.arm.kind, options.lr);
    config.groups = groups;
    config.num_groups = std::size(groups);
    config.max_grad_norm = options.max_grad_norm;
    const bool freezes = options.arm.kind != ONEBIT_OPTIMIZER_ADAM && options.arm.kind != ONEBIT_OPTIMIZER_LAMB;
    if (freezes) config.freeze_step = options.freeze_step;
    config.lr_warmup_steps = bert::lr_warmup_steps(options);
    config.compressed = options.compressed;
    config.scale = options.scale.value_or(config.scale);
    config.group = options.group.value_or(config.group);
    config.momentum_scaling = options.arm.momentum_scaling;
    config.variance_updates = options.variance_updates;
    config.local_step_scaler = options.local_step_scaler;
    config.local_steps = options.local_steps;
    config.bucket_size = options.bucket_size;
    const NamedParameters parameters = model.named_parameters(); // the names must last until they are copied
    return {comm, config, make_tensors(parameters)};
}

// Tells the optimizer of each gradient as soon as torch has added it up, in the middle of the backward pass.
class ReadyHooks {
  public:
    ReadyHooks(onebit::Optimizer& optimizer, bert::BertImpl& model) {
        const std::vector<torch::Tensor> parameters = model.parameters();
        for (std::size_t k = 0; k < parameters.size(); ++k) {
            accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters[k]));
            accumulators_.back()->add_post_hook(std::make_unique<Hook>(optimizer, k));
        }
    }

  private:
    struct Hook final : torch::autograd::FunctionPostHook {
        Hook(onebit::Optimizer& optimizer, std::size_t tensor) : optimizer(optimizer), tensor(tensor) {}
        torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                                  const torch::autograd::variable_list&) override {
            optimizer.grad_ready(tensor);
            return outputs;
        }
        onebit::Optimizer& optimizer;
        std::size_t tensor;
    };
    std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_; // torch itself keeps weak references only
};

// Mean over all tokens to guess in all ranks' batches.
double held_out_loss(bert::BertImpl& model, const std::vector<bert::Batch>& batches) {
    const torch::NoGradGuard no_grad;
    double sum = 0, guesses = 0;
    for (const bert::Batch& batch : batches) {
        sum += model.loss(batch).item<double>() * double(batch.targets.size());
        guesses += double(batch.targets.size());
    }
    return sum_over_ranks(sum) / sum_over_ranks(guesses);
}

// The settings of step number `number`. Called before its backward pass, because exchanges may begin in that pass.
void prepare_step(onebit::Optimizer& optimizer, const bert::Options& options, std::uint64_t number) {
    optimizer.set_lr(bert::learning_rate(options, number));
    if (!options.arm.error_feedback) onebit::check(onebit_optimizer_reset_error(optimizer.get()));
}

// One step of the optimizer. False if some rank's gradients had a NaN or an infinity: then nothing has changed.
bool step(onebit::Optimizer& optimizer) {
    const onebit_status_t status = onebit_optimizer_step(optimizer.get());
    if (status == ONEBIT_ERROR_NONFINITE) return false;
    onebit::check(status);
    return true;
}

void train(const bert::Options& options, const Data& data, Ranks ranks, bert::Report& report) {
    bert::Bert model = make_model(options, data.vocabulary);
    const onebit::Communicator comm = make_communicator();
    onebit::Optimizer optimizer = make_optimizer(comm, options, *model);
    std::optional<ReadyHooks> hooks;
    if (options.bucket_size > 0) hooks.emplace(optimizer, *model);
    bert::Sampler sampler(data.training, options.sequence, data.vocabulary, options.seed);
    report.begin(optimizer.info().count, data.vocabulary, data.unigram_loss);
    report.add({0, std::nan(""), held_out_loss(*model, data.held_out), 0, 0.0});

    double loss_sum = 0, seconds = 0, begin = MPI_Wtime();
    std::uint64_t evaluated = 0, skips = 0;
    for (std::uint64_t t = 1; t <= options.steps && skips < kMaxSkips; ++t) {
        const std::uint64_t first = ((t - 1) * ranks.size + ranks.rank) * options.batch;
        const torch::Tensor loss = model->loss(sampler.batch(first, options.batch));
        prepare_step(optimizer, options, t);
        loss.backward();
        loss_sum += loss.item<double>();
        skips = step(optimizer) ? 0 : skips + 1;
        zero_gradients(*model);
        if (t % options.evaluate_every != 0 && t != options.steps && skips < kMaxSkips) continue;

        seconds += MPI_Wtime() - begin;
        const onebit_optimizer_info_t info = optimizer.info();
        report.add({t, sum_over_ranks(loss_sum) / double(t - evaluated) / ranks.size,
                    held_out_loss(*model, data.held_out), info.warmup_bytes_sent + info.compressed_bytes_sent,
                    seconds});
        loss_sum = 0;
        evaluated = t;
        begin = MPI_Wtime();
    }
    report.end(optimizer.info(), skips == kMaxSkips);
}

int run(int argc, char** argv) {
    Ranks ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    bert::Options options;
    if (const auto exit_code = bert::parse(argc, argv, ranks.rank, options)) return *exit_code;
    torch::set_num_threads(1); // the ranks share the machine
    bert::Report report(options, ranks.rank, ranks.size);
    train(options, make_data(options, ranks), ranks, report);
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    try {
        const int exit_code = run(argc, argv);
        MPI_Finalize();
        return exit_code;
    } catch (const c10::Error& e) {
        std::fprintf(stderr, "pretrain_bert: %s\n", e.what_without_backtrace());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "pretrain_bert: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); // all ranks: other ranks may be waiting for this one
    }
    return EXIT_FAILURE;
}
