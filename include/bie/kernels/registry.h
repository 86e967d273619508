// The list of all tables. Dispatch by width, `bie doctor`, `bie tune`, the benches, the sweeps and the checks of the
// disassembly read it, so that a table is listed here and nowhere else.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bie/kernels/amax_codes.h"
#include "bie/kernels/attention.h"
#include "bie/kernels/attention_q8.h"
#include "bie/kernels/binary_conv2d.h"
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/block_tail.h"
#include "bie/kernels/code_step.h"
#include "bie/kernels/code_tail.h"
#include "bie/kernels/decoder_rows.h"
#include "bie/kernels/diode_mix.h"
#include "bie/kernels/double_gemm.h"
#include "bie/kernels/embedding.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/gradient.h"
#include "bie/kernels/half_gemm.h"
#include "bie/kernels/input_grad.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/kernels/mixed_gemm.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/quantize.h"
#include "bie/kernels/sigmoid.h"
#include "bie/kernels/sign_threshold.h"
#include "bie/kernels/weight_format.h"
#include "bie/kernels/weight_only_gemm.h"
#include "bie/kernels/weight_only_q8.h"
#include "bie/kernels/weight_values.h"

namespace bie::kernels {

/// The products of activations of one code with weights of one format, on one kind of device.
template <class Gemm, class Conv2d>
struct ProductsOf {
  const char* name;  ///< "b1xb1": the tables are b1xb1_gemm and b1xb1_conv2d
  Dtype code;        ///< of the activation: bits, s4 or s8
  WeightFormat weight;
  Gemm gemm;
  Conv2d conv2d;
};
using Products = ProductsOf<GemmTable, Conv2dTable>;

/// The products of one code type, which must be among them.
template <class P>
const P& with_code(const std::vector<P>& all, Dtype code) {
  std::size_t i = 0;
  while (all[i].code != code) ++i;
  return all[i];
}

/// Every width, narrowest first.
const std::vector<Products>& all_products();
/// The products of one code type, which must be bits, s4 or s8.
const Products& products_of(Dtype code);

/// Calls visit(name, table) with every table.
template <class Visit>
void for_each_table(const Visit& visit) {
  for (const Products& products : all_products()) visit(products.name + std::string("_gemm"), products.gemm);
  for (const Products& products : all_products()) visit(products.name + std::string("_conv2d"), products.conv2d);
  visit("sign_pack", sign_pack_table());
  visit("int4_pack", int4_pack_table());
  visit("quantize", quantize_table());
  visit("mean", mean_table());
  visit("amax_codes", amax_codes_table());
  visit("gradient", gradient_table());
  visit("input_grad", input_grad_table());
  visit("mixed_gemm", mixed_gemm_table());
  visit("diode_mix", diode_mix_table());
  visit("block_tail", block_tail_table());
  visit("code_tail", code_tail_table());
  visit("sign_threshold", sign_threshold_table());
  visit("float_gemm", float_gemm_table());
  visit("f16_gemm", f16_gemm_table());
  visit("bf16_gemm", bf16_gemm_table());
  visit("double_gemm", double_gemm_table());
  visit("float_conv2d", float_conv2d_table());
  visit("sigmoid", sigmoid_table());
  visit("weight_only_gemm", weight_only_gemm_table());
  visit("weight_only_q8", weight_only_q8_table());
  visit("weight_values", weight_values_table());
  visit("code_step", code_step_table());
  visit("embedding", embedding_table());
  visit("decoder_rows", decoder_rows_table());
  visit("attention", attention_table());
  visit("attention_f16", attention_f16_table());
  visit("attention_q8", attention_q8_table());
  visit("attention_q8_f16_keys", attention_q8_f16_keys_table());
}

}  // namespace bie::kernels
