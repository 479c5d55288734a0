# SPDX-License-Identifier: Apache-2.0
# Chooses clang, before project() takes a compiler.
set(quern_oldest_llvm 22)
set(quern_hint "tools/setup.sh installs it, or says where it is to be had; -DCMAKE_C_COMPILER=FILE names one elsewhere.")

# Machines that it cannot run on are named before anything is looked for.
cmake_host_system_information(RESULT quern_machine QUERY OS_PLATFORM)
if(CMAKE_SYSTEM_PROCESSOR)
  set(quern_machine ${CMAKE_SYSTEM_PROCESSOR})
endif()
if(NOT quern_machine MATCHES "^(x86_64|AMD64|amd64)$")
  message(FATAL_ERROR "quern needs an x86-64 processor: its kernels for the CPU and its simulated GPU are written for that; "
                      "this is ${quern_machine}.")
endif()

if(NOT CMAKE_C_COMPILER)
  execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/../tools/clang.sh RESULT_VARIABLE quern_status
                  OUTPUT_VARIABLE quern_clang ERROR_VARIABLE quern_found
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT quern_status EQUAL 0)
    message(FATAL_ERROR "${quern_found}. ${quern_hint}")
  endif()
  set(CMAKE_C_COMPILER "${quern_clang}" CACHE FILEPATH "clang ${quern_oldest_llvm} or later")
endif()

function(quern_check_compiler) # one that was named
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang" OR CMAKE_C_COMPILER_VERSION VERSION_LESS quern_oldest_llvm)
    message(FATAL_ERROR "quern needs clang ${quern_oldest_llvm} or later; found ${CMAKE_C_COMPILER_ID} "
                        "${CMAKE_C_COMPILER_VERSION} at ${CMAKE_C_COMPILER}. ${quern_hint}")
  endif()
endfunction()
