// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace bert {
namespace {

using Number = unsigned long long; // for %llu

// JSON has no NaN and no infinity.
std::string json(double value) {
    if (!std::isfinite(value)) return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

} // namespace

Report::Report(const Options& options, int rank, int ranks)
    : options_(options), ranks_(ranks), silent_(rank != 0), file_(nullptr, std::fclose) {
    if (silent_ || options.output.empty()) return;
    file_.reset(std::fopen(options.output.c_str(), "w"));
    if (!file_) throw std::runtime_error("cannot write \"" + options.output + "\": " + std::strerror(errno));
}

void Report::begin(std::uint64_t parameters, std::int64_t vocabulary, double unigram_loss) {
    if (silent_) return;
    std::printf("%s: %llu parameters, %lld tokens in the vocabulary, %llu steps of %d x %zu sequences of %lld tokens\n",
                options_.arm.name, static_cast<Number>(parameters), static_cast<long long>(vocabulary),
                static_cast<Number>(options_.steps), ranks_, options_.batch, static_cast<long long>(options_.sequence));
    std::printf("A model that knows no context but the tokens' frequencies has the held-out loss %.3f.\n",
                unigram_loss);
    std::fflush(stdout);
    if (!file_) return;
    std::fprintf(file_.get(),
                 "{\"arm\": \"%s\", \"seed\": %llu, \"ranks\": %d, \"parameters\": %llu, \"vocabulary\": %lld, "
                 "\"unigram_loss\": %s, \"steps\": %llu, \"batch\": %zu, \"sequence\": %lld, \"width\": %lld, "
                 "\"layers\": %lld, \"lr\": %s, \"beta2\": %s, \"weight_decay\": %s, \"freeze_step\": %llu}\n",
                 options_.arm.name, static_cast<Number>(options_.seed), ranks_, static_cast<Number>(parameters),
                 static_cast<long long>(vocabulary), json(unigram_loss).c_str(), static_cast<Number>(options_.steps),
                 options_.batch, static_cast<long long>(options_.sequence), static_cast<long long>(options_.width),
                 static_cast<long long>(options_.layers), json(options_.lr).c_str(), json(options_.beta2).c_str(),
                 json(options_.weight_decay).c_str(), static_cast<Number>(options_.freeze_step));
    std::fflush(file_.get());
}

void Report::add(const Evaluation& e) {
    if (silent_) return;
    std::printf("step %6llu of %llu  loss %.3f  held-out %.3f  %.1f MB sent  %.0f s\n", static_cast<Number>(e.step),
                static_cast<Number>(options_.steps), e.training_loss, e.held_out_loss, double(e.bytes_sent) / 1e6,
                e.seconds);
    std::fflush(stdout);
    if (!file_) return;
    const std::uint64_t samples = e.step * options_.batch * static_cast<std::uint64_t>(ranks_);
    std::fprintf(file_.get(),
                 "{\"step\": %llu, \"samples\": %llu, \"training_loss\": %s, \"held_out_loss\": %s, "
                 "\"bytes_sent\": %llu, \"seconds\": %s}\n",
                 static_cast<Number>(e.step), static_cast<Number>(samples), json(e.training_loss).c_str(),
                 json(e.held_out_loss).c_str(), static_cast<Number>(e.bytes_sent), json(e.seconds).c_str());
    std::fflush(file_.get());
}

void Report::end(const onebit_optimizer_info_t& info, bool diverged) {
    if (silent_) return;
    if (diverged) std::printf("given up: no gradients without a NaN or an infinity any more\n");
    if (!file_) return;
    std::fprintf(file_.get(),
                 "{\"finished\": true, \"diverged\": %s, \"skipped\": %llu, \"freeze_step\": %llu, \"masked\": %llu, "
                 "\"exact_rounds\": %llu, \"compressed_rounds\": %llu, \"warmup_bytes_sent\": %llu, "
                 "\"compressed_bytes_sent\": %llu}\n",
                 diverged ? "true" : "false", static_cast<Number>(info.skipped), static_cast<Number>(info.freeze_step),
                 static_cast<Number>(info.masked), static_cast<Number>(info.exact_rounds),
                 static_cast<Number>(info.compressed_rounds), static_cast<Number>(info.warmup_bytes_sent),
                 static_cast<Number>(info.compressed_bytes_sent));
    std::fflush(file_.get());
}

} // namespace bert
