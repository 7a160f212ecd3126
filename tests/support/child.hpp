// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A piece of a test in a child process. The child may hang, or change a state that exists once in a process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace onebit_test {

// Runs body() in a forked child. Returns body()'s error text and the child's bad end; "" without errors. A child that
// takes more than 20 seconds is ended.
template <typename Body>
std::string in_child(const Body& body) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child < 0) return "no child";
    if (child == 0) {
        alarm(20);
        close(ends[0]);
        const std::string wrong = body();
        const bool told = write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    std::string wrong;
    char text[256];
    for (ssize_t bytes = 0; (bytes = read(ends[0], text, sizeof text)) > 0;)
        wrong.append(text, static_cast<std::size_t>(bytes));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) wrong += " signal " + std::to_string(WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) wrong += " exit " + std::to_string(WEXITSTATUS(status));
    return wrong;
}

} // namespace onebit_test
