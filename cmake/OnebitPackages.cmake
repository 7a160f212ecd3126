# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# Debian packages, one for each component of OnebitInstall.cmake. cpack makes them in the build folder; scripts/deb.sh
# makes and tests them.

if(NOT PROJECT_IS_TOP_LEVEL)
    return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The onebit authors")
set(CPACK_PACKAGE_CONTACT "The onebit authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # finds the Debian packages that a library needs
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}) # where it finds libonebit
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # so that it finds libonebit's package, too
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

# COMPONENT NAME SECTION DESCRIPTION DEPENDS...: COMPONENT's package is called NAME.
function(onebit_package component name section description)
    string(TOUPPER ${component} key)
    set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
    set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
    set(CPACK_COMPONENT_${key}_DESCRIPTION "${description}" PARENT_SCOPE)
    list(JOIN ARGN ", " depends)
    set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
    set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

set(CPACK_COMPONENTS_ALL "")
set(this_version "(= ${PROJECT_VERSION})")
set(runtime "libonebit${ONEBIT_SOVERSION} ${this_version}")
set(libraries ${runtime})
onebit_package(library libonebit${ONEBIT_SOVERSION} libs "compressed allreduce and optimizers that send one bit: the library")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libhwloc15) # loaded at run time, to choose transports
foreach(mpi IN LISTS ONEBIT_MPIS)
    onebit_package(${mpi} libonebit-${mpi}${ONEBIT_SOVERSION} libs "onebit over the MPI called ${mpi}"
        ${runtime})
    set(library "libonebit-${mpi}${ONEBIT_SOVERSION} ${this_version}")
    list(APPEND libraries ${library})
    if(TARGET onebit_tune OR TARGET onebit_tune.${mpi})
        onebit_package(tools_${mpi} onebit-tools-${mpi} utils "onebit_info and onebit_tune for the MPI called ${mpi}"
            ${library})
    endif()
    if(TARGET osu_benchmark OR TARGET osu_benchmark.${mpi})
        onebit_package(benchmarks_${mpi} onebit-benchmarks-${mpi} utils
            "OSU-style benchmarks of onebit for the MPI called ${mpi}" ${library})
    endif()
endforeach()
onebit_package(development libonebit-dev libdevel
    "headers of onebit for C and C++, files for CMake and pkg-config" ${libraries})
onebit_package(fortran libonebit-fortran-dev libdevel "source of onebit's Fortran module, for whatever compiler"
    "libonebit-dev ${this_version}")
if(ONEBIT_PYTHON_DIR)
    onebit_package(python python3-onebit python "onebit for Python: PyTorch's optimizers, NumPy, JAX"
        ${runtime} python3 python3-numpy)
    set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-torch, python3-mpi4py")
    set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
    set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
        "${CMAKE_CURRENT_LIST_DIR}/python3-onebit/postinst;${CMAKE_CURRENT_LIST_DIR}/python3-onebit/prerm")
endif()
include(CPack)
