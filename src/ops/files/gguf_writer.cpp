// GGUF's writer for Python: gguf_blocks, gguf_rounded, gguf_write.
#include "bie/formats/gguf_writer.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "ops/dispatcher.h"
#include "ops/files/file_tensors.h"
#include "ops/files/gguf_types.h"

namespace bie::ops {
namespace {

using formats::GgufValue;
using formats::GgufValueType;

const formats::GgufType& type_of(const std::string& what, const std::string& name) {
  const formats::GgufType* type = formats::gguf_type(name);
  TORCH_CHECK_VALUE(type != nullptr, what, ": there is no type ", name);
  return *type;
}

template <class T>
std::vector<T> values_of(const at::Tensor& t) {
  const at::Tensor dense = t.contiguous();
  const T* data = static_cast<const T*>(dense.const_data_ptr());
  return {data, data + dense.numel()};
}

at::Tensor gguf_blocks(std::string what, std::string type, const at::Tensor& words, const at::Tensor& scales,
                       const OptTensor& zeros, std::int64_t zero, std::int64_t bits, std::int64_t columns,
                       std::int64_t group_size) {
  const formats::GgufType& found = type_of(what, type);
  formats::CodedRows w;
  w.rows = words.size(0);
  w.columns = columns;
  w.bits = static_cast<int>(bits);
  w.group = group_size;
  w.zero = static_cast<int>(zero);
  const bool fits = bits >= 1 && bits <= 8 && columns >= 1 && group_size >= 1 && words.dim() == 2 &&
                    words.scalar_type() == at::kInt && words.size(1) == w.row_words() && scales.dim() == 2 &&
                    scales.size(0) == w.rows && scales.size(1) == w.groups() && scales.scalar_type() == at::kFloat &&
                    (!zeros.has_value() || (zeros->sizes() == scales.sizes() && zeros->scalar_type() == at::kFloat));
  TORCH_CHECK_VALUE(fits, what, ": words ", words.sizes(), " and scales ", scales.sizes(), " are not rows of ", columns,
                    " codes of ", bits, " bits in groups of ", group_size);
  w.words = values_of<std::uint32_t>(words);
  w.scales = values_of<float>(scales);
  if (zeros.has_value()) w.zeros = values_of<float>(*zeros);
  return with_file_errors([&] {
    std::vector<std::uint8_t> blocks = formats::gguf_blocks(what, found, w);
    const auto size = static_cast<std::int64_t>(blocks.size());
    return tensor_of(std::move(blocks), at::kByte, {size});
  });
}

at::Tensor gguf_rounded(const at::Tensor& values, std::string what, std::string type) {
  const formats::GgufType& found = type_of(what, type);
  TORCH_CHECK_VALUE(values.dim() >= 1 && values.scalar_type() == at::kFloat, what,
                    ": the values: expected float32 of one axis or more, got ", values.sizes(), " of ",
                    values.scalar_type());
  const at::Tensor dense = values.contiguous();
  const std::int64_t columns = values.size(-1), rows = columns > 0 ? values.numel() / columns : 0;
  return with_file_errors([&] {
    std::vector<std::uint8_t> blocks = formats::gguf_rounded(what, found, dense.const_data_ptr<float>(), rows, columns);
    const auto size = static_cast<std::int64_t>(blocks.size());
    return tensor_of(std::move(blocks), at::kByte, {size});
  });
}

/// Numbers of int64 or float64, as many as the tensor has; one where it has no axis.
template <class Kept, class From>
void take_numbers(const at::Tensor& from, GgufValue* value) {
  std::vector<Kept> list;
  for (const From number : values_of<From>(from)) list.push_back(static_cast<Kept>(number));
  if (from.dim() == 0)
    value->value = list.at(0);
  else
    value->value = std::move(list);
}

void gguf_write(std::string path, std::vector<std::string> keys, std::vector<std::string> key_types,
                const std::vector<at::Tensor>& numbers, std::vector<std::string> texts,
                std::vector<std::int64_t> text_counts, std::vector<std::string> names, std::vector<std::string> types,
                std::vector<std::int64_t> sizes, std::vector<std::int64_t> ranks,
                const std::vector<at::Tensor>& bytes) {
  TORCH_CHECK_VALUE(keys.size() == key_types.size() && keys.size() == numbers.size() &&
                        keys.size() == text_counts.size() && names.size() == types.size() &&
                        names.size() == ranks.size() && names.size() == bytes.size(),
                    "gguf_write: lists of two lengths");
  std::map<std::string, GgufValue> metadata;
  auto text = texts.begin();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    GgufValue value{gguf_value_type("gguf_write: " + keys[i], key_types[i]), {}};
    if (value.type == GgufValueType::string) {
      // -1 text is one that is no list.
      const auto count = std::max<std::int64_t>(text_counts[i], text_counts[i] == -1 ? 1 : 0);
      TORCH_CHECK_VALUE(count <= texts.end() - text, "gguf_write: ", keys[i], " wants ", count, " texts");
      if (text_counts[i] == -1)
        value.value = *text;
      else
        value.value = std::vector<std::string>(text, text + count);
      text += count;
    } else if (numbers[i].scalar_type() == at::kDouble) {
      take_numbers<double, double>(numbers[i], &value);
    } else if (value.type == GgufValueType::i8 || value.type == GgufValueType::i16 ||
               value.type == GgufValueType::i32 || value.type == GgufValueType::i64) {
      take_numbers<std::int64_t, std::int64_t>(numbers[i], &value);
    } else {
      take_numbers<std::uint64_t, std::int64_t>(numbers[i], &value);
    }
    metadata[keys[i]] = std::move(value);
  }
  std::vector<formats::GgufOutput> outputs;
  std::vector<at::Tensor> held;
  auto size = sizes.begin();
  for (std::size_t i = 0; i < names.size(); ++i) {
    TORCH_CHECK_VALUE(ranks[i] >= 0 && ranks[i] <= sizes.end() - size, "gguf_write: ", names[i], " wants ", ranks[i],
                      " sizes");
    held.push_back(bytes[i].contiguous());
    outputs.push_back({names[i],
                       {size, size + ranks[i]},
                       &type_of("gguf_write: " + names[i], types[i]),
                       static_cast<const std::uint8_t*>(held.back().const_data_ptr()),
                       static_cast<std::int64_t>(held.back().nbytes())});
    size += ranks[i];
  }
  with_file_errors([&] { formats::save_gguf(path, metadata, outputs); });
}

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) {
  m.impl("gguf_blocks", bie::ops::gguf_blocks);
  m.impl("gguf_rounded", bie::ops::gguf_rounded);
}
TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) { m.impl("gguf_write", bie::ops::gguf_write); }
