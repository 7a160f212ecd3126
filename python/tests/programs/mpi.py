# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An allreduce and an optimizer over mpi4py. Prints "ok" on each rank; leaves all handles to the interpreter's end."""

import numpy as np
from mpi4py import MPI

import onebit

world = MPI.COMM_WORLD
comm = onebit.from_mpi4py(world)
assert (comm.rank, comm.size) == (world.rank, world.size)
assert comm.info.transport == "mpi"

values = np.random.default_rng(world.rank).standard_normal(10000).astype(np.float32)
result = onebit.Allreduce(comm, 10000, algorithm="dense").run(values, np.empty_like(values))
np.testing.assert_allclose(result, np.mean(world.allgather(values), axis=0), rtol=1e-5, atol=1e-6)

allreduce = onebit.Allreduce(comm, 10000, algorithm="flat")
allreduce.start(values, result)
while not allreduce.test():
    pass
assert len(set(world.allgather(result.tobytes()))) == 1

parameters = np.zeros(10000, np.float32)
optimizer = onebit.Optimizer(comm, "onebit_adam", [(parameters, values)], freeze_step=2)
for _ in range(4):
    optimizer.step()
assert len(set(world.allgather(parameters.tobytes()))) == 1

small = comm.empty(5000)
small[:] = world.rank
del small
print("ok", flush=True)
