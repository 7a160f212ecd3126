# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A training with sharded parameters, over mpi4py, or where there are arguments over TCP. Prints "ok" on each rank.

    shards.py [RANK SIZE FOLDER]
"""

import sys

import numpy as np

import onebit

COUNT, STEPS = 6000, 60

if len(sys.argv) > 1:
    comm = onebit.from_folder(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    assert comm.info.transport == "tcp"
else:
    from mpi4py import MPI

    comm = onebit.from_mpi4py(MPI.COMM_WORLD)

counts = [COUNT // comm.size] * comm.size
counts[0] += 100
counts[-1] -= sum(counts) - COUNT
reduce_scatter = onebit.ReduceScatter(comm, COUNT, counts=counts, algorithm="pipelined", codec="int8")
all_gather = onebit.AllGather(comm, COUNT, counts=counts, algorithm="dense")
assert reduce_scatter.info.transport == comm.info.transport

goals = [np.random.default_rng(rank).standard_normal(COUNT).astype(np.float32) for rank in range(comm.size)]
parameters = np.zeros(COUNT, np.float32)
mine = parameters[reduce_scatter.shard]
gradient = np.empty_like(mine)
for step in range(STEPS):
    if step % 2:
        reduce_scatter.run(parameters - goals[comm.rank], gradient)
    else:
        reduce_scatter.start(parameters - goals[comm.rank], gradient)
        while not reduce_scatter.test():
            pass
    mine -= 0.2 * gradient
    all_gather.run(mine, parameters)  # in place
np.testing.assert_allclose(parameters, np.mean(goals, axis=0), atol=0.02)

# The same on all ranks: what they send differs from their average by nothing.
shard = np.empty_like(mine)
onebit.ReduceScatter(comm, COUNT, counts=counts, algorithm="dense").run(parameters, shard)
np.testing.assert_allclose(shard, mine, rtol=1e-6)
print("ok", flush=True)
