# libwebp, WebP pictures (Debian: libwebp-dev), static where there is a choice. Libwebp::Libwebp.
find_path(Libwebp_INCLUDE_DIR webp/decode.h)
find_library(Libwebp_LIBRARY NAMES libwebp.a webp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libwebp REQUIRED_VARS Libwebp_LIBRARY Libwebp_INCLUDE_DIR)
mark_as_advanced(Libwebp_INCLUDE_DIR Libwebp_LIBRARY)
if(Libwebp_FOUND AND NOT TARGET Libwebp::Libwebp)
  add_library(Libwebp::Libwebp UNKNOWN IMPORTED)
  set_target_properties(Libwebp::Libwebp PROPERTIES IMPORTED_LOCATION ${Libwebp_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Libwebp_INCLUDE_DIR})
endif()
