# One precompiled header for everything that includes torch's: without it torch/nn/module.h costs each file 8 to 13
# seconds. A precompiled header wants the same flags of all its users, so programs are compiled as position-independent as
# libraries are, and the one file that needs OpenMP, src/ops/backend/cpu/torch_parallel.cpp, does without.
if(BIE_USES_CLANG)
  # As CMake's own Compiler/Clang.cmake has it: the compiler that CMake knows is another.
  set(CMAKE_PCH_EXTENSION .pch)
  set(CMAKE_CXX_COMPILE_OPTIONS_INVALID_PCH "")
  set(bie_pch_header <PCH_HEADER>)
  set(bie_pch_file <PCH_FILE>)
  if(CMAKE_GENERATOR MATCHES "Ninja")  # runs compilers in the build folder: these words are the same in every such folder
    file(RELATIVE_PATH bie_pch_header ${CMAKE_BINARY_DIR}
      ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/bie_torch_headers.dir/cmake_pch.hxx)
    set(bie_pch_file ${bie_pch_header}.pch)
  endif()
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -Xclang -include -Xclang ${bie_pch_header} -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH
    -Xclang -include-pch -Xclang ${bie_pch_file} -Xclang -include -Xclang ${bie_pch_header})
endif()

# Compiles a target with the precompiled header, or, given OWNER, makes it the one whose header the others use.
function(bie_use_torch_headers target)
  cmake_parse_arguments(arg "OWNER" "" "" ${ARGN})
  bie_use_clang(${target})
  # Loops of comparisons and square roots become vectors only where they need not set trap flags or errno, which nobody
  # reads; NaN and rounding stay as they are.
  target_compile_options(${target} PRIVATE -fno-math-errno -fno-trapping-math)
  if(BIE_USES_CLANG OR CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Templates are instantiated once, with the header; and it holds no times of files, so that ccache may keep it.
    target_compile_options(${target} PRIVATE -fpch-instantiate-templates -Xclang -fno-pch-timestamp)
  else()
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # for ccache
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(NOT arg_OWNER)
    target_precompile_headers(${target} REUSE_FROM bie_torch_headers)
  endif()
endfunction()

set(bie_torch_headers_source ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
file(CONFIGURE OUTPUT ${bie_torch_headers_source} CONTENT "// A precompiled header is compiled for a target with a source.\n")
add_library(bie_torch_headers OBJECT ${bie_torch_headers_source})
target_link_libraries(bie_torch_headers PRIVATE bie_torch bie_options)
# More, that a part of the project needs or finds, is added there.
target_precompile_headers(bie_torch_headers PRIVATE <torch/library.h> <torch/csrc/autograd/custom_function.h>)
bie_use_torch_headers(bie_torch_headers OWNER)
