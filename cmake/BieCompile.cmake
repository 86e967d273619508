# Flags every target of ours shares, and the compiler of the kernel folders.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(bie_options INTERFACE)
target_compile_options(bie_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -ffp-contract=off
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)  # messages name src/ops/..., not a folder of the machine that built it
if(BIE_WERROR)
  target_compile_options(bie_options INTERFACE -Werror)
endif()
if(BIE_SANITIZE)
  add_compile_options(-fsanitize=${BIE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BIE_SANITIZE})
endif()

# g++ 12 adds register moves in the hot loops and halves the int8 tiles; clang does not. The ISA folders are compiled
# with clang where it is installed: the launcher swaps the compiler, everything else is unchanged. A sanitizer build
# stays with one compiler, because the two runtimes do not mix.
find_program(BIE_KERNEL_COMPILER NAMES clang++ clang++-19 clang++-16 clang++-14
             DOC "Compiler of the ISA folders; empty means the project's own")
function(bie_use_kernel_compiler target)
  if(BIE_KERNEL_COMPILER AND NOT BIE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_target_properties(${target} PROPERTIES
      CXX_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/swap_compiler.sh;${BIE_KERNEL_COMPILER};${CCACHE_PROGRAM}")
  endif()
endfunction()
