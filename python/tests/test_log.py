# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import pytest
from ranks import on_ranks

import onebit


@pytest.fixture
def lines():
    """The log's lines from now on."""
    found = []
    onebit.set_log_callback(lambda level, text: found.append((level, text)))
    yield found
    onebit.set_log_callback(None)


def make_one(comm):
    onebit.Allreduce(comm, 777, algorithm="flat").close()


def test_a_callback_gets_rank_0s_lines(lines):
    on_ranks(2, make_one)
    ((level, text),) = lines
    assert level is onebit.LogLevel.INFO
    assert "777 elements over 2 ranks" in text and "\n" not in text


def test_nothing_comes_any_more(lines):
    onebit.set_log_callback(None)
    on_ranks(2, make_one)
    assert lines == []


def test_what_a_callback_raises_harms_nobody(monkeypatch):
    raised = []
    monkeypatch.setattr("sys.unraisablehook", lambda caught: raised.append(caught.exc_type))

    def broken(level, text):
        raise KeyError(text)

    onebit.set_log_callback(broken)
    try:
        on_ranks(1, make_one)
    finally:
        onebit.set_log_callback(None)
    assert raised == [KeyError]
