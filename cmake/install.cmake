# SPDX-License-Identifier: Apache-2.0
# make install: libraries, headers, command, pkg-config file, CMake package, man page, completion.
include(CMakePackageConfigHelpers)
install(TARGETS quern EXPORT quern-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET quern_command)
  install(TARGETS quern_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/quern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${QUERN_DLPACK_INCLUDE}/quern/dlpack DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)
if(TARGET quernsim)
  install(TARGETS quernsim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
endif()
