# SPDX-License-Identifier: Apache-2.0
# Third-party libraries; docs/design.md names each and its reason.

# quern_need(VARIABLE PACKAGE): notes Debian's package as missing if VARIABLE was not found.
function(quern_need variable package)
  if(NOT ${variable})
    set_property(GLOBAL APPEND PROPERTY quern_missing ${package})
  endif()
endfunction()

find_package(PkgConfig QUIET)
quern_need(PKG_CONFIG_FOUND pkg-config)
find_package(Threads REQUIRED)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(jansson QUIET IMPORTED_TARGET jansson)
  quern_need(jansson_FOUND libjansson-dev)
  set(QUERN_JANSSON PkgConfig::jansson)
endif()
if(QUERN_SYSROOT)
  find_library(QUERN_JANSSON_ARCHIVE libjansson.a)
  quern_need(QUERN_JANSSON_ARCHIVE libjansson-dev)
  set(QUERN_JANSSON ${QUERN_JANSSON_ARCHIVE})
endif()
find_library(QUERN_PTHREADPOOL pthreadpool)
quern_need(QUERN_PTHREADPOOL libpthreadpool-dev)
# libquern takes xxHash's header form, so that it links no further library.
find_path(QUERN_XXHASH_INCLUDE xxhash.h)
quern_need(QUERN_XXHASH_INCLUDE libxxhash-dev)
add_library(xxhash_header INTERFACE)
# Static libraries if the system has them, so that libquern and the simulated GPU need little beside libc and libm.
find_library(QUERN_ZSTD NAMES libzstd.a zstd)
quern_need(QUERN_ZSTD libzstd-dev)
find_program(ZSTD zstd)
quern_need(ZSTD zstd)
if(QUERN_SIM)
  # The compiler's own comes first.
  file(REAL_PATH ${CMAKE_C_COMPILER} clang)
  cmake_path(GET clang PARENT_PATH clang_folder)
  find_program(LLVM_CONFIG NAMES llvm-config llvm-config-64 HINTS ${clang_folder} NO_DEFAULT_PATH)
  find_program(LLVM_CONFIG NAMES llvm-config-22 llvm-config-23 llvm-config-24 llvm-config-25 llvm-config)
  quern_need(LLVM_CONFIG llvm-22-dev)
  find_library(QUERN_MSGPACK NAMES libmsgpackc.a libmsgpack-c.a msgpackc msgpack-c)
  quern_need(QUERN_MSGPACK libmsgpack-dev)
  find_library(QUERN_Z NAMES libz.a z)
  quern_need(QUERN_Z zlib1g-dev)
endif()
if(QUERN_TESTS AND PKG_CONFIG_FOUND)
  pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
  quern_need(cmocka_FOUND libcmocka-dev)
endif()

get_property(quern_missing GLOBAL PROPERTY quern_missing)
if(quern_missing)
  list(JOIN quern_missing ", " quern_missing)
  message(FATAL_ERROR "quern needs what these packages hold (Debian's names), and did not find it: ${quern_missing}. "
                      "tools/setup.sh installs them; -DCMAKE_PREFIX_PATH=DIR names where else to look.")
endif()

# DLPack 1.1 or later: tools/setup.sh puts its header here, from the PyPI package apache-tvm-ffi, and that package's own
# headers beside it, for the Python package. A wheel's build has apache-tvm-ffi itself (pyproject.toml).
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
