# What `cmake --install` lays down. Two export sets, so that the kernels of a full installation can be used where torch
# is absent: find_package(bie COMPONENTS kernels) never looks for it.
include(CMakePackageConfigHelpers)
set(bie_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bie)

install(TARGETS bie_kernels EXPORT bieKernelsTargets)
if(TARGET bie_runtime)
  install(TARGETS bie_runtime EXPORT bieKernelsTargets)
  if(TARGET bie_runtime_shared)
    install(TARGETS bie_runtime_shared EXPORT bieKernelsTargets)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/bie/runtime DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bie
    PATTERN net_builder.h EXCLUDE PATTERN net_ops.h EXCLUDE)
endif()
if(TARGET bie_llm_shared)
  install(TARGETS bie_llm_shared EXPORT bieKernelsTargets)
  install(FILES ${PROJECT_SOURCE_DIR}/include/bie/llm/bie_llm.h ${PROJECT_SOURCE_DIR}/include/bie/llm/language_model.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bie/llm)
endif()
install(EXPORT bieKernelsTargets NAMESPACE bie:: DESTINATION ${bie_package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/bie/kernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bie)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET bie_ops)
  # The torch this was built with is where libbie_ops.so looks first; a program that has loaded torch already, as Python
  # has, never gets that far.
  set_target_properties(bie_ops PROPERTIES EXPORT_NAME ops INSTALL_RPATH "$ORIGIN;${BIE_TORCH_DIR}/lib")
  # bie_torch is exported empty; bieConfig.cmake fills it with the torch of the machine that uses the package.
  set_target_properties(bie_torch PROPERTIES EXPORT_NAME torch)
  set(bie_torch_targets bie_torch bie_ops)
  if(TARGET bie_train)
    list(APPEND bie_torch_targets bie_formats bie_data bie_layers bie_optim bie_models bie_train)
  endif()
  install(TARGETS ${bie_torch_targets} EXPORT bieTorchTargets)
  install(EXPORT bieTorchTargets NAMESPACE bie:: DESTINATION ${bie_package_dir})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/bie DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/TorchWheel.cmake ${PROJECT_SOURCE_DIR}/cmake/FindLibcsv.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindTurboJPEG.cmake ${PROJECT_SOURCE_DIR}/cmake/FindLibwebp.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindLibexif.cmake
    DESTINATION ${bie_package_dir})
endif()
if(TARGET bie)
  install(TARGETS bie)
endif()
if(TARGET bie_torch_program)
  set_target_properties(bie_torch_program PROPERTIES
    INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};${BIE_TORCH_DIR}/lib")
  install(TARGETS bie_torch_program DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/bie)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/bieConfig.cmake.in ${PROJECT_BINARY_DIR}/bieConfig.cmake
  INSTALL_DESTINATION ${bie_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bieConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bieConfig.cmake ${PROJECT_BINARY_DIR}/bieConfigVersion.cmake
  DESTINATION ${bie_package_dir})

# cpack: an archive, and a package for Debian, of what runs nets.
if(BIE_RUNTIME_ONLY)
  set(CPACK_PACKAGE_NAME bie-runtime)
  set(CPACK_PACKAGE_VENDOR bie)
  set(CPACK_PACKAGE_CONTACT "the bie project")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs low-bit neural networks that bie exported")
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_GENERATOR TGZ DEB)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libstdc++6, libpng16-16 | libpng16-16t64, zlib1g")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  include(CPack)
endif()
