# libwebp, WebP pictures (Debian: libwebp-dev), static where there is a choice. Libwebp::Libwebp.
find_path(Libwebp_INCLUDE_DIR webp/decode.h)
find_library(Libwebp_LIBRARY NAMES libwebp.a webp)
find_library(Libwebp_DEMUX_LIBRARY NAMES libwebpdemux.a webpdemux)  # chunks beside the pixels, in the same package
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libwebp REQUIRED_VARS Libwebp_LIBRARY Libwebp_DEMUX_LIBRARY Libwebp_INCLUDE_DIR)
mark_as_advanced(Libwebp_INCLUDE_DIR Libwebp_LIBRARY Libwebp_DEMUX_LIBRARY)
if(Libwebp_FOUND AND NOT TARGET Libwebp::Libwebp)
  add_library(Libwebp::decoder UNKNOWN IMPORTED)
  set_target_properties(Libwebp::decoder PROPERTIES IMPORTED_LOCATION ${Libwebp_LIBRARY})
  add_library(Libwebp::Libwebp UNKNOWN IMPORTED)
  set_target_properties(Libwebp::Libwebp PROPERTIES IMPORTED_LOCATION ${Libwebp_DEMUX_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Libwebp_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES Libwebp::decoder)
endif()
