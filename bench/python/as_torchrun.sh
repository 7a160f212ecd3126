#!/bin/sh
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: mpirun ... as_torchrun.sh COMMAND...
# Sets what torchrun would set, for a rank that Open MPI's mpirun has started. MASTER_ADDR is the caller's to set.

export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE" MASTER_PORT=29511
exec "$@"
