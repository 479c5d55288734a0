# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache where it is found: the host's sources, and the kernels (cmake/kernels.cmake). quern_launcher is what comes
# before the compiler; a launcher that the user named is left alone, and then serves the host's sources.
option(QUERN_CCACHE "compile through ccache, if there is one" ON)
set(quern_launcher "")
if(QUERN_CCACHE)
  find_program(QUERN_CCACHE_PROGRAM ccache)
  if(QUERN_CCACHE_PROGRAM)
    # What the compiler says that it read goes into the key: ccache itself does not see what #embed reads.
    set(quern_launcher env CCACHE_DEPEND=1 ${QUERN_CCACHE_PROGRAM})
  endif()
endif()
if(NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${quern_launcher})
endif()
