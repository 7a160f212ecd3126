# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# `cmake --install`: the library, the library of each MPI, the headers, the Fortran module's source, a CMake package
# (find_package(onebit)), pkg-config files, and the Python package in ONEBIT_PYTHON_DIR.
#
# Components: `library` and `openmpi` or `mpich`, which a compiled program needs; `development`, `fortran` (the
# module's source, for any compiler), `tools_NAME` (tools/), `benchmarks_NAME` (osu_onebit_...) and `python`. A
# wheel has the first three; each component is one Debian package (OnebitPackages.cmake).

include(CMakePackageConfigHelpers)

install(TARGETS onebit EXPORT onebit
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
foreach(name IN LISTS ONEBIT_MPIS)
    # With ONEBIT_MPI=each, onebitConfig.cmake chooses the library that onebit::mpi stands for.
    set(export)
    if(NOT ONEBIT_MPI STREQUAL "each")
        set(export EXPORT onebit)
    endif()
    install(TARGETS ${onebit_library_of_${name}} ${export}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${name} NAMELINK_COMPONENT development)
endforeach()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(DIRECTORY include/onebit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES c_api/fortran/onebit.f90 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onebit COMPONENT fortran)
if(NOT SKBUILD) # a wheel has the license elsewhere
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onebit)
install(EXPORT onebit NAMESPACE onebit:: FILE onebitTargets.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/onebitConfig.cmake.in onebitConfig.cmake INSTALL_DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/onebitConfig.cmake ${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake
        DESTINATION ${package_dir})
file(RELATIVE_PATH ONEBIT_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # correct for each --prefix
configure_file(cmake/onebit.pc.in onebit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onebit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(name IN LISTS ONEBIT_MPIS)
    configure_file(cmake/onebit-mpi.pc.in onebit-${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/onebit-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
if(ONEBIT_PYTHON_DIR)
    install(DIRECTORY python/onebit DESTINATION ${ONEBIT_PYTHON_DIR} COMPONENT python
        PATTERN __pycache__ EXCLUDE)
endif()
