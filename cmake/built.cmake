# SPDX-License-Identifier: Apache-2.0
# Run by cmake --install: the native part of the Python package out of the build in QUERN_BUILT.
execute_process(COMMAND ${CMAKE_COMMAND} --install ${QUERN_BUILT} --component python --strip --prefix ${CMAKE_INSTALL_PREFIX}
                COMMAND_ERROR_IS_FATAL ANY)

# That build gives libraries their full version and links by soname; a wheel cannot hold links.
file(GLOB_RECURSE files "${CMAKE_INSTALL_PREFIX}/quern/_native/lib/*.so.*")
foreach(link ${files})
  if(IS_SYMLINK ${link})
    file(REAL_PATH ${link} library)
    file(REMOVE ${link})
    file(RENAME ${library} ${link})
  endif()
endforeach()
