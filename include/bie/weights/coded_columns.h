// The linears of GPTQ's and GreenBit's files, as kernels take them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bie/formats/coded_layers.h"
#include "bie/kernels/weight_format.h"

namespace bie::weights {

/// W [k, n] of codes that stand in words along k. The words stay in the file's map, which this keeps open; of zeros,
/// groups and orders it keeps what kernels read, and of scales what the file holds or, where they are quantised
/// themselves, what they stand for.
///
///     W[i, j] = s * (q - z)      GPTQ, and GreenBit's with packed zeros: z = stored + 1, or stored in version 2
///     W[i, j] = s * q - z        GreenBit's others
///
/// Source: docs/spec/files.md#gptq, docs/spec/files.md#greenbit, docs/spec/weight-only.md#weights.
class CodedColumns {
 public:
  /// @param what  names the linear in sentences.
  /// @throws formats::Error naming it: an embedding, an entry that is missing, rows of mixed widths or an order of rows
  /// that are none, a scale or zero that is NaN or infinite once it is opened.
  CodedColumns(std::string what, const formats::CodedLayer& layer);

  const kernels::PackedWeight& weight() const { return weight_; }
  const std::string& what() const { return what_; }
  /// [k] that inputs are multiplied with first; null for none.
  const std::shared_ptr<const float[]>& channel_scale() const { return channel_scale_; }
  /// [n]; null for none.
  const std::shared_ptr<const float[]>& bias() const { return bias_; }

  /// Takes what has been read of the file out of this process; it is read again where it is wanted.
  void let_go() const;

 private:
  const formats::Array& need(const char* key) const;
  void put_runs();
  void put_groups();
  void put_order();
  void put_scales();
  void put_zeros();
  void put_doubly();
  void put_packed_zeros(int added);
  void put_float_offsets(std::vector<float> scales, std::vector<float> zeros);
  std::vector<float> opened(const char* codes, int shift, int mask, const char* zeros, const char* scales) const;
  [[noreturn]] void fail(const std::string& sentence) const;

  std::string what_;
  formats::CodedLayer layer_;
  kernels::PackedWeight weight_{};
  std::vector<kernels::BitRun> runs_;
  std::vector<std::int32_t> group_of_, input_of_, whole_zeros_;
  std::vector<float> scales_, zeros_;  ///< where the file's own are not what kernels read
  std::shared_ptr<const float[]> channel_scale_, bias_;
};

}  // namespace bie::weights
