# SPDX-License-Identifier: Apache-2.0
# Third-party libraries; docs/design.md names each and its reason.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)

find_library(QUERN_PTHREADPOOL pthreadpool REQUIRED)

# xxHash inside libquern: its header form, so that nothing more is linked.
find_path(QUERN_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(xxhash_header INTERFACE)

# DLPack 1.1 or later: tools/setup.sh puts its header here, from the PyPI package apache-tvm-ffi, and that package's own
# beside it, for the Python package. A wheel's build has the package itself (pyproject.toml).
set(QUERN_DLPACK_INCLUDE ${PROJECT_SOURCE_DIR}/build/deps/include
    CACHE PATH "folder that holds quern/dlpack/dlpack.h")
if(SKBUILD)
  find_package(Python REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python_EXECUTABLE} -m tvm_ffi.config --includedir OUTPUT_VARIABLE QUERN_TVM_FFI_INCLUDE
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(QUERN_DLPACK_INCLUDE ${CMAKE_BINARY_DIR}/deps/include)
  file(COPY ${QUERN_TVM_FFI_INCLUDE}/dlpack DESTINATION ${QUERN_DLPACK_INCLUDE}/quern)
elseif(EXISTS ${QUERN_DLPACK_INCLUDE}/tvm/ffi/c_api.h)
  set(QUERN_TVM_FFI_INCLUDE ${QUERN_DLPACK_INCLUDE})
endif()
if(NOT EXISTS ${QUERN_DLPACK_INCLUDE}/quern/dlpack/dlpack.h)
  message(FATAL_ERROR "no quern/dlpack/dlpack.h in ${QUERN_DLPACK_INCLUDE}: run tools/setup.sh, "
                      "or give -DQUERN_DLPACK_INCLUDE=DIR")
endif()
