# SPDX-License-Identifier: Apache-2.0
# Third-party libraries; docs/design.md names each and its reason.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)

find_library(QUERN_PTHREADPOOL pthreadpool REQUIRED)

# xxHash inside libquern: its header form, so that nothing more is linked.
find_path(QUERN_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(xxhash_header INTERFACE)

# DLPack 1.1 or later: tools/setup.sh puts its header here, from the PyPI package apache-tvm-ffi.
set(QUERN_DLPACK_INCLUDE ${PROJECT_SOURCE_DIR}/build/deps/include
    CACHE PATH "folder that holds quern/dlpack/dlpack.h")
if(NOT EXISTS ${QUERN_DLPACK_INCLUDE}/quern/dlpack/dlpack.h)
  message(FATAL_ERROR "no quern/dlpack/dlpack.h in ${QUERN_DLPACK_INCLUDE}: run tools/setup.sh, "
                      "or give -DQUERN_DLPACK_INCLUDE=DIR")
endif()
