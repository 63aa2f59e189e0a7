# CMake toolchain: compiles for another system with zig (see python/wheels/build.py). Needs
# EDGEWISE_SYSTEM (Linux, Darwin or Windows), EDGEWISE_PROCESSOR and EDGEWISE_TARGET (as `zig cc
# -target` takes it).
set(CMAKE_SYSTEM_NAME ${EDGEWISE_SYSTEM})
set(CMAKE_SYSTEM_PROCESSOR ${EDGEWISE_PROCESSOR})
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-cc)
set(CMAKE_C_COMPILER_TARGET ${EDGEWISE_TARGET})
# CMake runs its checks of the compiler in projects of their own.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EDGEWISE_SYSTEM EDGEWISE_PROCESSOR EDGEWISE_TARGET)
# zig has the headers and libraries of the target: look for none on this machine.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# This machine's strip knows only its own format: the linker does it.
set(CMAKE_STRIP true)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
# Libraries need no other library of ours, so nothing is to be set when they are installed.
set(CMAKE_SKIP_RPATH ON)
if(EDGEWISE_SYSTEM STREQUAL "Darwin")
  set(CMAKE_OSX_SYSROOT "" CACHE STRING "" FORCE)
  set(CMAKE_INSTALL_NAME_TOOL true)
endif()
