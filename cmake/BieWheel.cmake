# What a Python wheel holds beside Python: for the package bie the operators, for bie-cli the command, whose half with torch
# uses the libraries of the package bie. torch's folder is beside the packages, wherever the environment is.
if(BIE_LLM_LIBRARY_ONLY)
  set_property(TARGET bie_llm_shared PROPERTY VERSION)  # a wheel holds no links
  set_property(TARGET bie_llm_shared PROPERTY SOVERSION)
  install(TARGETS bie_llm_shared LIBRARY DESTINATION bie/llm/lib COMPONENT wheel)
  return()
endif()
if(BIE_RUNTIME_ONLY)
  install(TARGETS bie_runtime_shared LIBRARY DESTINATION bie_runtime/lib COMPONENT wheel)
  return()
endif()
if(NOT TARGET bie_ops)
  message(FATAL_ERROR "bie: a wheel needs the operators, so it cannot be built with BIE_KERNELS_ONLY")
endif()
# The name of the folder of one torch, as python/bie/_library.py and bie_cli look for it.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" bie_torch_folder "${BIE_TORCH_VERSION}")
set(bie_torch_folder torch-${bie_torch_folder})
# Linked with the paths of the wheel, for those of a build folder would leave its length in what is installed.
set_target_properties(bie_ops PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../../../torch/lib")
install(TARGETS bie_core LIBRARY DESTINATION bie/lib COMPONENT bitorch_engine)
install(TARGETS bie_ops LIBRARY DESTINATION bie/lib/${bie_torch_folder} COMPONENT bitorch_engine_torch)
install(FILES $<TARGET_FILE_DIR:bie_ops>/torch_version.txt
  DESTINATION bie/lib/${bie_torch_folder} COMPONENT bitorch_engine_torch)
# The command's half with torch wants the operators of its own version.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/version.txt CONTENT "${PROJECT_VERSION}\n")
install(FILES ${CMAKE_BINARY_DIR}/version.txt DESTINATION bie/lib COMPONENT bitorch_engine)
set(bie_wheels bitorch_engine)
if(TARGET bie)
  set(bie_libraries "$ORIGIN/../../../bie/lib")
  set_target_properties(bie_torch_program PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${bie_libraries}/${bie_torch_folder};${bie_libraries};$ORIGIN/../../../torch/lib")
  install(TARGETS bie RUNTIME DESTINATION bie_cli/bin COMPONENT bie_cli)
  install(FILES ${CMAKE_BINARY_DIR}/version.txt DESTINATION bie_cli/lib COMPONENT bie_cli)
  install(TARGETS bie_torch_program RUNTIME DESTINATION bie_cli/lib/${bie_torch_folder} COMPONENT bie_cli_torch)
  list(APPEND bie_wheels bie_cli)
endif()
# What tools/make_wheels.sh built for other torches: the same components of other builds.
foreach(wheel IN LISTS bie_wheels)
  if(DEFINED ENV{BIE_OTHER_TORCHES})
    install(DIRECTORY $ENV{BIE_OTHER_TORCHES}/${wheel}/ DESTINATION . COMPONENT ${wheel}_torch USE_SOURCE_PERMISSIONS)
  endif()
endforeach()
