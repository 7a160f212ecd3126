# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds what the library needs; nothing is downloaded. Sets ONEBIT_MPIEXEC_FLAGS: what this MPI's mpirun needs so that
# tests may have more ranks than cores, as root too; and ONEBIT_MPI_NAME: openmpi or mpich, as far as that can be seen.

if(NOT ONEBIT_MPI STREQUAL "auto")
    find_program(MPI_C_COMPILER mpicc.${ONEBIT_MPI} REQUIRED)
    find_program(MPIEXEC_EXECUTABLE mpirun.${ONEBIT_MPI} REQUIRED)
endif()
find_package(MPI REQUIRED COMPONENTS C)

execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec_version ERROR_QUIET)
set(ONEBIT_MPIEXEC_FLAGS "")
set(ONEBIT_MPI_NAME mpich)
if(mpiexec_version MATCHES "Open MPI|OpenRTE")
    set(ONEBIT_MPI_NAME openmpi)
    list(APPEND ONEBIT_MPIEXEC_FLAGS --oversubscribe)
    execute_process(COMMAND id -u OUTPUT_VARIABLE user_id OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(user_id EQUAL 0)
        list(APPEND ONEBIT_MPIEXEC_FLAGS --allow-run-as-root)
    endif()
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED libxxhash) # its header alone
pkg_check_modules(HWLOC REQUIRED hwloc>=2.1) # its header alone: the library is loaded at run time
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
