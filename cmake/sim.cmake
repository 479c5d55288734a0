# SPDX-License-Identifier: Apache-2.0
# libquernsim, the simulated GPU, which exports a HIP runtime; and quern-decoder, which holds LLVM's AMDGPU
# disassembler, linked statically where LLVM's archives are.
function(quern_llvm out)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
quern_llvm(llvm_version --version)
if(llvm_version VERSION_LESS quern_oldest_llvm)
  message(FATAL_ERROR "the simulated GPU needs LLVM ${quern_oldest_llvm} or later; ${LLVM_CONFIG} is of ${llvm_version}. "
                      "tools/setup.sh installs it; -DLLVM_CONFIG=FILE names one elsewhere, -DQUERN_SIM=OFF does without.")
endif()
quern_llvm(llvm_include --includedir)
quern_llvm(llvm_libdir --libdir)
set(llvm_parts amdgpudisassembler amdgpudesc amdgpuinfo)
# Some systems have no archives of LLVM, but one large library; the C++ library is then theirs, too.
execute_process(COMMAND ${LLVM_CONFIG} --link-static --libs ${llvm_parts} OUTPUT_VARIABLE llvm_libs RESULT_VARIABLE status
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(llvm_cxx ${QUERN_Z} ${QUERN_ZSTD} -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic)
if(NOT status EQUAL 0)
  quern_llvm(llvm_libs --link-shared --libs)
  set(llvm_cxx "")
  message(STATUS "LLVM ${llvm_version} has no archives here: quern-decoder needs its shared library at run time")
endif()
separate_arguments(llvm_libs UNIX_COMMAND "${llvm_libs}")

# Everything but exec/ is built once; exec/ once for each host instruction set, chosen at load: x86-64-v2 (base), which every
# host runs, x86-64-v3 (AVX2) and x86-64-v4 (AVX-512). "native" leaves out those that this machine would not choose.
set(QUERN_SIM_EXEC all CACHE STRING "builds of the simulator's instructions: all, or native, the one that this processor runs best")
set(sim_march_base -march=x86-64-v2)
set(sim_march_v3 -march=x86-64-v3)
set(sim_march_v4 -march=x86-64-v4 -mprefer-vector-width=512)
set(sim_isas base v3 v4) # from the least demanding to the best
if(QUERN_SIM_EXEC STREQUAL "native")
  execute_process(COMMAND ${CMAKE_C_COMPILER} -march=native -E -dM -x c /dev/null OUTPUT_VARIABLE native COMMAND_ERROR_IS_FATAL ANY)
  set(needs_v3 AVX2 BMI BMI2 F16C FMA LZCNT MOVBE)
  set(needs_v4 ${needs_v3} AVX512F AVX512BW AVX512CD AVX512DQ AVX512VL)
  foreach(isa base v3 v4)
    set(is_native TRUE)
    foreach(part ${needs_${isa}})
      if(NOT native MATCHES "__${part}__ 1")
        set(is_native FALSE)
      endif()
    endforeach()
    if(is_native)
      set(sim_isas ${isa})
    endif()
  endforeach()
elseif(NOT QUERN_SIM_EXEC STREQUAL "all")
  message(FATAL_ERROR "QUERN_SIM_EXEC is ${QUERN_SIM_EXEC}; accepted: all, native")
endif()
file(GLOB sim_sources CONFIGURE_DEPENDS sim/*.c sim/object/*.c sim/report/*.c sim/isa/*.c sim/check/*.c sim/chip/*.c sim/look/*.c sim/clock/*.c sim/clock/streams/*.c
     sim/hip/*.c sim/hip/*/*.c sim/decoder/process.c)
file(GLOB exec_sources CONFIGURE_DEPENDS sim/exec/*/*.c)
list(FILTER sim_sources EXCLUDE REGEX "_test\\.c$")
list(FILTER exec_sources EXCLUDE REGEX "_test\\.c$")
if(sim_sources)
  if(QUERN_SANITIZE MATCHES "thread") # a kernel that races is no fault of the simulator
    set_source_files_properties(${exec_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
  set(exec_objects "")
  foreach(isa ${sim_isas})
    add_library(sim_exec_${isa} OBJECT ${exec_sources})
    target_link_libraries(sim_exec_${isa} PRIVATE quern_flags)
    target_compile_definitions(sim_exec_${isa} PRIVATE SIM_ISA=${isa})
    target_compile_options(sim_exec_${isa} PRIVATE ${quern_fast} -fno-math-errno ${sim_march_${isa}})
    list(APPEND exec_objects $<TARGET_OBJECTS:sim_exec_${isa}>)
  endforeach()
  # The parts that tests and fuzzers link directly.
  add_library(quernsim_parts STATIC ${sim_sources} ${exec_objects})
  target_link_libraries(quernsim_parts PRIVATE $<BUILD_INTERFACE:quern_flags>)
  foreach(isa ${sim_isas})
    string(TOUPPER "SIM_HAS_${isa}" has)
    target_compile_definitions(quernsim_parts PUBLIC ${has}=1)
  endforeach()
  target_link_libraries(quernsim_parts PUBLIC ${QUERN_MSGPACK} ${QUERN_Z} ${QUERN_ZSTD}
    -Wl,--as-needed Threads::Threads m ${CMAKE_DL_LIBS})
  # quern-decoder is not relocatable: it starts with every process that simulates, and its tables are large.
  add_executable(quern_decoder sim/decoder/main.c sim/isa/guard.c sim/isa/literal.c sim/chip/chip.c sim/chip/timing.c
                 $<$<BOOL:${QUERN_SYSROOT}>:release/old_glibc.c>)
  set_target_properties(quern_decoder PROPERTIES OUTPUT_NAME quern-decoder POSITION_INDEPENDENT_CODE OFF)
  target_include_directories(quern_decoder PRIVATE ${llvm_include})
  target_link_libraries(quern_decoder PRIVATE quern_flags -L${llvm_libdir} ${llvm_libs} ${llvm_cxx}
    -Wl,--as-needed Threads::Threads m)
  target_link_options(quern_decoder PRIVATE -no-pie -Wl,--gc-sections -static-libgcc)
  add_dependencies(quernsim_parts quern_decoder)
endif()
if(TARGET quernsim_parts AND EXISTS ${PROJECT_SOURCE_DIR}/sim/hip/exports.map)
  add_library(quernsim SHARED sim/hip/exports.map)
  set_target_properties(quernsim PROPERTIES LINKER_LANGUAGE C SOVERSION 0
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/sim/hip/exports.map)
  if(NOT SKBUILD) # as for libquern
    set_target_properties(quernsim PROPERTIES VERSION ${PROJECT_VERSION})
  endif()
  target_link_libraries(quernsim PRIVATE quern_flags -Wl,--whole-archive quernsim_parts -Wl,--no-whole-archive)
  target_link_options(quernsim PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/sim/hip/exports.map
                      -Wl,--gc-sections -static-libgcc)
  # Links under the system library's names, where `quern sim` of the build tree finds them, and under the library's own
  # name, which programs ask for that were linked with one of these.
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/quern-sim-links)
  foreach(name libamdhip64.so libamdhip64.so.6 libamdhip64.so.7 libhiprtc.so libhiprtc.so.6 libhiprtc.so.7 libquernsim.so.0)
    file(CREATE_LINK ../libquernsim.so.0 ${CMAKE_BINARY_DIR}/quern-sim-links/${name} SYMBOLIC)
  endforeach()
endif()
if(TARGET quernsim_parts)
  add_executable(sim_bench EXCLUDE_FROM_ALL bench/sim_bench.c)
  target_link_libraries(sim_bench PRIVATE quern_flags quernsim_parts)
endif()
if(TARGET quernsim)
  add_executable(sim_gemm EXCLUDE_FROM_ALL bench/sim_gemm.c)
  target_include_directories(sim_gemm PRIVATE include)
  target_link_libraries(sim_gemm PRIVATE quern_flags quern m)
  add_dependencies(sim_gemm quernsim)
  set(straight ${CMAKE_BINARY_DIR}/straight.gfx942.co)
  add_custom_command(OUTPUT ${straight} DEPENDS bench/straight_gpu.c bench/straight.h VERBATIM
    COMMAND ${CMAKE_C_COMPILER} -std=gnu23 -O2 --target=amdgcn-amd-amdhsa -mcpu=gfx942 -nogpulib -ffreestanding
            -Wall -Wextra -o ${straight} ${PROJECT_SOURCE_DIR}/bench/straight_gpu.c)
  add_executable(sim_load EXCLUDE_FROM_ALL bench/sim_load.c ${straight})
  target_link_libraries(sim_load PRIVATE quern_flags ${CMAKE_DL_LIBS})
  add_dependencies(sim_load quernsim)
endif()
