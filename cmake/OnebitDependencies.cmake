# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds the library's dependencies; nothing is downloaded. Sets ONEBIT_MPIS (openmpi, mpich, both or none) and for each
# MPI onebit_mpi_of_NAME (its target). If there is one MPI, also sets ONEBIT_MPI_NAME and ONEBIT_MPIEXEC_FLAGS: the
# options with which its mpirun starts more ranks than cores, also as root.

find_package(PkgConfig REQUIRED)

# The MPI that programs are built and run with, by CMake's own search.
macro(onebit_find_one_mpi)
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
    set(ONEBIT_MPIS ${ONEBIT_MPI_NAME})
    set(onebit_mpi_of_${ONEBIT_MPI_NAME} MPI::MPI_C)
endmacro()

# All MPIs that pkg-config knows, as CMake's search finds only one.
macro(onebit_find_each_mpi)
    set(ONEBIT_MPIS "")
    pkg_check_modules(OPENMPI QUIET IMPORTED_TARGET ompi-c)
    pkg_check_modules(MPICH QUIET IMPORTED_TARGET mpich)
    foreach(name openmpi mpich)
        string(TOUPPER ${name} prefix)
        if(${prefix}_FOUND)
            list(APPEND ONEBIT_MPIS ${name})
            set(onebit_mpi_of_${name} PkgConfig::${prefix})
            message(STATUS "onebit: library for ${name} ${${prefix}_VERSION}")
        else()
            message(STATUS "onebit: no library for ${name}: pkg-config doesn't know it")
        endif()
    endforeach()
endmacro()

if(NOT ONEBIT_MPI STREQUAL "each")
    onebit_find_one_mpi()
elseif(ONEBIT_TESTS OR ONEBIT_EXAMPLES)
    message(FATAL_ERROR "ONEBIT_MPI=each makes libraries, tools and OSU-style benchmarks. Tests and examples need one "
                        "MPI: set ONEBIT_TESTS and ONEBIT_EXAMPLES to OFF, or ONEBIT_MPI to auto, openmpi or mpich")
else()
    onebit_find_each_mpi()
endif()

pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED libxxhash) # only its header
pkg_check_modules(HWLOC REQUIRED hwloc>=2.1) # only its header: the library is loaded at run time
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
