// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Files that are replaced, and their locks. Other objects with a file's name are refused, and links are never followed.
// Names may be as long as the system allows. No temporary file is left.
#include "core/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/file_lock.hpp"
#include "support/catch2.hpp"

using namespace onebit;
namespace fs = std::filesystem;

namespace {

class Folder {
  public:
    Folder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
    ~Folder() { fs::remove_all(path_); }
    std::string file(const std::string& name) const { return path_ + "/" + name; }
    std::set<std::string> names() const {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(path_)) names.insert(entry.path().filename().string());
        return names;
    }

  private:
    std::string path_ = (fs::temp_directory_path() / "onebit-files-XXXXXX").string();
};

std::string contents(const std::string& name) {
    std::ifstream file(name);
    return {std::istreambuf_iterator<char>(file), {}};
}

Status write_whole(const std::string& name, const std::string& text) {
    ReplacedFile file(name);
    ONEBIT_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
    ONEBIT_RETURN_IF_ERROR(file.replace());
    file.keep();
    return {};
}

} // namespace

TEST_CASE("a name of any length that the system has is replaced again and again", "[file]") {
    const Folder folder;
    for (const std::size_t length : {1U, 200U, 245U, 246U, 247U, 254U, 255U}) {
        CAPTURE(length);
        const std::string base(length, 'n');
        const std::string name = folder.file(base);
        for (const char* text : {"first", "second", "third"}) {
            REQUIRE(write_whole(name, text).message() == "");
            CHECK(contents(name) == text);
        }
        CHECK(fs::path(ReplacedFile::previous_name(name)).filename().string().size() <= 255);
        CHECK(ReplacedFile::previous_name(name) != name);
        CHECK(folder.names() == std::set<std::string>{base});
        fs::remove(name);
    }
    const Status too_long = write_whole(folder.file(std::string(256, 'n')), "x");
    CHECK(too_long.code() == ONEBIT_ERROR_IO);
    CHECK_THAT(too_long.message(), EndsWith("File name too long"));
    CHECK(folder.names().empty());
}

TEST_CASE("a message keeps the system's reason, whatever the path", "[file]") {
    std::vector<std::byte> bytes;
    const std::string path = "/nowhere/" + std::string(200, 'a') + "/" + std::string(200, 'b') + "/the-file";
    const Status status = read_file(path, 1, &bytes);
    CHECK(status.message().size() < 200);
    CHECK_THAT(status.message(), ContainsSubstring("the-file: No such file or directory"));
}

TEST_CASE("what is no regular file is refused at once", "[file]") {
    const Folder folder;
    const std::string fifo = folder.file("fifo");
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    for (const std::string& name : {fifo, folder.file(""), std::string("/dev/null"), std::string("/dev/tty")}) {
        CAPTURE(name);
        InputFile file;
        CHECK(file.open(name).code() == ONEBIT_ERROR_IO);
        CHECK_FALSE(file.is_open());
    }
    CHECK(write_whole(fifo, "x").code() == ONEBIT_ERROR_IO);
    CHECK(folder.names() == std::set<std::string>{"fifo"});
}

TEST_CASE("no symbolic link is followed to write", "[file]") {
    const Folder folder;
    const std::string name = folder.file("state"), secret = folder.file("secret");
    std::ofstream(secret) << "untouched";
    fs::create_symlink(secret, name);
    CHECK(write_whole(name, "x").code() == ONEBIT_ERROR_IO);
    CHECK(contents(secret) == "untouched");
    fs::remove(name);
    REQUIRE(write_whole(name, "one").ok());
    fs::create_symlink(secret, ReplacedFile::previous_name(name));
    CHECK(write_whole(name, "two").ok());
    CHECK(contents(secret) == "untouched");
    CHECK(contents(name) == "two");
    FileLock lock;
    fs::create_symlink(secret, folder.file("lock"));
    CHECK(lock.take(folder.file("lock")).code() == ONEBIT_ERROR_IO);
    CHECK(contents(secret) == "untouched");
}

TEST_CASE("new files are their owner's alone, and of names that nobody foresees", "[file]") {
    const Folder folder;
    std::set<std::string> unfinished;
    const std::string text = "x";
    for (int i = 0; i < 3; ++i) {
        ReplacedFile file(folder.file("state"));
        REQUIRE(file.write(std::as_bytes(std::span(text))).ok());
        REQUIRE(folder.names().size() == 1);
        const std::string name = *folder.names().begin();
        CHECK(name.starts_with(".onebit-"));
        unfinished.insert(name);
        struct stat information {};
        REQUIRE(stat(folder.file(name).c_str(), &information) == 0);
        CHECK((information.st_mode & 077) == 0);
    }
    CHECK(unfinished.size() == 3);
    CHECK(folder.names().empty()); // they were given up
}

TEST_CASE("leftovers of writers that died don't pile up", "[file]") {
    const Folder folder;
    const std::string text = "x";
    std::string left;
    {
        ReplacedFile file(folder.file("state"));
        REQUIRE(file.write(std::as_bytes(std::span(text))).ok());
        left = *folder.names().begin();
    }
    std::ofstream(folder.file(left)) << "died"; // again
    std::ofstream(folder.file(left + "0")) << "died";
    std::ofstream(folder.file(".onebit-0123456789abcdef-0")) << "another file's";
    REQUIRE(write_whole(folder.file("state"), "x").ok());
    CHECK(folder.names() == std::set<std::string>{"state", ".onebit-0123456789abcdef-0"});
}

TEST_CASE("a lock tells who holds it, and is gone with its holder", "[file]") {
    const Folder folder;
    const std::string name = folder.file("state.lock");
    std::ofstream(name) << "host gone, process 1, since long ago"; // of a dead job
    CHECK(FileLock::check_free(name).ok());
    {
        FileLock first;
        REQUIRE(first.take(name).message() == "");
        FileLock second;
        const Status refused = second.take(name);
        CHECK(refused.code() == ONEBIT_ERROR_IO);
        CHECK_THAT(refused.message(), ContainsSubstring("state.lock") && ContainsSubstring("host ") &&
                                          ContainsSubstring("process " + std::to_string(getpid())) &&
                                          ContainsSubstring("since 20"));
        CHECK(FileLock::check_free(name).message() == refused.message());
    }
    CHECK(folder.names().empty());
    CHECK(FileLock::check_free(name).ok());
    FileLock third;
    CHECK(third.take(name).ok());
}
