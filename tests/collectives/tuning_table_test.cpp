// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Tuning tables named by ONEBIT_TUNING, written by hand: the choices that a handle makes by them, and the refusal of
// bad ones. And ranks that vanish while others tune. In one process: all ranks share the environment.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// A file that exists as long as this object.
class TableFile {
  public:
    explicit TableFile(const std::string& text) {
        close(mkstemps(path_.data(), 11));
        std::ofstream(path_) << text;
    }
    ~TableFile() { std::remove(path_.c_str()); }
    TableFile(const TableFile&) = delete;
    TableFile& operator=(const TableFile&) = delete;
    const char* path() const { return path_.c_str(); }

  private:
    std::string path_ = (std::filesystem::temp_directory_path() / "onebit-XXXXXX-table.json").string();
};

// The results of creating communicators with a table, and AUTO handles on them.
struct Choice {
    onebit_status_t status = ONEBIT_SUCCESS;
    std::string message;
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
};

Choice choose(const std::string& table, std::uint64_t count, int ranks = 2, onebit_codec_t codec = ONEBIT_CODEC_SIGN) {
    const TableFile file(table);
    const Variable tuning("ONEBIT_TUNING", file.path());
    std::vector<onebit_comm_t> comms(static_cast<std::size_t>(ranks));
    Choice choice;
    choice.status = onebit_comm_create_loopback(ranks, comms.data());
    choice.message = onebit_last_error();
    if (choice.status != ONEBIT_SUCCESS) return choice;
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < comms.size(); ++r) {
        threads.emplace_back([&, r] {
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
            config.codec = codec;
            onebit_allreduce_t allreduce = nullptr;
            onebit_allreduce_create(comms[r], &config, &allreduce);
            if (r == 0) onebit_allreduce_get_info(allreduce, &choice.info);
            onebit_allreduce_destroy(allreduce);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (onebit_comm_t comm : comms) onebit_comm_destroy(comm);
    return choice;
}

std::string table(const std::string& rows, const std::string& head = R"("version": 1, "ranks": 2, "nodes": 1)") {
    return R"({"format": "onebit tuning table", )" + head + R"(, "rows": [)" + rows + "]}";
}

// With costs of codecs, beside rows (SIGN's costs) or alone.
std::string table_of_codecs(const std::string& codecs, const std::string& rows = "") {
    return R"({"format": "onebit tuning table", "version": 1, "ranks": 2, "nodes": 1, )" +
           (rows.empty() ? "" : "\"rows\": [" + rows + "], ") + "\"codecs\": " + codecs + "}";
}

// Compressed is the quicker one of few elements and the slower one of many: the reverse of any estimate.
const std::string kReversed =
    table(R"({"count": 100, "dense": 30, "pipelined": 10}, {"count": 1100, "dense": 40, "pipelined": 50})");

} // namespace

TEST_CASE("a ring is taken where a table says that it is quickest, nowhere else", "[tuning]") {
    const Variable node_size("ONEBIT_NODE_SIZE", "1"); // each rank counts as a node
    const std::string rows = R"({"count": 9, "dense": 9, "pipelined": 3, "ring": 3},)"
                             R"( {"count": 90000, "dense": 900, "pipelined": 500, "ring": 400})";
    const Choice tuned = choose(table(rows, R"("version": 1, "ranks": 9, "nodes": 9)"), 80000, 9);
    REQUIRE(tuned.status == ONEBIT_SUCCESS);
    CHECK(tuned.info.algorithm == ONEBIT_ALGORITHM_RING);
    CHECK_THAT(tuned.info.reason, ContainsSubstring("ring ") && ContainsSubstring("(tuned)"));
    const Choice few = choose(table(rows, R"("version": 1, "ranks": 8, "nodes": 8)"), 80000, 8); // one switch will do
    CHECK(few.info.algorithm == ONEBIT_ALGORITHM_PIPELINED);
    const Choice estimated = choose(table(rows), 80000, 9); // the table is for other ranks
    CHECK(estimated.info.algorithm == ONEBIT_ALGORITHM_PIPELINED);
    CHECK_THAT(estimated.info.reason, ContainsSubstring("(estimated") && !ContainsSubstring("ring"));
}

TEST_CASE("a table decides, by straight lines between its rows", "[tuning]") {
    struct {
        std::uint64_t count;
        onebit_algorithm_t expected;
        const char* reason;
    } const rows[] = {
        {2, ONEBIT_ALGORITHM_PIPELINED, "dense 30 us, pipelined 10 us"},   // before the first row: as there
        {600, ONEBIT_ALGORITHM_PIPELINED, "dense 35 us, pipelined 30 us"}, // half-way
        {850, ONEBIT_ALGORITHM_DENSE, "dense 37.5 us, pipelined 40 us"},   // three quarters
        {2100, ONEBIT_ALGORITHM_DENSE, "dense 50 us, pipelined 90 us"},    // beyond the last: straight on
    };
    for (const auto& row : rows) {
        CAPTURE(row.count);
        const Choice choice = choose(kReversed, row.count);
        CHECK(choice.info.algorithm == row.expected);
        CHECK_THAT(choice.info.reason, ContainsSubstring(row.reason) && ContainsSubstring("(tuned)"));
    }
}

TEST_CASE("a table without a form never chooses it", "[tuning]") {
    CHECK(choose(table(R"({"count": 100, "dense": 30})"), 1000000).info.algorithm == ONEBIT_ALGORITHM_DENSE);
}

TEST_CASE("each codec goes by its own rows of a table", "[tuning][codec]") {
    const std::string slow = R"({"count": 100, "dense": 30, "pipelined": 90})";
    const std::string quick = R"({"count": 100, "dense": 30, "pipelined": 10})";
    const auto source_of = [](const std::string& text, onebit_codec_t codec) {
        const Choice choice = choose(text, 100, 2, codec);
        REQUIRE(choice.status == ONEBIT_SUCCESS);
        return std::string(choice.info.reason);
    };
    const std::string both = table_of_codecs(R"({"ONEBIT_CODEC_INT8": [)" + quick + "]}", slow);
    CHECK(choose(both, 100).info.algorithm == ONEBIT_ALGORITHM_DENSE);
    CHECK(choose(both, 100, 2, ONEBIT_CODEC_INT8).info.algorithm == ONEBIT_ALGORITHM_PIPELINED);
    CHECK_THAT(source_of(both, ONEBIT_CODEC_SIGN), ContainsSubstring("pipelined 90 us (tuned)"));
    CHECK_THAT(source_of(both, ONEBIT_CODEC_INT8), ContainsSubstring("pipelined 10 us (tuned)"));
    CHECK_THAT(source_of(both, ONEBIT_CODEC_INT4), ContainsSubstring("(estimated)"));
    const std::string alone =
        table_of_codecs(R"({"ONEBIT_CODEC_TOPK": [)" + quick + R"(], "ONEBIT_CODEC_FP4": [)" + slow + "]}");
    CHECK_THAT(source_of(alone, ONEBIT_CODEC_SIGN), ContainsSubstring("(estimated)"));
    CHECK_THAT(source_of(alone, ONEBIT_CODEC_TOPK), ContainsSubstring("pipelined 10 us (tuned)"));
    CHECK_THAT(source_of(alone, ONEBIT_CODEC_FP4), ContainsSubstring("pipelined 90 us (tuned)"));
    CHECK_THAT(choose(alone, 100, 3, ONEBIT_CODEC_FP4).info.reason, ContainsSubstring("2 ranks on 1 node"));
}

TEST_CASE("a table of other ranks or nodes is left aside, and that is said", "[tuning][bad input]") {
    for (const char* head : {R"("version": 1, "ranks": 4, "nodes": 1)", R"("version": 1, "ranks": 2, "nodes": 2)"}) {
        const Choice choice = choose(table(R"({"count": 100, "dense": 30, "pipelined": 10})", head), 64);
        CHECK(choice.status == ONEBIT_SUCCESS);
        CHECK(choice.info.algorithm == ONEBIT_ALGORITHM_DENSE); // the estimate
        CHECK_THAT(choice.info.reason, ContainsSubstring("estimated, for the tuning table is for"));
    }
    CHECK_THAT(choose(kReversed, 64, 3).info.reason, ContainsSubstring("2 ranks on 1 node"));
}

TEST_CASE("what is no table is refused with the file's name and the flaw", "[tuning][bad input]") {
    const std::string row = R"({"count": 100, "dense": 30, "pipelined": 10})";
    struct {
        std::string text;
        const char* flaw;
    } const files[] = {
        {"", "not JSON"},
        {kReversed.substr(0, kReversed.size() / 2), "not JSON"},
        {std::string("\0\1\2", 3), "not JSON"},
        {"[1, 2]", "format"},
        {R"({"version": 1})", "format"},
        {R"({"format": "another's"})", "format"},
        {table(row, R"("version": 2, "ranks": 2, "nodes": 1)"), "version 2"},
        {table(row, R"("version": "1", "ranks": 2, "nodes": 1)"), "version"},
        {table(row, R"("version": 1, "nodes": 1)"), "ranks"},
        {table(row, R"("version": 1, "ranks": 0, "nodes": 1)"), "\"ranks\" is 0"},
        {table(row, R"("version": 1, "ranks": 2, "nodes": -1)"), "\"nodes\" is -1"},
        {table(""), "rows"},
        {R"({"format": "onebit tuning table", "version": 1, "ranks": 2, "nodes": 1, "rows": 7})", "rows"},
        {table("7"), "count"},
        {table(std::string(500000, '[') + std::string(500000, ']')), "count"}, // no stack is so deep
        {table(R"({"dense": 30})"), "count"},
        {table(R"({"count": 1.5, "dense": 30})"), "\"count\" is not a whole number"},
        {table(R"({"count": true, "dense": 30})"), "count"},
        {table(R"({"count": 0, "dense": 30})"), "\"count\" is 0"},
        {table(R"({"count": 100, "pipelined": 30})"), "dense"},
        {table(R"({"count": 100, "dense": -1})"), "\"dense\" of 100 elements"},
        {table(R"({"count": 100, "dense": "quick"})"), "dense"},
        {table(row + R"(, {"count": 200, "dense": 1})"), "pipelined"},
        {table(row + ", " + row), "does not grow"},
        {table_of_codecs("7", row), "\"codecs\" is empty or not an object"},
        {table_of_codecs("{}", row), "\"codecs\" is empty"},
        {table_of_codecs("[" + row + "]"), "\"codecs\" is empty or not an object"},
        {table_of_codecs(R"({"ONEBIT_CODEC_INT9": [)" + row + "]}"), "\"ONEBIT_CODEC_INT9\", which is none of them"},
        {table_of_codecs(R"({"ONEBIT_CODEC_SIGN": [)" + row + "]}"), "\"ONEBIT_CODEC_SIGN\", which is none of them"},
        {table_of_codecs(R"({"ONEBIT_CODEC_INT8": []})"), "\"ONEBIT_CODEC_INT8\" is empty or not a list"},
        {table_of_codecs(R"({"ONEBIT_CODEC_INT8": [)" + row + "]}", row + ", " + row), "does not grow"},
        {table_of_codecs(R"({"ONEBIT_CODEC_INT8": [)" + row + "," + row + "]}", row), "does not grow"},
        {table_of_codecs(R"({"ONEBIT_CODEC_INT8": [{"count": 100}]})"), "dense"},
    };
    for (const auto& file : files) {
        CAPTURE(file.text.substr(0, 200));
        const Choice choice = choose(file.text, 64);
        CHECK(choice.status == ONEBIT_ERROR_BAD_STATE);
        CHECK_THAT(choice.message, ContainsSubstring("table.json") && ContainsSubstring(file.flaw));
    }
    const Variable tuning("ONEBIT_TUNING", "/no such file.json");
    onebit_comm_t comm = nullptr;
    CHECK(onebit_comm_create_loopback(1, &comm) == ONEBIT_ERROR_IO);
    CHECK_THAT(onebit_last_error(), ContainsSubstring("/no such file.json"));
}

TEST_CASE("a table's numbers must be what JSON calls them, and of this world", "[tuning][bad input]") {
    const auto head = [](const char* version, const char* ranks, const char* nodes) {
        return std::string("\"version\": ") + version + ", \"ranks\": " + ranks + ", \"nodes\": " + nodes;
    };
    const std::string row = R"({"count": 100, "dense": 30, "pipelined": 10})";
    REQUIRE(choose(table(row, head("1", "2", "1")), 64).status == ONEBIT_SUCCESS);
    for (const char* wrong : {"1.9",
                              "1.0",
                              "true",
                              "false",
                              "null",
                              "0",
                              "-1",
                              "\"1\"",
                              "[1]",
                              "{}",
                              "1e0",
                              "1e20",
                              "-1e20",
                              "1e308",
                              "4294967297",
                              "281474976710657",
                              "9223372036854775808",
                              "18446744073709551615",
                              "18446744073709551616",
                              "-9223372036854775808"}) {
        CAPTURE(wrong);
        struct {
            std::string text;
            const char* culprit;
        } const files[] = {
            {table(row, head(wrong, "2", "1")), "version"},
            {table(row, head("1", wrong, "1")), "\"ranks\""},
            {table(row, head("1", "2", wrong)), "\"nodes\""},
            {table(std::string(R"({"dense": 30, "count": )") + wrong + "}"), "\"count\""},
        };
        for (const auto& file : files) {
            if (std::string(wrong) == "4294967297" && file.culprit != std::string("version")) continue; // allowed there
            const Choice choice = choose(file.text, 64);
            CHECK(choice.status == ONEBIT_ERROR_BAD_STATE);
            CHECK_THAT(choice.message, ContainsSubstring("table.json") && ContainsSubstring(file.culprit));
        }
    }
    for (const char* wrong :
         {"true", "null", "0", "0.0", "-0.0", "-1", "1e16", "1e308", "1e-400", "\"30\"", "[30]", "{}"}) {
        CAPTURE(wrong);
        const Choice choice = choose(table(std::string(R"({"count": 100, "dense": )") + wrong + "}"), 64);
        CHECK(choice.status == ONEBIT_ERROR_BAD_STATE);
        CHECK_THAT(choice.message, ContainsSubstring("\"dense\""));
    }
}

TEST_CASE("what is no regular file is no table, and blocks nobody", "[tuning][bad input]") {
    const std::string folder = std::filesystem::temp_directory_path() / ("onebit-fifo-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    const std::string fifo = folder + "/table.json";
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    for (const std::string& name : {fifo, folder, std::string("/dev/zero")}) {
        CAPTURE(name);
        const Variable tuning("ONEBIT_TUNING", name.c_str());
        onebit_comm_t comm = nullptr;
        CHECK(onebit_comm_create_loopback(1, &comm) == ONEBIT_ERROR_IO);
        CHECK_THAT(onebit_last_error(), ContainsSubstring(name) && ContainsSubstring("not a regular file"));
    }
    std::filesystem::remove_all(folder);
}

TEST_CASE("a rank that vanishes during tuning ends it on the others", "[tuning][bad input]") {
    const Variable timeout("ONEBIT_TIMEOUT", "1");
    for (const bool leaves : {false, true}) {
        CAPTURE(leaves);
        onebit_comm_t comms[2] = {};
        REQUIRE(onebit_comm_create_loopback(2, comms) == ONEBIT_SUCCESS);
        std::thread other([&] {
            if (leaves) { // in the middle, as far as the other can tell: after a call of its own that was refused
                onebit_comm_tune(comms[1], 1000, -1, nullptr);
                onebit_comm_destroy(comms[1]);
            }
        });
        onebit_status_t status = onebit_comm_tune(comms[0], 1000, 0.1, nullptr);
        if (leaves) { // refused together; the next call meets no other rank
            CHECK(status == ONEBIT_ERROR_INVALID_ARGUMENT);
            status = onebit_comm_tune(comms[0], 1000, 0.1, nullptr);
        }
        CHECK((status == ONEBIT_ERROR_TIMEOUT || status == ONEBIT_ERROR_TRANSPORT));
        CHECK(onebit_comm_tune(comms[0], 1000, 0.1, nullptr) == status);
        CHECK_THAT(onebit_last_error(), ContainsSubstring("broken"));
        other.join();
        CHECK(onebit_comm_destroy(comms[0]) == ONEBIT_SUCCESS);
        if (!leaves) CHECK(onebit_comm_destroy(comms[1]) == ONEBIT_SUCCESS);
    }
}
