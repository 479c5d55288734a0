# SPDX-License-Identifier: Apache-2.0
# Device images: the QN_IMAGE lines of every ops/*/variants.def and of probe/probes.def, compiled for every target.
#
#   QN_IMAGE(id, "source", "targets", "defines")               targets: "all", or "amd" and names separated by blanks
#   QN_IMAGE(id, "source", "targets", "defines", "gfx9=24")    and how many SGPRs its kernels may spill where
#
# A define's value may depend on the target: "-DN=1,gfx9=2,sm_=3" is -DN=2 if the target's name begins with gfx9, -DN=3
# if it begins with sm_, else -DN=1; the first that fits counts. The JIT reads this text as well (runtime/image/jit.c).
#
# quern_add_kernels(OUT) sets OUT to C sources that embed the images and the kernels' sources. They name no folder of this machine:
# their text's sum is in debug information, and so in build IDs.

set(QUERN_DEVICE_OPTIMIZE -O3 CACHE STRING "optimisation of device code: kernels are right at any level, fast at -O3")
set(QUERN_DEVICE_FLAGS -std=gnu23 ${QUERN_DEVICE_OPTIMIZE} -ffreestanding -nogpulib -fno-slp-vectorize -ffp-contract=off
    -Wall -Wextra -Wno-pass-failed)
set(QUERN_AMD_FLAGS --target=amdgcn-amd-amdhsa)
# Drivers from CUDA 12.0 on take PTX ISA 8.0.
set(QUERN_PTX_FLAGS --target=nvptx64-nvidia-cuda --cuda-feature=+ptx80 -S)

function(quern_code_object_version target out)
  if(target MATCHES "generic")
    set(${out} 6 PARENT_SCOPE)
  else()
    set(${out} 5 PARENT_SCOPE)
  endif()
endfunction()

# quern_defines_for TARGET DEFINES OUT: the -D flags of a QN_IMAGE line for a target, as a list.
function(quern_defines_for target defines out)
  separate_arguments(words UNIX_COMMAND "${defines}")
  set(list "")
  foreach(word ${words})
    if(NOT word MATCHES "^-D[A-Za-z0-9_]+(=[A-Za-z0-9_]+(,[a-z0-9_-]+=[A-Za-z0-9_]+)*)?$")
      message(FATAL_ERROR "QN_IMAGE: ${word}: a define is -DNAME, -DNAME=VALUE or -DNAME=VALUE,TARGET=VALUE,...")
    endif()
    string(REPLACE "," ";" options "${word}")
    list(POP_FRONT options define)
    foreach(option ${options})
      string(REGEX MATCH "^([^=]+)=(.*)$" unused "${option}")
      set(value "${CMAKE_MATCH_2}")
      if(target MATCHES "^${CMAKE_MATCH_1}")
        string(REGEX REPLACE "=.*" "=${value}" define "${define}")
        break()
      endif()
    endforeach()
    list(APPEND list ${define})
  endforeach()
  set(${out} ${list} PARENT_SCOPE)
endfunction()

# Of which image another one is packed as a difference: for a family's target the same image for a chip of the family, for
# gfx950 the one for gfx942, for Hopper the one for sm_80, else the source's first image for the target. Sets OUT to ID.TARGET,
# or to nothing. The first image for each source and target stands in the global property quern_first_SOURCE_TARGET.
set(quern_chip_of_gfx950 gfx942)
set(quern_chip_of_gfx11-generic gfx1151)
set(quern_chip_of_gfx12-generic gfx1201)
set(quern_chip_of_sm_90a sm_80)
function(quern_base_of id source target has out)
  set(chip "${quern_chip_of_${target}}")
  get_property(first GLOBAL PROPERTY "quern_first_${source}_${target}")
  if(chip AND chip IN_LIST has)
    set(${out} ${id}.${chip} PARENT_SCOPE)
  elseif(first)
    set(${out} ${first}.${target} PARENT_SCOPE)
  else()
    set_property(GLOBAL PROPERTY "quern_first_${source}_${target}" ${id})
    set(${out} "" PARENT_SCOPE)
  endif()
endfunction()

# One image for one target: ${CMAKE_BINARY_DIR}/images/ID.TARGET.co, for NVIDIA a PTX text, and ID.TARGET.co.zst, what
# libquern embeds: packed as a difference from the image `base`, if that is one
function(quern_add_image id source target defines base)
  set(object ${CMAKE_BINARY_DIR}/images/${id}.${target}.co)
  set(then "")
  set(pack -qq -f -19)
  set(base_object "")
  if(base)
    set(base_object ${CMAKE_BINARY_DIR}/images/${base}.co)
    list(APPEND pack --patch-from=${base_object})
  endif()
  set(compiled ${object})
  if(target MATCHES "^sm_")
    set(flags ${QUERN_PTX_FLAGS} -march=${target})
    set(then COMMAND sed -E -i -f ${PROJECT_SOURCE_DIR}/cmake/ptx.sed ${object})
  else()
    quern_code_object_version(${target} version)
    set(flags ${QUERN_AMD_FLAGS} -mcpu=${target} -mcode-object-version=${version})
    if(quern_launcher) # ccache keeps what is compiled, not what is linked
      set(compiled ${object}.o)
      set(then COMMAND ${CMAKE_C_COMPILER} ${flags} -o ${object} ${compiled})
      list(APPEND flags -c)
    endif()
  endif()
  quern_defines_for(${target} "${defines}" define_list)
  add_custom_command(OUTPUT ${object}
    COMMAND ${quern_launcher} ${CMAKE_C_COMPILER} ${QUERN_DEVICE_FLAGS} ${flags} ${define_list} -I${PROJECT_SOURCE_DIR}/gpu -MD -MF ${object}.d -MT ${object} -o ${compiled} ${source}
    ${then}
    DEPENDS ${source} DEPFILE ${object}.d
    COMMENT "image ${id} for ${target}" VERBATIM)
  add_custom_command(OUTPUT ${object}.zst COMMAND ${ZSTD} ${pack} -o ${object}.zst ${object}
    DEPENDS ${object} ${base_object} COMMENT "" VERBATIM)
endfunction()

function(quern_add_kernels out)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/images)
  set(table "// Made by cmake/kernels.cmake.\n#include \"image.h\"\n")
  set(rows "")
  set(objects "")
  file(GLOB defs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*/variants.def ${PROJECT_SOURCE_DIR}/probe/probes.def)
  foreach(def ${defs})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${def})
    cmake_path(GET def PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE room)
    file(STRINGS ${def} lines REGEX "^QN_IMAGE")
    foreach(line ${lines})
      if(NOT line MATCHES "^QN_IMAGE\\(([a-z0-9_]+), *\"([^\"]+)\", *\"([^\"]+)\", *\"([^\"]*)\"(, *\"(([a-z0-9-]+=[0-9]+ ?)+)\")?\\)")
        message(FATAL_ERROR "${def}: cannot read: ${line}")
      endif()
      set(id ${CMAKE_MATCH_1})
      set(file ${CMAKE_MATCH_2})
      set(defines "${CMAKE_MATCH_4}")
      set(sgpr_spills "${CMAKE_MATCH_6}")
      string(REPLACE " " ";" wanted "${CMAKE_MATCH_3}")
      set(has "")
      foreach(target ${quern_targets})
        if(wanted STREQUAL "all" OR target IN_LIST wanted OR ("amd" IN_LIST wanted AND NOT target MATCHES "^sm_"))
          quern_base_of(${id} ${folder}/${file} ${target} "${has}" base)
          list(APPEND has ${target})
          quern_add_image(${id} ${folder}/${file} ${target} "${defines}" "${base}")
          set(object ${CMAKE_BINARY_DIR}/images/${id}.${target}.co)
          string(MAKE_C_IDENTIFIER "${id}_${target}" name)
          string(APPEND table "static const unsigned char ${name}[] = {\n#embed \"${id}.${target}.co.zst\"\n};\n")
          string(REPLACE "." "\", \"" base "${base}")
          string(APPEND rows "    {\"${id}\", \"${target}\", ${name}, sizeof ${name}, {\"${base}\"}},\n")
          list(APPEND objects ${object}.zst)
        endif()
      endforeach()
      # Sources that the JIT needs to build the image itself.
      string(APPEND recipes "    {\"${id}\", \"${room}/${file}\", \"${defines}\", \"${sgpr_spills}\"},\n")
    endforeach()
  endforeach()
  string(APPEND table "const qni_image qni_images[] = {\n${rows}    {0}};\n")
  string(APPEND table "const qni_image_recipe qni_image_recipes[] = {\n${recipes}    {0}};\n")
  file(GLOB sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/gpu/*.h ${PROJECT_SOURCE_DIR}/gpu/mma/*.h
       ${PROJECT_SOURCE_DIR}/ops/*/*_gpu.[ch] ${PROJECT_SOURCE_DIR}/ops/*/*/*_gpu.[ch]
       ${PROJECT_SOURCE_DIR}/ops/*/*_abi.h ${PROJECT_SOURCE_DIR}/ops/*/*/*_abi.h
       ${PROJECT_SOURCE_DIR}/probe/*_gpu.c ${PROJECT_SOURCE_DIR}/probe/*_abi.h ${PROJECT_SOURCE_DIR}/probe/bodies_abi.def)
  set(source_rows "")
  set(source_paths "")
  foreach(source ${sources})
    string(MAKE_C_IDENTIFIER "source_${source}" name)
    string(APPEND table "static const char ${name}[] = {\n#embed <${source}> suffix(, 0)\n};\n")
    string(APPEND source_rows "    {\"${source}\", ${name}},\n")
    list(APPEND source_paths ${PROJECT_SOURCE_DIR}/${source})
  endforeach()
  string(APPEND table "const qni_image_source qni_image_sources[] = {\n${source_rows}    {0}};\n")
  foreach(flags device amd ptx)
    string(TOUPPER ${flags} upper)
    list(JOIN QUERN_${upper}_FLAGS "\", \"" words)
    string(APPEND table "const char *const qni_${flags}_flags[] = {\"${words}\", nullptr};\n")
  endforeach()
  set(generated ${CMAKE_BINARY_DIR}/images/images.c)
  file(CONFIGURE OUTPUT ${generated} CONTENT "${table}" @ONLY)
  set_source_files_properties(${generated} PROPERTIES OBJECT_DEPENDS "${objects};${source_paths}"
    INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/runtime/image"
    COMPILE_OPTIONS "--embed-dir=${PROJECT_SOURCE_DIR};-Wno-c23-extensions;-Wno-missing-field-initializers")
  set(${out} ${generated} PARENT_SCOPE)
endfunction()
