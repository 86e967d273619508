# bie_embed_digits(TARGET): compiles the handwritten digits of scikit-learn into a target, as declared in src/data/digits.h.
function(bie_embed_digits target)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/digits.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${BIE_PYTHON} ${PROJECT_SOURCE_DIR}/tools/make_digits.py ${output}
    DEPENDS ${PROJECT_SOURCE_DIR}/tools/make_digits.py
    COMMENT "Writing the digits data set"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()
