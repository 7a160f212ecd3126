# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# ONEBIT_UNITY: the library's files are compiled several at once, because the standard library, read and instantiated for
# each file anew, is most of the work. Files of one folder go together, by the letter that their names begin with: a new
# file then shares its names with the same few.

# To be called once `target` has all its files.
function(onebit_unite target)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources EXCLUDE REGEX "simd\\.cpp$") # compiled for each instruction set: they take long alone
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
        target_compile_options(${target} PRIVATE -Wno-subobject-linkage) # files are no headers, though they are included
    endif()
endfunction()
