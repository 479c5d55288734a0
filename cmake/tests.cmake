# SPDX-License-Identifier: Apache-2.0
# Tests: each *_test.c is one cmocka program under ctest; tests/*_test.sh are scripts; *_fuzz.c libFuzzer targets,
# each of which names what it fuzzes in a line "// Fuzzes: SOURCE…", "// Fuzzes: libquern" or "// Fuzzes: libquernsim".
#
#   {ops/**,runtime/**,check,probe,compat}/*_test.c link libquern's objects, so that they reach internal functions
#   sim/**/*_test.c                    link the simulator's parts
#   tests/*_test.c                     link libquern as a user does
if(QUERN_SANITIZE)
  set(quern_slowness 4)
else()
  set(quern_slowness 1)
endif()
# quern_limit_test NAME SECONDS: fails when it takes longer; a sanitizer's build may take several times that.
function(quern_limit_test name seconds)
  math(EXPR limit "${seconds} * ${quern_slowness}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})
endfunction()

# quern_add_run NAME COMMAND…: one test.
function(quern_add_run name)
  add_test(NAME ${name} COMMAND ${ARGN})
  quern_limit_test(${name} 300)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77
    ENVIRONMENT "QUERN_CACHE_DIR=${CMAKE_BINARY_DIR}/test-cache;QUERN_BUILD_DIR=${CMAKE_BINARY_DIR};QUERN_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
endfunction()

function(quern_add_program source)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE quern_flags PkgConfig::cmocka ${ARGN} m)
endfunction()

function(quern_add_test source)
  quern_add_program(${source} ${ARGN})
  cmake_path(GET source STEM name)
  quern_add_run(${name} ${name})
endfunction()

file(GLOB inner_tests CONFIGURE_DEPENDS runtime/*_test.c runtime/*/*_test.c ops/*/*_test.c ops/*/*/*_test.c check/*_test.c probe/*_test.c compat/*_test.c)
if(inner_tests)
  add_library(quern_inner STATIC $<TARGET_OBJECTS:quern_objects>)
  set_target_properties(quern_inner PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(quern_inner PUBLIC ${PROJECT_SOURCE_DIR}/include ${QUERN_DLPACK_INCLUDE})
  target_link_libraries(quern_inner PUBLIC quern_flags ${QUERN_PTHREADPOOL} ${QUERN_ZSTD} ${CMAKE_DL_LIBS} Threads::Threads)
endif()
foreach(source ${inner_tests})
  quern_add_test(${source} $<LINK_LIBRARY:WHOLE_ARCHIVE,quern_inner>) # the whole archive, as nothing calls
                                                                      # check/families.c
  if(TARGET quernsim) # it is opened at run time
    cmake_path(GET source STEM inner_test_name)
    add_dependencies(${inner_test_name} quernsim)
  endif()
endforeach()

# sim/testdata/NAME.c, compiled in several ways into ${CMAKE_BINARY_DIR}/testdata/NAME.WAY.co, for gfx942 unless WAY
# names another chip
function(quern_add_test_objects)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/testdata/*.c)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/testdata/*.h)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/testdata)
  set(objects "")
  foreach(source ${sources})
    cmake_path(GET source STEM name)
    set(ways O0 O1 O3 v4 preload gfx90a.O0 gfx90a.O3 gfx950.O0 gfx950.O3 gfx1151.O0 gfx1151.O3
      gfx1201.O0 gfx1201.O3 gfx1201.wave64)
    if(name STREQUAL "reports")
      set(ways O1 dwarf4 dwarf5 gfx1201.O3)
    endif()
    if(name STREQUAL "kernels")
      list(APPEND ways gfx12-generic.O3)
    endif()
    foreach(way ${ways})
      set(chip gfx942)
      if(name MATCHES "^(faults|unwritten)$" AND NOT way MATCHES "^(O3|gfx1151.O3|gfx1201.O3)$")
        continue()
      endif()
      if(way MATCHES "^(gfx[0-9a-z-]+)\\.(O[0-9])$")
        set(chip ${CMAKE_MATCH_1})
        set(flags -${CMAKE_MATCH_2})
      elseif(way MATCHES "wave64")
        set(chip gfx1201)
        set(flags -O3 -mwavefrontsize64)
      elseif(way MATCHES "^O")
        set(flags -${way})
      elseif(way MATCHES "^dwarf(.)$") # with source lines
        set(flags -O1 -gdwarf-${CMAKE_MATCH_1})
      elseif(way STREQUAL "v4") # launch sizes through the dispatch packet
        set(flags -O1 -mcode-object-version=4)
      else() # kernel arguments in registers
        set(flags -O3 -mcode-object-version=5 -mllvm -amdgpu-kernarg-preload-count=14)
      endif()
      set(object ${CMAKE_BINARY_DIR}/testdata/${name}.${way}.co)
      add_custom_command(OUTPUT ${object} DEPENDS ${source} ${headers} VERBATIM
        COMMAND ${CMAKE_C_COMPILER} -std=gnu23 ${flags} --target=amdgcn-amd-amdhsa -mcpu=${chip} -nogpulib
                -ffreestanding -Wall -Wextra -o ${object} ${source}
        COMMENT "test object ${name}.${way}")
      list(APPEND objects ${object})
    endforeach()
  endforeach()
  add_custom_target(quern_test_objects ALL DEPENDS ${objects})
endfunction()

file(GLOB sim_tests CONFIGURE_DEPENDS sim/*_test.c sim/*/*_test.c sim/*/*/*_test.c)
if(TARGET quernsim_parts)
  quern_add_test_objects()
  foreach(source ${sim_tests})
    cmake_path(GET source STEM sim_test_name)
    quern_add_test(${source} quernsim_parts)
    add_dependencies(${sim_test_name} quern_test_objects quernsim)
  endforeach()
endif()

file(GLOB outer_tests CONFIGURE_DEPENDS tests/*_test.c)
list(FILTER outer_tests EXCLUDE REGEX "families_test")
foreach(source ${outer_tests})
  quern_add_test(${source} quern)
endforeach()

# Compares which rooms take symbols from which, as the objects say.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME layers_test COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_layers.py
           --objects ${CMAKE_BINARY_DIR} ${CMAKE_NM})
  quern_limit_test(layers_test 60)
endif()

# Each device has a test of its own, so that several run at a time.
quern_add_program(${PROJECT_SOURCE_DIR}/tests/families_test.c quern)
foreach(device cpu sim:gfx90a sim:gfx942 sim:gfx950 sim:gfx1151 sim:gfx1201 sim:gfx11-generic sim:gfx12-generic)
  string(REPLACE "sim:" "" name ${device})
  quern_add_run(families_test.${name} families_test ${device})
  set_property(TEST families_test.${name} APPEND PROPERTY ENVIRONMENT "QUERN_SIM=check=all")
endforeach()

if(TEST builds_test) # runs again with the C library's functions for processors without FMA
  add_test(NAME builds_test_without_fma COMMAND builds_test)
  quern_limit_test(builds_test_without_fma 300)
  set_tests_properties(builds_test_without_fma PROPERTIES SKIP_RETURN_CODE 77
    ENVIRONMENT "GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX512F")
endif()

# These take minutes of processor time, and other tests may share the processors.
foreach(name attention_grid_test gemm_sim_test gemm_chips_test families_test.cpu)
  if(TEST ${name})
    quern_limit_test(${name} 900)
  endif()
endforeach()

# Code of compilers runs clean under every check, and so must our own kernels.
foreach(name kernels_test gemm_sim_test gemm_chips_test quantize_gpu_test aotriton_test aotriton_varlen_test
        aotriton_backward_test)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "QUERN_SIM=check=all")
  endif()
endforeach()

file(GLOB script_tests CONFIGURE_DEPENDS tests/*_test.sh)
foreach(source ${script_tests})
  cmake_path(GET source FILENAME name) # with .sh, as a C test may have that stem
  add_test(NAME ${name} COMMAND bash ${source})
  quern_limit_test(${name} 600)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77
    ENVIRONMENT "QUERN_BUILD_DIR=${CMAKE_BINARY_DIR};QUERN_SOURCE_DIR=${PROJECT_SOURCE_DIR};QUERN_DLPACK_INCLUDE=${QUERN_DLPACK_INCLUDE};PYTHON=${PROJECT_SOURCE_DIR}/.venv/bin/python")
endforeach()

if(TEST release_test.sh) # it builds the library, the simulator and the command twice
  quern_limit_test(release_test.sh 1200)
endif()
if(TEST wheel_test.sh) # it reads, and builds again, files that other tests load
  set_tests_properties(wheel_test.sh PROPERTIES RUN_SERIAL TRUE)
endif()

# The longest tests begin first, so that none runs alone at the end.
foreach(name clients_test.sh python_test.sh cli_test.sh attention_grid_test gemm_sim_test gemm_chips_test families_test.cpu
        isa_test.sh isa16_test.sh isa_baseline_test.sh isa_avx2_test.sh rocm_test.sh release_test.sh)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endforeach()

if(QUERN_FUZZ)
  target_compile_options(quern_objects PRIVATE -fsanitize=fuzzer-no-link)
  if(TARGET quernsim_parts)
    list(TRANSFORM sim_isas PREPEND sim_exec_ OUTPUT_VARIABLE sim_execs)
    foreach(part quernsim_parts ${sim_execs})
      target_compile_options(${part} PRIVATE -fsanitize=fuzzer-no-link)
    endforeach()
  endif()
  file(GLOB fuzzers CONFIGURE_DEPENDS tests/fuzz/*_fuzz.c)
  foreach(source ${fuzzers})
    cmake_path(GET source STEM name)
    file(STRINGS ${source} fuzzed REGEX "^// Fuzzes: ")
    if(NOT fuzzed)
      message(FATAL_ERROR "${source} has no line that begins with \"// Fuzzes: \" and says what is linked; see cmake/tests.cmake")
    elseif(fuzzed MATCHES "libquern$")
      set(fuzzed $<TARGET_OBJECTS:quern_objects>)
      set(fuzzed_parts ${QUERN_PTHREADPOOL} ${QUERN_ZSTD} ${CMAKE_DL_LIBS})
    elseif(fuzzed MATCHES "libquernsim$")
      set(fuzzed "")
      set(fuzzed_parts quernsim_parts)
    else()
      string(REGEX REPLACE "^// Fuzzes: " "" fuzzed "${fuzzed}")
      separate_arguments(fuzzed)
      set(fuzzed_parts "")
    endif()
    add_executable(${name} ${source} ${fuzzed})
    target_include_directories(${name} PRIVATE include ${QUERN_DLPACK_INCLUDE})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE quern_flags ${fuzzed_parts} PkgConfig::jansson m)
    file(STRINGS ${source} needed REGEX "^// Needs: quernsim$") # which it opens
    if(needed)
      add_dependencies(${name} quernsim)
    endif()
    file(STRINGS ${source} needed REGEX "^// Needs: quern_test_objects$") # code that it embeds
    if(needed)
      add_dependencies(${name} quern_test_objects)
      target_compile_options(${name} PRIVATE --embed-dir=${CMAKE_BINARY_DIR}/testdata)
    endif()
  endforeach()
endif()
