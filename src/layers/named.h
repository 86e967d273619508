// Enumerators and their names in options and files.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <string>

namespace bie::layers {

template <class E>
struct Named {
  E value;
  const char* name;
};

template <class E, std::size_t N>
const char* name_of(const Named<E> (&table)[N], E value) {
  for (const Named<E>& entry : table)
    if (entry.value == value) return entry.name;
  return "unknown";
}

/// @throws c10::ValueError: `what`: expected this, that or that, got 'text'.
template <class E, std::size_t N>
E value_of(const Named<E> (&table)[N], const char* what, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < N; ++i) {
    if (text == table[i].name) return table[i].value;
    all += (i == 0 ? "" : i + 1 == N ? " or " : ", ") + std::string(table[i].name);
  }
  TORCH_CHECK_VALUE(false, what, ": expected ", all, ", got '", text, "'");
}

}  // namespace bie::layers
