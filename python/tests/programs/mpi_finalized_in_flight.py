# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""MPI_Finalize while operations are under way: each call that follows is refused, and none waits. Prints "ok" on each.

    mpi_finalized_in_flight.py ALGORITHM started|waiting

started: nobody waits in them yet. waiting: all ranks but the last wait, in threads of their own.
"""

import os
import sys
import threading

import numpy as np
from mpi4py import MPI

import onebit

ALGORITHM, HOW = sys.argv[1:]
os.environ["ONEBIT_NODE_SIZE"] = "2" if ALGORITHM == "two_level" else "1"
comm = onebit.from_mpi4py(MPI.COMM_WORLD)
values = np.ones(1000, np.float32)
allreduce = onebit.Allreduce(comm, 1000, algorithm=ALGORITHM)
assert allreduce.info.algorithm is onebit.Algorithm[ALGORITHM.upper()]
optimizer = onebit.Optimizer(comm, "onebit_adam", [(np.zeros(1000, np.float32), values)])
allreduce.run(values)
optimizer.step()


def refused(call):
    try:
        call()
    except onebit.Error as error:
        assert "MPI_Finalize" in str(error), error
    else:
        raise AssertionError("not refused")


last = comm.rank == comm.size - 1
thread = threading.Thread(target=refused, args=(lambda: allreduce.run(values),))
if HOW == "started":
    allreduce.start(values)
    optimizer.step_start()
elif not last:  # which never comes
    thread.start()
    thread.join(0.5)
MPI.Finalize()
if HOW == "started":
    for call in (allreduce.wait, allreduce.test, optimizer.step_wait, optimizer.step_test, comm.progress):
        refused(call)
elif not last:
    thread.join()
for handle in (allreduce, optimizer, comm):
    handle.close()
print(f"ok {comm.rank}", flush=True)
