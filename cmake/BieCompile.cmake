# Flags every target of ours shares, and the compiler of the kernel folders.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # In depend mode ccache preprocesses nothing before it compiles. A precompiled header has no macros of its own to be
  # compared, and is no text that could hold __TIME__.
  # Paths below the base are relative in what is kept, so that one build folder is served what another compiled; the base
  # is the namespace too, because a precompiled header knows the folders of the headers in it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NAMESPACE=${PROJECT_SOURCE_DIR} CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# The linker of a small library leaves out what nobody calls, function by function; the flags are those of every build,
# so that ccache has compiled a file once for all of them.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections> $<$<COMPILE_LANGUAGE:CXX>:-fdata-sections>)
# Messages name src/ops/..., not a folder of the machine that built it, nor ../../src/ops/...
file(RELATIVE_PATH bie_sources_from_build ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
add_library(bie_options INTERFACE)
target_compile_options(bie_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -ffp-contract=off
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${bie_sources_from_build}=)
if(BIE_WERROR)
  target_compile_options(bie_options INTERFACE -Werror)
endif()
if(BIE_SANITIZE)
  add_compile_options(-fsanitize=${BIE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_definitions(BIE_SANITIZED)  # g++ and clang tell it by different macros
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)  # found in std::regex, once it is instrumented
  elseif(BIE_SANITIZE STREQUAL "address,undefined")
    # A kernel makes a code of NaN too, and refuses it at its end. AddressSanitizer finds what null and object-size would.
    add_compile_options(-fno-sanitize=float-cast-overflow,null,object-size,vptr)
    # A function of more than 50 checks calls them: unrolled tiles are compiled in a quarter of the time.
    add_compile_options("SHELL:-mllvm -asan-instrumentation-with-call-threshold=50")
  endif()
  add_link_options(-fsanitize=${BIE_SANITIZE})
endif()

# clang reads torch's headers three times as fast as g++, and g++ 12 adds register moves in the hot loops of the ISA
# folders and halves the int8 tiles. The targets given to bie_use_clang are compiled with clang where it is installed: the
# launcher swaps the compiler, everything else is unchanged. A sanitizer build stays with one compiler, because the two
# runtimes do not mix.
find_program(BIE_CLANG NAMES clang++ clang++-19 clang++-16 clang++-14
             DOC "Compiler of the ISA folders and of what includes torch's headers; empty means the project's own")
if(BIE_CLANG AND NOT BIE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(BIE_USES_CLANG ON)
else()
  set(BIE_USES_CLANG OFF)
endif()
function(bie_use_clang target)
  if(BIE_USES_CLANG)
    set(launcher ${PROJECT_SOURCE_DIR}/cmake/swap_compiler.sh ${BIE_CLANG} ${CMAKE_CXX_COMPILER}
      ${CMAKE_CXX_COMPILER_LAUNCHER})
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    if(CMAKE_CROSSCOMPILING)
      target_compile_options(${target} PRIVATE --target=${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
    endif()
  endif()
endfunction()

# What the operators call of these targets may lie in another library, libbie_core.so of a wheel. Calls within one library
# stay direct.
function(bie_show_symbols target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default CUDA_VISIBILITY_PRESET default)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endfunction()

# Code of intrinsics: by clang where it is there. g++ 12 finds uninitialised variables in its own AVX-512 headers.
function(bie_compile_intrinsics target)
  bie_use_clang(${target})
  get_target_property(launcher ${target} CXX_COMPILER_LAUNCHER)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT launcher MATCHES "swap_compiler")
    target_compile_options(${target} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
endfunction()
