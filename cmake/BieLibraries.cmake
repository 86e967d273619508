# The libraries of layers, files, reports and the command; what is missing is named in one sentence.
set(bie_missing "")
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost says itself where it is
endif()
set(bie_libraries ZLIB=zlib1g-dev PNG=libpng-dev Libcsv=libcsv-dev TurboJPEG=libturbojpeg0-dev Libwebp=libwebp-dev Libexif=libexif-dev Stb=libstb-dev
  nlohmann_json=nlohmann-json3-dev CLI11=libcli11-dev spdlog=libspdlog-dev)
# Protobuf's small library alone, and in the program: what runs nets depends on no other package.
set(Protobuf_USE_STATIC_LIBS ON)
list(APPEND bie_libraries Protobuf=libprotobuf-dev Pcre2=libpcre2-dev Utf8proc=libutf8proc-dev Boost=libboost-dev)
foreach(library ${bie_libraries})
  string(REPLACE "=" ";" library ${library})
  list(POP_FRONT library name)
  if(SKBUILD AND name STREQUAL "PNG")
    set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)  # the machine that runs a wheel need not have it
  endif()
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND bie_missing "${name} (${library})")
  endif()
endforeach()
if(Protobuf_FOUND AND NOT TARGET protobuf::protoc)
  list(APPEND bie_missing "protoc (protobuf-compiler)")
endif()
if(bie_missing)
  list(JOIN bie_missing ", " bie_missing)
  message(FATAL_ERROR "bie: these libraries are missing (in brackets the packages of Debian and Ubuntu): ${bie_missing}")
endif()
