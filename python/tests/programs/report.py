# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit-report; a rank that is named by ODD_RANK has the options in ODD_OPTIONS as well.

INTERRUPTED_BY=NUMBER: the first rank gets that signal when its second size begins.
"""

import os
import sys

from onebit.report import __main__ as command

command._on_signals(command._interrupt)
arguments = sys.argv[1:]
if os.environ.get("ODD_RANK") == os.environ["RANK"]:
    arguments += os.environ["ODD_OPTIONS"].split()
if "INTERRUPTED_BY" in os.environ and os.environ["RANK"] == "0":
    show = command._show

    def interrupt(done, of):
        show(done, of)
        if done == 1:
            os.kill(os.getpid(), int(os.environ["INTERRUPTED_BY"]))

    command._show = interrupt
try:
    status = command.main(arguments)
except SystemExit as error:
    status = error.code
print("ends with", status, flush=True)
sys.stderr.flush()
os._exit(0)  # peers may be gone
