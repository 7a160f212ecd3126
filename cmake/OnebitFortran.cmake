# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# onebit_fortran: the Fortran module, for the example and the test in Fortran. ONEBIT_HAS_FORTRAN: whether there are a
# Fortran compiler and an MPI for it. Users compile the module themselves, with their own compiler.

set(ONEBIT_HAS_FORTRAN OFF)
if(NOT ONEBIT_EXAMPLES AND NOT ONEBIT_TESTS)
    return()
endif()
include(CheckLanguage)
check_language(Fortran)
if(CMAKE_Fortran_COMPILER)
    enable_language(Fortran)
    # Only the MPI that the C compiler uses.
    if(ONEBIT_MPI STREQUAL "auto")
        get_filename_component(ONEBIT_MPI_BIN "${MPI_C_COMPILER}" DIRECTORY)
        find_program(MPI_Fortran_COMPILER NAMES mpifort mpif90 HINTS "${ONEBIT_MPI_BIN}" NO_DEFAULT_PATH)
    else()
        find_program(MPI_Fortran_COMPILER mpif90.${ONEBIT_MPI})
    endif()
    if(MPI_Fortran_COMPILER)
        find_package(MPI COMPONENTS Fortran)
    endif()
endif()
if(NOT MPI_Fortran_FOUND OR NOT MPI_Fortran_HAVE_F08_MODULE)
    message(STATUS "onebit: nothing in Fortran will be built: it needs a compiler, and an MPI with mpi_f08 for it")
    return()
endif()
set(ONEBIT_HAS_FORTRAN ON)
add_library(onebit_fortran STATIC EXCLUDE_FROM_ALL c_api/fortran/onebit.f90)
target_include_directories(onebit_fortran INTERFACE ${CMAKE_CURRENT_BINARY_DIR})
target_link_libraries(onebit_fortran PUBLIC onebit::mpi MPI::MPI_Fortran)
