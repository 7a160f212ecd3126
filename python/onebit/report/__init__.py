# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how the ranks of a run average together, and writes a page that says whether compression pays there.

  torchrun --nproc_per_node 2 -m onebit.report
  mpirun -n 4 python -m onebit.report

Stages, a file each: `_ranks` (who takes part, and the average that they have without onebit), `_measure` (times),
`_advice` (what follows from them), `_page` (HTML).
"""
