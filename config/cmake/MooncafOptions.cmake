# Warnings, language standard, include root and sanitizers, for every target of ours: link `mooncaf_options`.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# One kind of position-independent code for libraries and programs, so that both can use one precompiled header.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})

# Line tables and no more: stack traces name file and line, a debugger shows no variables. Full debug information is a
# quarter of the compiler's time and seven eighths of the binary (-DMOONCAF_DEBUG_INFO=-g has it).
set(MOONCAF_DEBUG_INFO "-g1" CACHE STRING "What of debug information RelWithDebInfo keeps")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 ${MOONCAF_DEBUG_INFO} -DNDEBUG")

set(MOONCAF_SANITIZE "" CACHE STRING "Sanitizers: 'address,undefined' or 'thread'")
option(MOONCAF_FUZZ "Build the fuzz targets, and all of the product for them (clang only; with address,undefined)" OFF)
if(MOONCAF_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MOONCAF_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++-14")
  endif()
  set(MOONCAF_SANITIZE "address,undefined")
endif()

find_package(Threads REQUIRED)
find_program(MOONCAF_CCACHE ccache)
if(MOONCAF_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this ccache takes no part where a precompiled header does.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${MOONCAF_CCACHE})
endif()
find_program(MOONCAF_MOLD mold)

add_library(mooncaf_options INTERFACE)
target_compile_features(mooncaf_options INTERFACE cxx_std_20)
target_include_directories(mooncaf_options INTERFACE ${CMAKE_SOURCE_DIR})
option(MOONCAF_WERROR "A warning is an error" OFF)
target_compile_options(mooncaf_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
# GCC 12 sees memory written past its end in strings and vectors of the standard library that it has inlined (bug 105329):
# a page of such warnings would be the first that a new user reads of us.
target_compile_options(mooncaf_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-restrict
  -Wno-stringop-overflow -Wno-stringop-overread>)
if(MOONCAF_WERROR)
  target_compile_options(mooncaf_options INTERFACE -Werror)
endif()
# GCC collects its garbage once half a gigabyte is in use, not at an eighth of that: a twentieth of a large source's time.
target_compile_options(mooncaf_options INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=100 --param=ggc-min-heapsize=524288>)
target_link_libraries(mooncaf_options INTERFACE Threads::Threads)
# What nobody calls does not get into a binary; tests/house/unwired.py reads what was thrown away.
target_compile_options(mooncaf_options INTERFACE -ffunction-sections -fdata-sections)
target_link_options(mooncaf_options INTERFACE -Wl,--gc-sections)
if(MOONCAF_MOLD)
  target_link_options(mooncaf_options INTERFACE -fuse-ld=mold)
endif()
# For commands, which run once and wait for others: a fifth less of the compiler's time.
add_library(mooncaf_runs_once INTERFACE)
target_compile_options(mooncaf_runs_once INTERFACE -O1)
if(MOONCAF_SANITIZE)
  # -O1: half the compiler's time of -O2, since much of what is instrumented would be optimised in vain.
  target_compile_options(mooncaf_options INTERFACE -fsanitize=${MOONCAF_SANITIZE} -fno-omit-frame-pointer -O1)
  target_link_options(mooncaf_options INTERFACE -fsanitize=${MOONCAF_SANITIZE})
  if(MOONCAF_FUZZ)
    # A third less of clang's time: checks of addresses are calls, and alignment and the ends of pointers are left to the
    # nightly build, where GCC looks at them.
    target_compile_options(mooncaf_options INTERFACE -fsanitize=fuzzer-no-link -fsanitize-address-outline-instrumentation)
  endif()
  if(MOONCAF_SANITIZE MATCHES "undefined")
    # CAF 0.17 binds null references in its init functions and its intrusive queues trip vptr. What object-size sees
    # AddressSanitizer sees, and it takes a sixth of clang's time.
    target_compile_options(mooncaf_options INTERFACE -fno-sanitize=null,vptr,object-size -fno-sanitize-recover=all
      $<$<BOOL:${MOONCAF_FUZZ}>:-fno-sanitize=alignment,pointer-overflow>)
  endif()
endif()
