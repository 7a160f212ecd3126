# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The log's lines for Python."""

import atexit
from typing import Callable, List, Optional

from onebit import _c
from onebit._library import library
from onebit._values import LogLevel

# The library may be about to call one that has been replaced, so all are kept.
_callbacks: List[_c.Log] = []


def set_log_callback(callback: Optional[Callable[[LogLevel, str], None]]) -> None:
    """Calls `callback(level, text)` for each line of the log, in place of stderr and with any value of ONEBIT_LOG.

    Lines are rank 0's, of all communicators of this process. They come from the thread whose call logs them, during the
    call. An exception that `callback` raises is printed and dropped. None: stderr again, if ONEBIT_LOG=1.

    With the module logging:
        onebit.set_log_callback(lambda level, text: logging.getLogger("onebit").log(20 + 10 * level, text))
    """
    if callback is None:
        library.onebit_set_log_callback(_c.Log(), None)
        return

    def called(_context, level, text):
        known = level in LogLevel._value2member_map_
        callback(LogLevel(level) if known else LogLevel.WARNING, text.decode(errors="replace"))

    _callbacks.append(_c.Log(called))
    library.onebit_set_log_callback(_callbacks[-1], None)


atexit.register(set_log_callback, None)
