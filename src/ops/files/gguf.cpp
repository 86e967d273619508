// GGUF's reader for Python: gguf_read, gguf_codes.
#include "bie/formats/gguf.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "bie/formats/error.h"
#include "ops/files/file_tensors.h"
#include "ops/files/gguf_types.h"
#include "ops/files/json.h"

namespace bie::ops {
namespace {

using formats::GgufValue;

std::string json_of(const GgufValue& value);
std::string json_of(const std::string& text) { return json_text(text); }
std::string json_of(double number) { return json_number(number); }
std::string json_of(std::uint64_t number) { return std::to_string(number); }
std::string json_of(std::int64_t number) { return std::to_string(number); }
template <class T>
std::string json_of(const std::vector<T>& list) {
  JsonList json('[');
  for (const T& part : list) json.add(json_of(part));
  return json.close();
}
std::string json_of(const GgufValue& value) {
  return std::visit([](const auto& v) { return json_of(v); }, value.value);
}

template <class T>
constexpr bool is_list = false;
template <class T>
constexpr bool is_list<std::vector<T>> = true;

/// "uint32", "array of string".
std::string type_of(const GgufValue& value) {
  const std::string name = gguf_value_names[static_cast<int>(value.type)];
  return std::visit([&]<class T>(const T&) { return (is_list<T> ? "array of " : "") + name; }, value.value);
}

std::string tensor_json(const formats::GgufTensor& t) {
  JsonList json('{'), sizes('[');
  for (const std::int64_t size : t.sizes) sizes.add(std::to_string(size));
  const auto& type = *t.type;
  return json.add("name", json_text(t.name))
      .add("shape", sizes.close())
      .add("type", json_text(type.name))
      .add("element", json_text(type.kind == formats::GgufType::Kind::elements ? name(type.element) : ""))
      .add("bits", std::to_string(type.bits))
      .add("group_size", std::to_string(type.group))
      .add("zero", std::to_string(type.zero))
      .add("bytes", std::to_string(t.bytes->size))
      .close();
}

/// {"metadata": {key: [type, value]}, "tensors": [...]}, and the bytes of each tensor.
std::tuple<std::string, std::vector<at::Tensor>> gguf_read(std::string path) {
  return with_file_errors([&] {
    const formats::GgufFile file = formats::load_gguf(path);
    JsonList head('{'), metadata('{'), tensors('[');
    for (const auto& [key, value] : file.metadata)
      metadata.add(key, JsonList('[').add(json_text(type_of(value))).add(json_of(value)).close());
    std::vector<at::Tensor> bytes;
    for (const formats::GgufTensor& t : file.tensors) {
      tensors.add(tensor_json(t));
      bytes.push_back(bytes_tensor(t.bytes));
    }
    head.add("metadata", metadata.close()).add("tensors", tensors.close());
    return std::make_tuple(head.close(), std::move(bytes));
  });
}

/// Words [rows, ...] int32, scales and zeros [rows, groups] float32; no zeros where the type has one for all.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gguf_codes(const at::Tensor& blocks, std::string what, std::string type,
                                                          std::int64_t rows, std::int64_t columns) {
  const formats::GgufType* found = formats::gguf_type(type);
  TORCH_CHECK_VALUE(found != nullptr, what, ": there is no type ", type);
  const bool fits = blocks.scalar_type() == at::kByte && blocks.is_contiguous() && rows >= 0 && columns >= 0 &&
                    columns % found->weights == 0 && blocks.numel() == rows * (columns / found->weights) * found->bytes;
  TORCH_CHECK_VALUE(fits, what, ": ", blocks.sizes(), " bytes are not ", rows, " rows of ", columns, " weights of ",
                    type);
  return with_file_errors([&] {
    formats::CodedRows w = formats::gguf_codes(what, *found, blocks.const_data_ptr<std::uint8_t>(), rows, columns);
    return std::make_tuple(tensor_of(std::move(w.words), at::kInt, {rows, w.row_words()}),
                           tensor_of(std::move(w.scales), at::kFloat, {rows, w.groups()}),
                           tensor_of(std::move(w.zeros), at::kFloat, {found->zero == 0 ? rows : 0, w.groups()}));
  });
}

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) { m.impl("gguf_read", bie::ops::gguf_read); }
TORCH_LIBRARY_IMPL(bie, CPU, m) { m.impl("gguf_codes", bie::ops::gguf_codes); }
