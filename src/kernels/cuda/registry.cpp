#include "bie/kernels/cuda/registry.h"

namespace bie::kernels::cuda {

const std::vector<Products>& all_products() {
  static const std::vector<Products> products = {
      {{"b1xb1", Dtype::bits, tensor_format(1), b1xb1_gemm_table(), b1xb1_conv2d_table()},
       b1xb1_grouped_conv2d_table()},
      {{"s4xs4", Dtype::s4, tensor_format(4), s4xs4_gemm_table(), s4xs4_conv2d_table()}, s4xs4_grouped_conv2d_table()},
      {{"s8xs8", Dtype::s8, tensor_format(8), s8xs8_gemm_table(), s8xs8_conv2d_table()}, s8xs8_grouped_conv2d_table()},
  };
  return products;
}

const Products& products_of(Dtype code) { return with_code(all_products(), code); }

}  // namespace bie::kernels::cuda
