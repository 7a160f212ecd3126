# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What is no communicator, and what is asked after MPI_Finalize, is refused on every rank. Prints "ok" on each."""

import numpy as np
from mpi4py import MPI

import onebit

for wrong in (None, MPI.COMM_NULL, 7):
    try:
        onebit.from_mpi4py(wrong)
    except onebit.InvalidArgument as error:
        assert "a communicator of mpi4py wanted" in str(error), error
    else:
        raise AssertionError(f"{wrong} was taken")
comm = onebit.from_mpi4py(MPI.COMM_WORLD)
rank = comm.rank
values = np.ones(1000, np.float32)
allreduce = onebit.Allreduce(comm, 1000, algorithm="flat")
optimizer = onebit.Optimizer(comm, "onebit_adam", [(np.zeros(1000, np.float32), values)])
allreduce.run(values)
optimizer.step()
MPI.Finalize()
for call in (
    lambda: allreduce.run(values),
    optimizer.step,
    lambda: onebit.Allreduce(comm, 1000),
    lambda: onebit.from_mpi4py(MPI.COMM_WORLD),
):
    try:
        call()
    except onebit.Error as error:
        assert "MPI_Finalize has" in str(error), error
    else:
        raise AssertionError("not refused")
for handle in (allreduce, optimizer, comm):
    handle.close()
print(f"ok {rank}", flush=True)
