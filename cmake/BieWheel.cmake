# What a Python wheel holds beside Python: for the package bie the operators, for bie-cli the command with a copy of its own
# of them, each inside its package. The torch folder is two up and beside, wherever the environment is.
if(NOT TARGET bie_ops)
  message(FATAL_ERROR "bie: a wheel needs the operators, so it cannot be built with BIE_KERNELS_ONLY")
endif()
set(bie_package bie)
if(TARGET bie)
  set(bie_package bie_cli)
  set_target_properties(bie PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
  install(TARGETS bie RUNTIME DESTINATION ${bie_package}/bin COMPONENT wheel)
endif()
set_target_properties(bie_ops PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
install(TARGETS bie_ops LIBRARY DESTINATION ${bie_package}/lib COMPONENT wheel)
install(FILES $<TARGET_FILE_DIR:bie_ops>/torch_version.txt DESTINATION ${bie_package}/lib COMPONENT wheel)
