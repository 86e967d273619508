# What a Python wheel holds beside the package: the operators and the command, laid out as python/bitorch_engine is. The
# torch folder is two up and beside, wherever the environment is.
if(NOT TARGET bie_ops OR NOT TARGET bie)
  message(FATAL_ERROR "bie: a wheel needs the operators and the command, so it cannot be built with BIE_KERNELS_ONLY")
endif()
set(bie_package bitorch_engine)
set_target_properties(bie_ops PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
set_target_properties(bie PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
install(TARGETS bie_ops LIBRARY DESTINATION ${bie_package}/lib COMPONENT wheel)
install(FILES $<TARGET_FILE_DIR:bie_ops>/torch_version.txt DESTINATION ${bie_package}/lib COMPONENT wheel)
install(TARGETS bie RUNTIME DESTINATION ${bie_package}/bin COMPONENT wheel)
