# SPDX-License-Identifier: Apache-2.0
# make install installs libraries, headers, command, pkg-config file, CMake package, man page and completion.
include(CMakePackageConfigHelpers)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quern)

install(TARGETS quern EXPORT quern-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT quern-targets NAMESPACE quern:: DESTINATION ${cmake_dir})
install(DIRECTORY include/quern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${QUERN_DLPACK_INCLUDE}/quern/dlpack DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/quern-config.cmake CONTENT
"include(\"\${CMAKE_CURRENT_LIST_DIR}/quern-targets.cmake\")\n" @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quern-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quern-config.cmake ${CMAKE_BINARY_DIR}/quern-config-version.cmake
        DESTINATION ${cmake_dir})

# pkg-config finds the prefix from the file's own place, so that an installed tree can be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
configure_file(cmake/quern.pc.in ${CMAKE_BINARY_DIR}/quern.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/quern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET quern_command)
  install(TARGETS quern_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(QUERN_SYSROOT) # a release brings the one library that it does not hold
  file(REAL_PATH ${QUERN_PTHREADPOOL} pthreadpool)
  install(PROGRAMS ${pthreadpool} DESTINATION ${CMAKE_INSTALL_LIBDIR}/quern RENAME libpthreadpool.so.0)
endif()

# The simulated GPU stands under its own name beside libquern. Under the system runtime's names it stands in a folder
# that only `quern sim` or the user's own LD_LIBRARY_PATH lets a program find; its own name is there, too, for programs
# that were linked there.
if(TARGET quernsim)
  install(TARGETS quernsim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
  install(TARGETS quern_decoder RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/quern/sim) # libquernsim starts it
  foreach(name libamdhip64.so libamdhip64.so.6 libamdhip64.so.7 libhiprtc.so libhiprtc.so.6 libhiprtc.so.7 libquernsim.so.0)
    install(CODE "
      set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/quern/sim\")
      file(MAKE_DIRECTORY \"\${folder}\")
      file(CREATE_LINK ../../libquernsim.so.0 \"\${folder}/${name}\" SYMBOLIC)
      list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/quern/sim/${name}\")")
  endforeach()
endif()

install(FILES docs/quern.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
set(peer_scripts bench/peers.py bench/peer_attention.py bench/peer_common.py bench/peer_rows.py) # of quern bench --peer
install(FILES ${peer_scripts} DESTINATION ${CMAKE_INSTALL_DATADIR}/quern)
install(FILES cli/completion/quern.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME quern)
install(FILES cli/completion/_quern DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
