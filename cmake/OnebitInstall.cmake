# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# `cmake --install`: the library, that of the MPI, the headers, the Fortran module's source, a CMake package
# (find_package(onebit)) and pkg-config files.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# `library` is what a finished program needs. ONEBIT_MPI=each leaves its libraries out of the package: they go by
# pkg-config, not by CMake's search for an MPI.
foreach(library onebit ${ONEBIT_MPI_TARGETS})
    set(export EXPORT onebit)
    if(ONEBIT_MPI STREQUAL "each" AND NOT library STREQUAL "onebit")
        set(export)
    endif()
    install(TARGETS ${library} ${export}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
endforeach()
install(DIRECTORY include/onebit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES c_api/fortran/onebit.f90 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onebit) # for whatever compiler
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onebit)
install(EXPORT onebit NAMESPACE onebit:: FILE onebitTargets.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/onebitConfig.cmake.in onebitConfig.cmake INSTALL_DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/onebitConfig.cmake ${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake
        DESTINATION ${package_dir})
file(RELATIVE_PATH ONEBIT_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # wherever --prefix puts them
configure_file(cmake/onebit.pc.in onebit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onebit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(name IN LISTS ONEBIT_MPIS)
    configure_file(cmake/onebit-mpi.pc.in onebit-${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/onebit-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
