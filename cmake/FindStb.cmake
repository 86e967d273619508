# stb's headers (Debian: libstb-dev), of which stb_image_resize.h is used. Stb::Stb.
find_path(Stb_INCLUDE_DIR stb/stb_image_resize.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Stb REQUIRED_VARS Stb_INCLUDE_DIR)
mark_as_advanced(Stb_INCLUDE_DIR)
if(Stb_FOUND AND NOT TARGET Stb::Stb)
  add_library(Stb::Stb INTERFACE IMPORTED)
  set_target_properties(Stb::Stb PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${Stb_INCLUDE_DIR})
endif()
