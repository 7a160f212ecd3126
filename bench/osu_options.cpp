// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <climits>
#include <limits>
#include <ostream>
#include <span>
#include <vector>

namespace onebit::bench {

namespace {

constexpr std::size_t kLargeMessage = 8192;       // OMB: larger ones get fewer iterations
constexpr std::size_t kMaxIterations = 100000000; // each one's time is kept, and all are reduced in one message
// MPI 3.1 counts elements in an int; the dense rival could go no further.
constexpr std::size_t kMaxBytes = std::size_t{INT_MAX} * sizeof(float);

std::size_t require_bytes(const std::string& option, const std::string& text) {
    const std::optional<std::size_t> bytes = parse_bytes(text);
    if (!bytes || *bytes == 0) {
        throw CLI::ValidationError(option,
                                   "'" + text + "' is not a size: a positive number of bytes, K, M or G after it");
    }
    return *bytes;
}

// MAX, MIN:MAX or MIN:, as in OMB.
void read_message_size(const std::string& text, const OsuProgram& program, OsuOptions& options) {
    const std::string name = "--message-size";
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) {
        options.max_bytes = require_bytes(name, text);
    } else {
        if (colon > 0) options.min_bytes = require_bytes(name, text.substr(0, colon));
        if (colon + 1 < text.size()) options.max_bytes = require_bytes(name, text.substr(colon + 1));
        if (text.size() == 1) throw CLI::ValidationError(name, "':' gives neither MIN nor MAX");
    }
    if (options.max_bytes > kMaxBytes) {
        throw CLI::ValidationError(name, "MAX is more than " + std::to_string(kMaxBytes) +
                                             " bytes, the most elements that " + program.rival + " can count");
    }
    if (options.min_bytes > options.max_bytes) {
        throw CLI::ValidationError(name, "MIN (" + std::to_string(options.min_bytes) + ") is more than MAX (" +
                                             std::to_string(options.max_bytes) + ")");
    }
}

// RANKS[:CODEC], ...
void read_levels(const std::vector<std::string>& texts, OsuOptions& options) {
    for (const std::string& text : texts) {
        const std::size_t colon = text.find(':');
        OsuLevel level;
        const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), level.ranks);
        const std::string codec = colon == std::string::npos ? "" : text.substr(colon + 1);
        const auto known = std::find(kCodecNames.begin(), kCodecNames.end(), codec);
        if (error != std::errc{} || level.ranks < 1 || level.ranks > 32768 ||
            end != text.data() + std::min(colon, text.size()) ||
            (colon != std::string::npos && known == kCodecNames.end())) {
            throw CLI::ValidationError("--levels", "'" + text + "' is not RANKS or RANKS:CODEC");
        }
        if (colon != std::string::npos) level.codec = static_cast<onebit_codec_t>(known - kCodecNames.begin());
        options.levels.push_back(level);
    }
}

// The options that are words, before they become the C API's constants.
struct Words {
    std::string message_size;
    std::string mem_limit;
    std::string accelerator = "host";
    std::string buffers = "plain";
    std::string transport = "mpi";
    std::string datatype = "float32";
    std::string codec = "sign";
    std::string error_type = "float32";
    std::string scale = "l2";
    std::string group = "block";
    std::string rounding = "nearest";
    std::string optimizer = "onebit_adam";
    std::string algorithm = "auto";
    std::string check = "full";
    std::vector<std::string> levels;
};

// What --algorithm accepts.
std::vector<std::string> algorithms(const OsuProgram& program) {
    if (program.shards) return {"auto", "dense", "pipelined"};
    std::vector<std::string> names = kNamedAlgorithms; // --levels gives levels
    if (program.steps) std::erase(names, "dense");
    return names;
}

// "a, b or c".
std::string enumerate(const std::vector<std::string>& words) {
    std::string text = words.front();
    for (std::size_t i = 1; i < words.size(); ++i) text += (i + 1 < words.size() ? ", " : " or ") + words[i];
    return text;
}

void add_options(CLI::App& app, const OsuProgram& program, OsuOptions& options, Words& words) {
    const bool averages_all = !program.shards && !program.steps;
    const bool on_gpu = averages_all && program.completion != Completion::kOverlapped;
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.set_version_flag("-v,--version", std::string(program.name) + " " + onebit_version());
    app.add_option("-m,--message-size", words.message_size,
                   std::string("[MIN:]MAX  Message sizes in bytes, powers of two times MIN (default 4:1M); K, M, G ") +
                       "allowed" + (program.shards ? ". Of the whole buffer, less what makes shards equal" : ""));
    app.add_option("-i,--iterations", options.iterations,
                   "Timed calls for every size (default 1000 up to 8192 bytes, 100 above)")
        ->check(CLI::Range(std::size_t{1}, kMaxIterations));
    app.add_option("-x,--warmup", options.warmup, "Untimed calls before them (default 200 up to 8192 bytes, 10 above)");
    app.add_flag("-f,--full", options.full,
                 std::string("Also minimum, maximum and iterations, and the dense ") + program.rival +
                     (program.steps ? " with a dense step behind it," : "") + " measured in the same run");
    app.add_flag("--json", options.json, "Print each line as a JSON object");
    if (program.completion == Completion::kOverlapped) {
        app.add_option(
               "-t,--num-test-calls", options.tests,
               "How often the call in flight is tested during a computation (default 100). With 0 onebit's call "
               "moves only when it is started and waited for")
            ->check(CLI::Range(0, 1000000));
    }
    if (on_gpu) {
        app.add_flag("--bf16", options.bfloat16,
                     "With --full: also MPI_Allreduce of as many bfloat16, whose sum is an MPI_Op of the benchmark's "
                     "own");
    }
    app.add_flag("-c,--validation", options.validation,
                 "Check the results after each size; exit status 1 if one fails");
    if (on_gpu) {
        app.add_option(
               "-d,--accelerator", words.accelerator,
               "Where values lie: cuda (a GPU of each rank's, by its number on the node) or host (default host)")
            ->check(CLI::IsMember({"cuda", "host"}));
    }
    if (averages_all) {
        app.add_option("--datatype", words.datatype,
                       "What onebit's buffers are of, by which sizes count: float32 or bfloat16 (default float32). The "
                       "dense MPI_Allreduce is of as many float32")
            ->check(CLI::IsMember({"float32", "bfloat16"}));
    }
    if (program.steps) {
        const std::vector<std::string> kinds(kOptimizerNames.begin(), kOptimizerNames.end());
        app.add_option("--optimizer", words.optimizer, enumerate(kinds) + " (default onebit_adam)")
            ->check(CLI::IsMember(kinds));
    }
    app.add_option("--buffers", words.buffers,
                   "Where values lie on the host, onebit's and MPI's: plain, or shared (onebit_mem_alloc)")
        ->check(CLI::IsMember({"plain", "shared"}));
    app.add_option("--transport", words.transport, "What onebit's messages go over: mpi or tcp (default mpi)")
        ->check(CLI::IsMember({"mpi", "tcp"}));
    app.add_option("-M,--mem-limit", words.mem_limit, "SIZE  The largest message allowed (default 512M)");
    const std::vector<std::string> codecs(kCodecNames.begin(), kCodecNames.end());
    app.add_option("--codec", words.codec, "What stands for an element: " + enumerate(codecs) + " (default sign)")
        ->check(CLI::IsMember(codecs));
    app.add_option("--kept", options.kept, "Of topk and randomk: how many of 4096 elements are sent (default 64)");
    app.add_option("--value-bits", options.value_bits,
                   "Of topk and randomk: bits for each of them, 8 or 2 (default 8)");
    if (!program.steps) {
        app.add_option("--matrix-rank", options.matrix_rank, "Of powersgd: directions, at most 64 (default 4)");
    }
    app.add_option("--error-type", words.error_type,
                   "What errors are kept in: float32, bfloat16 or int8 (default float32)")
        ->check(CLI::IsMember({"float32", "bfloat16", "int8"}));
    app.add_option("--scale", words.scale, "l1 or l2 (default l2)")->check(CLI::IsMember({"l1", "l2"}));
    app.add_option("--group", words.group, "Elements that share a scale: block or buffer (default block)")
        ->check(CLI::IsMember({"block", "buffer"}));
    if (!program.steps) {
        app.add_option("--rounding", words.rounding, "Of int8 and int4: nearest or stochastic (default nearest)")
            ->check(CLI::IsMember({"nearest", "stochastic"}));
    }
    app.add_option("--algorithm", words.algorithm,
                   enumerate(algorithms(program)) + " (default auto: the library's choice)")
        ->check(CLI::IsMember(algorithms(program)));
    if (averages_all) {
        app.add_option(
               "--levels", words.levels,
               "RANKS[:CODEC],...  Groups of so many ranks, then of so many groups, the smallest first: averages "
               "inside a group are exact or by a codec, and by --codec between the last ones")
            ->delimiter(',');
    }
    if (!program.steps) {
        app.add_option("--check", words.check,
                       "What each call makes sure of: full, none or full_low_memory (default full)")
            ->check(CLI::IsMember(std::vector<std::string>(kCheckNames.begin(), kCheckNames.end())));
    }
    app.add_option("--threads", options.threads, "threads of each rank (default ONEBIT_THREADS, else 1)")
        ->check(CLI::Range(1, 4096));
}

std::size_t place_of(const std::string& word, std::span<const char* const> names) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), word) - names.begin());
}

void read_words(const Words& words, const OsuProgram& program, OsuOptions& options) {
    if (!words.message_size.empty()) read_message_size(words.message_size, program, options);
    read_levels(words.levels, options);
    if (!words.mem_limit.empty()) options.mem_limit = require_bytes("--mem-limit", words.mem_limit);
    options.cuda = words.accelerator == "cuda";
    if (options.cuda && options.bfloat16) {
        throw CLI::ValidationError("--bf16", "it sums in the host's memory: not with --accelerator cuda");
    }
    options.tcp = words.transport == "tcp";
    options.shared = words.buffers == "shared";
    if (options.cuda && options.shared) {
        throw CLI::ValidationError("--buffers", "shared is the host's memory: not with --accelerator cuda");
    }
    options.datatype = static_cast<onebit_datatype_t>(place_of(words.datatype, kDatatypeNames));
    if (options.datatype != ONEBIT_FLOAT32 && (options.cuda || options.validation)) {
        throw CLI::ValidationError("--datatype", words.datatype +
                                                     " is in the host's memory, and not validated: not with "
                                                     "--accelerator cuda or --validation");
    }
    options.codec = static_cast<onebit_codec_t>(place_of(words.codec, kCodecNames));
    options.error_type = static_cast<onebit_datatype_t>(place_of(words.error_type, kDatatypeNames));
    options.scale = words.scale == "l2" ? ONEBIT_SCALE_L2 : ONEBIT_SCALE_L1;
    options.group = words.group == "buffer" ? ONEBIT_GROUP_BUFFER : ONEBIT_GROUP_BLOCK;
    options.rounding = words.rounding == "stochastic" ? ONEBIT_ROUNDING_STOCHASTIC : ONEBIT_ROUNDING_NEAREST;
    options.optimizer = static_cast<onebit_optimizer_kind_t>(place_of(words.optimizer, kOptimizerNames));
    options.algorithm = static_cast<onebit_algorithm_t>(place_of(words.algorithm, kAlgorithmNames));
    options.check = static_cast<onebit_check_t>(place_of(words.check, kCheckNames));
}

} // namespace

std::size_t iterations_for(const OsuOptions& options, std::size_t bytes) {
    return options.iterations.value_or(bytes > kLargeMessage ? 100 : 1000);
}

std::size_t warmup_for(const OsuOptions& options, std::size_t bytes) {
    return options.warmup.value_or(bytes > kLargeMessage ? 10 : 200);
}

std::optional<std::size_t> parse_bytes(const std::string& text) {
    std::size_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{}) return std::nullopt;
    if (rest == end) return number;
    if (rest + 1 != end) return std::nullopt;
    unsigned shift = 0;
    switch (*rest) {
        case 'k':
        case 'K':
            shift = 10;
            break;
        case 'm':
        case 'M':
            shift = 20;
            break;
        case 'g':
        case 'G':
            shift = 30;
            break;
        default:
            return std::nullopt;
    }
    if (number > std::numeric_limits<std::size_t>::max() >> shift) return std::nullopt;
    return number << shift;
}

std::optional<int> parse_options(int argc, const char* const* argv, const OsuProgram& program, OsuOptions& options,
                                 std::ostream& out, std::ostream& err) {
    CLI::App app(std::string("Latency of onebit's ") + program.collective +
                     ", in the manner of the OSU micro-benchmarks. Run it under mpirun.",
                 program.name);
    Words words;
    add_options(app, program, options, words);
    try {
        app.parse(argc, argv);
        read_words(words, program, options);
    } catch (const CLI::ParseError& error) {
        return app.exit(error, out, err) == 0 ? 0 : 1;
    }
    if (options.min_bytes > options.mem_limit) {
        err << "--mem-limit: even the smallest message, " << options.min_bytes << " bytes, is above the limit of "
            << options.mem_limit << " bytes\n";
        return 1;
    }
    if (options.max_bytes > options.mem_limit) {
        err << "# warning: messages end at " << options.mem_limit << " bytes, the memory limit (--mem-limit), not at "
            << options.max_bytes << "\n";
        options.max_bytes = options.mem_limit;
    }
    return std::nullopt;
}

} // namespace onebit::bench
