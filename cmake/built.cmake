# SPDX-License-Identifier: Apache-2.0
# Run by cmake --install: installs the native part of the Python package from the build in QUERN_BUILT, and the files
# for the environment's share/ into the folder `data`.
if(NOT EXISTS ${QUERN_BUILT}/CMakeCache.txt)
  message(FATAL_ERROR "QUERN_BUILT is ${QUERN_BUILT}, which is no build of quern: it has no CMakeCache.txt")
endif()
# `make` does not build the parts that only a wheel holds.
execute_process(COMMAND ${CMAKE_COMMAND} --build ${QUERN_BUILT} --target quern_python RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "QUERN_BUILT is ${QUERN_BUILT}, where quern_python cannot be built. A build that knows no such target "
                      "was configured without TVM-FFI's headers: run tools/setup.sh, then make.")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --install ${QUERN_BUILT} --component python --strip --prefix ${CMAKE_INSTALL_PREFIX}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${QUERN_BUILT} --component python_data --prefix ${data}
                COMMAND_ERROR_IS_FATAL ANY)

# That build gives libraries their full version and makes links by soname, but a wheel cannot hold links.
file(GLOB_RECURSE files "${CMAKE_INSTALL_PREFIX}/quern/_native/lib/*.so.*")
foreach(link ${files})
  if(IS_SYMLINK ${link})
    file(REAL_PATH ${link} library)
    file(REMOVE ${link})
    file(RENAME ${library} ${link})
  endif()
endforeach()
