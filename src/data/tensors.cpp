#include "data/tensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace bie::data {
namespace {

struct Pair {
  formats::Element element;
  at::ScalarType type;
};
constexpr Pair pairs[] = {
    {formats::Element::boolean, at::kBool},
    {formats::Element::u8, at::kByte},
    {formats::Element::i8, at::kChar},
    {formats::Element::i16, at::kShort},
    {formats::Element::i32, at::kInt},
    {formats::Element::i64, at::kLong},
    {formats::Element::f16, at::kHalf},
    {formats::Element::bf16, at::kBFloat16},
    {formats::Element::f32, at::kFloat},
    {formats::Element::f64, at::kDouble},
    {formats::Element::u16, at::kUInt16},
    {formats::Element::u32, at::kUInt32},
    {formats::Element::u64, at::kUInt64},
    {formats::Element::f8_e4m3, at::kFloat8_e4m3fn},
    {formats::Element::f8_e5m2, at::kFloat8_e5m2},
    {formats::Element::f8_e8m0, at::kFloat8_e8m0fnu},
    {formats::Element::c64, at::kComplexFloat},
};

at::ScalarType type_of(formats::Element element) {
  return std::find_if(std::begin(pairs), std::end(pairs), [element](auto& p) { return p.element == element; })->type;
}

at::Storage storage_of(const std::shared_ptr<const formats::Bytes>& bytes) {
  auto* owner = new std::shared_ptr<const formats::Bytes>(bytes);
  const auto release = [](void* p) { delete static_cast<std::shared_ptr<const formats::Bytes>*>(p); };
  return {at::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes->size),
          at::DataPtr(bytes->data, owner, release, at::kCPU)};
}

}  // namespace

at::Tensor Tensors::of(const formats::Array& array) {
  const at::ScalarType type = type_of(array.element);
  if (array.count() == 0) return at::empty(array.sizes, type);
  auto found = storages_.find(array.bytes.get());
  if (found == storages_.end()) found = storages_.emplace(array.bytes.get(), storage_of(array.bytes)).first;
  return at::empty({0}, type).set_(found->second, array.offset, array.sizes, array.strides);
}

formats::Element element_of(const std::string& what, at::ScalarType type) {
  const auto* found = std::find_if(std::begin(pairs), std::end(pairs), [type](auto& p) { return p.type == type; });
  TORCH_CHECK_VALUE(found != std::end(pairs), what, " is ", c10::toString(type), ", which the format does not have");
  return found->element;
}

}  // namespace bie::data
