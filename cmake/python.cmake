# SPDX-License-Identifier: Apache-2.0
# The Python package's native part, which a wheel holds beside python/quern. Its component is `python`, so that `make
# install` leaves it out; it goes to quern/_native:
#   quern_ffi.so   the ops as TVM-FFI functions      bin/quern   the command
#   lib/           libquern, libquernsim, the libraries they need, and quern/sim/ as in an installed tree
# Component `python_data` is the manual and the completions, which pip puts into the environment's share/, as `make
# install` does. Target `quern_python` builds both components.
set(native quern/_native)
set(native_lib ${native}/${CMAKE_INSTALL_LIBDIR})

add_library(quern_ffi MODULE python/ffi/ops.c python/ffi/attention.c python/ffi/norm.c python/ffi/tensors.c)
set_target_properties(quern_ffi PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN/${CMAKE_INSTALL_LIBDIR}")
target_include_directories(quern_ffi PRIVATE SYSTEM ${QUERN_TVM_FFI_INCLUDE})
# TVM-FFI's own functions come from its Python package, which is loaded first.
target_link_libraries(quern_ffi PRIVATE quern quern_flags)
add_custom_target(quern_python DEPENDS quern_ffi product)
install(TARGETS quern_ffi LIBRARY DESTINATION ${native} COMPONENT python EXCLUDE_FROM_ALL)

# Installs the file that a library's users open by its soname, without the folder's symbolic links, which a wheel cannot
# hold.
function(quern_bundle library)
  execute_process(COMMAND readelf -d ${library} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  if(NOT dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]")
    message(FATAL_ERROR "${library} has no soname")
  endif()
  set(soname ${CMAKE_MATCH_1})
  file(REAL_PATH ${library} file)
  install(PROGRAMS ${file} DESTINATION ${native_lib} RENAME ${soname} COMPONENT python EXCLUDE_FROM_ALL)
endfunction()

install(TARGETS quern LIBRARY DESTINATION ${native_lib} NAMELINK_SKIP COMPONENT python EXCLUDE_FROM_ALL)
quern_bundle(${QUERN_PTHREADPOOL})
if(TARGET quern_command)
  install(TARGETS quern_command RUNTIME DESTINATION ${native}/bin COMPONENT python EXCLUDE_FROM_ALL)
  install(FILES ${peer_scripts} DESTINATION ${native}/share/quern COMPONENT python EXCLUDE_FROM_ALL)
  if(NOT QUERN_SYSROOT) # else the command holds it
    find_library(QUERN_JANSSON_SHARED jansson REQUIRED)
    quern_bundle(${QUERN_JANSSON_SHARED})
  endif()
endif()
if(TARGET quernsim)
  install(TARGETS quernsim LIBRARY DESTINATION ${native_lib} NAMELINK_SKIP COMPONENT python EXCLUDE_FROM_ALL)
  install(TARGETS quern_decoder RUNTIME DESTINATION ${native_lib}/quern/sim COMPONENT python EXCLUDE_FROM_ALL)
  # The system runtime's names are empty libraries that need the simulator, as a wheel cannot hold links.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/hip_name.c CONTENT "// Made by cmake/python.cmake: no code of its own.\n" @ONLY)
  foreach(library libamdhip64 libhiprtc)
    foreach(suffix "" .6 .7)
      string(MAKE_C_IDENTIFIER "${library}${suffix}" name)
      add_library(${name} MODULE ${CMAKE_BINARY_DIR}/hip_name.c)
      set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${library} SUFFIX .so${suffix}
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/hip-names INSTALL_RPATH "$ORIGIN/../..")
      target_link_libraries(${name} PRIVATE -fuse-ld=lld -Wl,--no-as-needed quernsim)
      add_dependencies(quern_python ${name})
      install(TARGETS ${name} LIBRARY DESTINATION ${native_lib}/quern/sim COMPONENT python EXCLUDE_FROM_ALL)
    endforeach()
  endforeach()
endif()

set(share ${CMAKE_INSTALL_DATADIR})
if(SKBUILD) # without it, whoever installs the component gives the prefix
  set(share ${SKBUILD_DATA_DIR}/share)
endif()
install(FILES docs/quern.1 DESTINATION ${share}/man/man1 COMPONENT python_data EXCLUDE_FROM_ALL)
install(FILES cli/completion/quern.bash DESTINATION ${share}/bash-completion/completions RENAME quern
        COMPONENT python_data EXCLUDE_FROM_ALL)
install(FILES cli/completion/_quern DESTINATION ${share}/zsh/site-functions COMPONENT python_data EXCLUDE_FROM_ALL)
