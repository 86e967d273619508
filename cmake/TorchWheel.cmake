# torch from the wheel in the project's environment, as an imported target of our own: find_package(Torch) of a CUDA
# wheel demands a CUDA toolkit, which a user of the CPU does not have.
if(SKBUILD)
  set(BIE_PYTHON ${Python_EXECUTABLE})  # the Python that builds a wheel: its torch is the one the metadata requires
endif()
find_program(BIE_PYTHON NAMES python3 python HINTS ${PROJECT_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH
             DOC "The Python whose torch we build against")
if(NOT BIE_PYTHON)
  find_program(BIE_PYTHON NAMES python3 python REQUIRED)
endif()
set(BIE_TORCH_DIR "" CACHE PATH "The folder torch; empty: that of BIE_PYTHON")
if(NOT BIE_TORCH_DIR)
  # pip hides the environment that it builds for by PYTHON variables, which -E ignores.
  foreach(bie_ignores "" -E)
    execute_process(
      COMMAND ${BIE_PYTHON} ${bie_ignores} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
      OUTPUT_VARIABLE BIE_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE bie_torch_missing)
    if(NOT bie_torch_missing)
      break()
    endif()
  endforeach()
  if(bie_torch_missing)
    message(FATAL_ERROR "bie: ${BIE_PYTHON} has no torch. Run `make setup`, name another with -DBIE_PYTHON=..., "
                        "or build the kernels alone with -DBIE_KERNELS_ONLY=ON.")
  endif()
endif()
file(STRINGS ${BIE_TORCH_DIR}/version.py bie_torch_version_line REGEX "^__version__ ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" BIE_TORCH_VERSION "${bie_torch_version_line}")
message(STATUS "bie: torch ${BIE_TORCH_VERSION} from ${BIE_TORCH_DIR}")

# A C++ library of our own beside torch's has other locales: the first refusal that prints a size would crash. Where
# nvcc's host compiler keeps its libraries is searched first.
foreach(compiler ${CMAKE_CXX_COMPILER} ${CMAKE_CUDA_HOST_COMPILER})
  execute_process(COMMAND ${compiler} -print-file-name=libstdc++.so
                  OUTPUT_VARIABLE bie_shared_libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS "${bie_shared_libstdcxx}")
    # What CMake keeps of these compilers goes, so that the next try takes others.
    unset(CMAKE_CXX_COMPILER CACHE)
    unset(CMAKE_CUDA_HOST_COMPILER CACHE)
    file(REMOVE_RECURSE ${CMAKE_PLATFORM_INFO_DIR})
    message(FATAL_ERROR "bie: ${compiler} has no shared libstdc++, which torch and its operators must have in common; "
                        "name another compiler in the environment variables CXX and CUDAHOSTCXX.")
  endif()
endforeach()

foreach(library c10.so torch_cpu.so gomp.so.1)
  string(REGEX REPLACE "\\.so.*" "" name ${library})
  add_library(bie_torch_${name} SHARED IMPORTED)
  set_target_properties(bie_torch_${name} PROPERTIES IMPORTED_LOCATION ${BIE_TORCH_DIR}/lib/lib${library})
endforeach()
add_library(bie_torch INTERFACE)
target_include_directories(bie_torch SYSTEM INTERFACE
  $<BUILD_INTERFACE:${BIE_TORCH_DIR}/include> $<BUILD_INTERFACE:${BIE_TORCH_DIR}/include/torch/csrc/api/include>)
file(RELATIVE_PATH bie_torch_from_build ${CMAKE_BINARY_DIR} ${BIE_TORCH_DIR})
target_compile_options(bie_torch INTERFACE
  $<BUILD_INTERFACE:-fmacro-prefix-map=${BIE_TORCH_DIR}/=torch/>
  $<BUILD_INTERFACE:-fmacro-prefix-map=${bie_torch_from_build}/=torch/>)
# torch's own libgomp: another copy would start a second pool of threads.
target_link_libraries(bie_torch INTERFACE
  $<BUILD_INTERFACE:bie_torch_torch_cpu> $<BUILD_INTERFACE:bie_torch_c10> $<BUILD_INTERFACE:bie_torch_gomp>)
