# Two precompiled headers for what includes torch's: the operators' and, with torch/nn/module.h, which costs a file 8 to 13
# seconds, that of the rooms above them. The wheel's build has the first too, so ccache has its operators. A precompiled
# header wants the same flags of all its users, so programs are compiled as position-independent as libraries are, and the
# one file that needs OpenMP, src/ops/backend/cpu/torch_parallel.cpp, does without.

# Compiles a target with the precompiled header of FROM, or, given OWNER, makes it one whose header others use.
function(bie_use_torch_headers target)
  cmake_parse_arguments(arg "OWNER" "FROM" "" ${ARGN})
  if(NOT arg_FROM)
    set(arg_FROM bie_module_headers)
  endif()
  bie_use_clang(${target})
  # Loops of comparisons and square roots become vectors only where they need not set trap flags or errno, which nobody
  # reads; NaN and rounding stay as they are.
  target_compile_options(${target} PRIVATE -fno-math-errno -fno-trapping-math)
  # At -O1 torch's templates take clang twice as long. The loops are in the kernels, which keep -O1.
  if(BIE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
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
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  endif()
endfunction()

# Adds a target whose precompiled header holds torch's registration of operators and the headers after `name`. A folder of
# the tree has one at most: its targets and those of the folders below it name it in their commands.
macro(bie_add_torch_headers name)
  if(BIE_USES_CLANG)
    # As CMake's own Compiler/Clang.cmake has it: the compiler that CMake knows is another.
    set(CMAKE_PCH_EXTENSION .pch)
    set(CMAKE_CXX_COMPILE_OPTIONS_INVALID_PCH "")
    set(bie_pch_header <PCH_HEADER>)
    set(bie_pch_file <PCH_FILE>)
    if(CMAKE_GENERATOR MATCHES "Ninja")  # runs compilers in the build folder: these words are the same in every such folder
      file(RELATIVE_PATH bie_pch_header ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx)
      set(bie_pch_file ${bie_pch_header}.pch)
    endif()
    set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -Xclang -include -Xclang ${bie_pch_header} -x c++-header)
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH
      -Xclang -include-pch -Xclang ${bie_pch_file} -Xclang -include -Xclang ${bie_pch_header})
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp
    CONTENT "// A precompiled header is compiled for a target with a source.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE bie_torch bie_options)
  target_precompile_headers(${name} PRIVATE <torch/library.h> <torch/csrc/autograd/custom_function.h> ${ARGN})
  bie_use_torch_headers(${name} OWNER)
endmacro()
