# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests. ONEBIT_LIBRARY names the library; without it, that of build/release is taken."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("ONEBIT_LIBRARY", str(ROOT / "build/release/libonebit.so"))
os.environ.setdefault("ONEBIT_TIMEOUT", "30")  # a test in which a rank fails ends
