# libcsv (Debian: libcsv-dev), static where there is a choice: 10 kB that no package then depends on. Libcsv::Libcsv.
find_path(Libcsv_INCLUDE_DIR csv.h)
find_library(Libcsv_LIBRARY NAMES libcsv.a csv)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libcsv REQUIRED_VARS Libcsv_LIBRARY Libcsv_INCLUDE_DIR)
mark_as_advanced(Libcsv_INCLUDE_DIR Libcsv_LIBRARY)
if(Libcsv_FOUND AND NOT TARGET Libcsv::Libcsv)
  add_library(Libcsv::Libcsv UNKNOWN IMPORTED)
  set_target_properties(Libcsv::Libcsv PROPERTIES IMPORTED_LOCATION ${Libcsv_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Libcsv_INCLUDE_DIR})
endif()
