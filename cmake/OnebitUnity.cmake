# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# ONEBIT_UNITY: several files of the library are compiled as one. Otherwise the standard library is read and
# instantiated anew for each file, which is most of the work. Files of one folder are grouped by the first letter of
# their names: a new file then shares its names with the same few files.

# Call this after all files have been added to `target`.
function(onebit_unite target)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources EXCLUDE REGEX "simd\\.cpp$") # compiled for each instruction set: slow enough alone
    foreach(source IN LISTS sources)
        get_filename_component(folder ${source} DIRECTORY)
        get_filename_component(name ${source} NAME)
        foreach(letters a-e f-o p-r s-z)
            if(name MATCHES "^[${letters}]")
                string(MAKE_C_IDENTIFIER "${folder}_${letters}" group)
                set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group})
            endif()
        endforeach()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${ONEBIT_UNITY} UNITY_BUILD_MODE GROUP)
    if(ONEBIT_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE -Wno-subobject-linkage) # the warning is meant for included headers
    endif()
endfunction()
