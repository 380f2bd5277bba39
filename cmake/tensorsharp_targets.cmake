# Compile options and the two helpers every folder uses: ts_library and ts_test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# O2 keeps the clean build short; the kernels ask for O3 in their own folders.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_library(ts_options INTERFACE)
target_compile_options(ts_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -ffp-contract=off -fno-math-errno)
if(TENSORSHARP_WERROR)
  target_compile_options(ts_options INTERFACE -Werror)
endif()
target_include_directories(ts_options INTERFACE "${PROJECT_SOURCE_DIR}/include"
                                                "${PROJECT_SOURCE_DIR}/src")
if(TENSORSHARP_SANITIZE)
  # Everything is compiled with the sanitizer, kernels included.
  add_compile_options(-fsanitize=${TENSORSHARP_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENSORSHARP_SANITIZE})
endif()
if(TENSORSHARP_ENABLE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Test programs spend their time in the library, which keeps its optimization: with little of their
# own the clean build is a quarter shorter. ts_test(... OPTIMIZED) is for those that compute much.
set(ts_test_options $<$<CONFIG:Release>:-Og>)

# Precompiled headers keep the clean build short. One set for the folders, one for the tests; a
# target with compile options of its own sets DISABLE_PRECOMPILE_HEADERS.
file(WRITE "${CMAKE_BINARY_DIR}/empty.cc" "")
file(WRITE "${CMAKE_BINARY_DIR}/empty_main.cc" "int main() { return 0; }\n")
function(ts_precompiled_headers)
  set(common <algorithm> <array> <atomic> <cmath> <cstdint> <filesystem> <functional> <map> <memory>
             <optional> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
             <fmt/format.h> <nlohmann/json.hpp>)
  add_library(ts_library_headers STATIC "${CMAKE_BINARY_DIR}/empty.cc")
  target_link_libraries(ts_library_headers PRIVATE ts_options fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(ts_library_headers PRIVATE ${common})
  if(TENSORSHARP_ENABLE_TESTS)
    add_executable(ts_test_headers "${CMAKE_BINARY_DIR}/empty_main.cc")
    target_link_libraries(ts_test_headers PRIVATE ts_options fmt::fmt nlohmann_json::nlohmann_json
                                                  GTest::gtest GTest::gmock)
    target_compile_definitions(ts_test_headers PRIVATE
                               TS_TESTDATA_DIR="${PROJECT_SOURCE_DIR}/testdata")
    target_compile_options(ts_test_headers PRIVATE ${ts_test_options})
    target_precompile_headers(ts_test_headers PRIVATE ${common} <fstream> <sstream>
                              <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endfunction()

# ts_library(NAME SOURCES a.cc ... [DEPENDS ts_base ...] [LINK fmt::fmt ...])
# One static, position-independent library per source folder. DEPENDS are folders below it.
# With TENSORSHARP_UNITY several sources are compiled at once, which halves a clean build; a source
# that cannot share a translation unit sets SKIP_UNITY_BUILD_INCLUSION.
function(ts_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${TENSORSHARP_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  target_link_libraries(${name} PUBLIC ts_options ${ARG_DEPENDS}
                        PRIVATE ${ARG_LINK} fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} REUSE_FROM ts_library_headers)
  set_property(GLOBAL APPEND PROPERTY TS_LIBRARIES ${name})
endfunction()

# ts_test(NAME SOURCES a.cc ... [DEPENDS ts_base ...] [LINK ...] [LABELS slow ...] [TIMEOUT s]
#         [OPTIMIZED])
# One GoogleTest program, registered as one ctest test. TS_TESTDATA_DIR is defined for it.
function(ts_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "TIMEOUT" "SOURCES;DEPENDS;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${TENSORSHARP_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  target_link_libraries(${name} PRIVATE ts_options ${ARG_DEPENDS} ${ARG_LINK} GTest::gtest
                                        GTest::gmock GTest::gtest_main fmt::fmt
                                        nlohmann_json::nlohmann_json)
  if(NOT ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${ts_test_options})
    target_precompile_headers(${name} REUSE_FROM ts_test_headers)
  endif()
  target_compile_definitions(${name} PRIVATE TS_TESTDATA_DIR="${PROJECT_SOURCE_DIR}/testdata")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# ts_fuzz(NAME SOURCES target.cc [DEPENDS ...] [LINK ...])
# The source defines LLVMFuzzerTestOneInput. With the fuzz preset this is a libFuzzer program; in
# every other build it is a program that replays the corpus in the source folder's corpus/
# (registered with ctest, label "fuzz").
function(ts_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ts_options ${ARG_DEPENDS} ${ARG_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
  if(TENSORSHARP_ENABLE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc")
  endif()
  add_test(NAME ${name} COMMAND ${name} $<$<BOOL:${TENSORSHARP_ENABLE_FUZZ}>:-runs=0>
           "${CMAKE_CURRENT_SOURCE_DIR}/corpus")
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS fuzz)
endfunction()
