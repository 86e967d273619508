# libexif, the notes that cameras leave in JPEG files (Debian: libexif-dev), static where there is a choice. Libexif::Libexif.
find_path(Libexif_INCLUDE_DIR libexif/exif-data.h)
find_library(Libexif_LIBRARY NAMES libexif.a exif)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libexif REQUIRED_VARS Libexif_LIBRARY Libexif_INCLUDE_DIR)
mark_as_advanced(Libexif_INCLUDE_DIR Libexif_LIBRARY)
if(Libexif_FOUND AND NOT TARGET Libexif::Libexif)
  add_library(Libexif::Libexif UNKNOWN IMPORTED)
  set_target_properties(Libexif::Libexif PROPERTIES IMPORTED_LOCATION ${Libexif_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Libexif_INCLUDE_DIR})
endif()
