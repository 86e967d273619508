// The list of all tables on CUDA; see bie/kernels/registry.h.
#pragma once

#include <string>
#include <vector>

#include "bie/kernels/cuda/conv2d.h"
#include "bie/kernels/cuda/gemm.h"
#include "bie/kernels/registry.h"

namespace bie::kernels::cuda {

struct Products : ProductsOf<GemmTable, Conv2dTable> {
  Conv2dTable grouped_conv2d;
};

/// Every width, narrowest first.
const std::vector<Products>& all_products();
/// The products of one code type, which must be bits, s4 or s8.
const Products& products_of(Dtype code);

/// Calls visit(name, table) with every table.
template <class Visit>
void for_each_table(const Visit& visit) {
  for (const Products& products : all_products()) visit(products.name + std::string("_gemm"), products.gemm);
  for (const Products& products : all_products()) visit(products.name + std::string("_conv2d"), products.conv2d);
  for (const Products& products : all_products())
    visit(products.name + std::string("_grouped_conv2d"), products.grouped_conv2d);
}

}  // namespace bie::kernels::cuda
