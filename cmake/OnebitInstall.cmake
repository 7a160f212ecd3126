# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# `cmake --install`: the library, its headers, the Fortran module's source, a CMake package (find_package(onebit)) and a pkg-config file.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS onebit EXPORT onebit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/onebit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES c_api/fortran/onebit.f90 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onebit) # for whatever compiler
install(EXPORT onebit NAMESPACE onebit:: FILE onebitConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onebit)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onebit)
configure_file(cmake/onebit.pc.in onebit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onebit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
