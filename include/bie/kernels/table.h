// A kernel's table of rows and the choice among them. Dispatch, tests, benches and `bie doctor` read the same table.
#pragma once

#include <cstdint>
#include <cstring>

#include "bie/kernels/isa.h"

namespace bie::kernels {

/// Rows best first; the last one is the reference and takes every shape on every machine.
template <class Row>
struct Table {
  const Row* rows;
  int count;
  const Row* begin() const { return rows; }
  const Row* end() const { return rows + count; }
  const Row& back() const { return rows[count - 1]; }
};

/// Whether one of these instruction sets runs the row and the row takes this shape.
template <class Row, class Shape>
bool fits(const Row& row, const Shape& shape, IsaSet isas) {
  return isas.has(row.isa) && (row.accepts == nullptr || row.accepts(shape));
}

/// The first row that fits. A pure function.
template <class Row, class Shape>
const Row& choose(const Table<Row>& table, const Shape& shape, IsaSet isas) {
  for (const Row& row : table)
    if (fits(row, shape, isas)) return row;
  return table.back();
}

/// The row of that name, or null.
template <class Row>
const Row* find(const Table<Row>& table, const char* name) {
  for (const Row& row : table)
    if (std::strcmp(row.name, name) == 0) return &row;
  return nullptr;
}

}  // namespace bie::kernels
