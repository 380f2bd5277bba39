# make install: programs, shared library, public headers, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS tensorsharp_shared EXPORT tensorsharp_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tensorsharp"
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
foreach(program tensorsharp ts-cli)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/THIRD_PARTY.md"
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tensorsharp")
install(EXPORT tensorsharp_targets NAMESPACE tensorsharp:: DESTINATION ${package_dir}
        FILE tensorsharpTargets.cmake)
file(WRITE "${CMAKE_BINARY_DIR}/tensorsharpConfig.cmake"
     "include(\"\${CMAKE_CURRENT_LIST_DIR}/tensorsharpTargets.cmake\")\n")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/tensorsharpConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/tensorsharpConfig.cmake"
              "${CMAKE_BINARY_DIR}/tensorsharpConfigVersion.cmake" DESTINATION ${package_dir})

# Relative, so that an installed tree can be moved.
file(RELATIVE_PATH PKGCONFIG_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tensorsharp.pc.in" "${CMAKE_BINARY_DIR}/tensorsharp.pc"
               @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/tensorsharp.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
