#include "bie/formats/gguf_writer.h"

#include <iterator>
#include <set>
#include <type_traits>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "bie/formats/replacing_file.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "GGUF file";

class Head {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number<std::uint64_t>(value.size());
    bytes_ += value;
  }
  void pad(std::int64_t alignment) {
    const auto step = static_cast<std::size_t>(alignment);
    bytes_.resize((bytes_.size() + step - 1) / step * step, '\0');
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void put_number(Head* head, GgufValueType type, auto value) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::boolean: return head->number(static_cast<std::uint8_t>(value));
    case GgufValueType::i8: return head->number(static_cast<std::int8_t>(value));
    case GgufValueType::u16: return head->number(static_cast<std::uint16_t>(value));
    case GgufValueType::i16: return head->number(static_cast<std::int16_t>(value));
    case GgufValueType::u32: return head->number(static_cast<std::uint32_t>(value));
    case GgufValueType::i32: return head->number(static_cast<std::int32_t>(value));
    case GgufValueType::f32: return head->number(static_cast<float>(value));
    case GgufValueType::u64: return head->number(static_cast<std::uint64_t>(value));
    case GgufValueType::i64: return head->number(static_cast<std::int64_t>(value));
    case GgufValueType::f64: return head->number(static_cast<double>(value));
    case GgufValueType::string:
    case GgufValueType::array: return;
  }
}

/// An array with its type and length, or a plain value.
struct PutValue {
  Head* head;
  GgufValueType type;

  void operator()(const std::string& text) const { head->text(text); }
  void operator()(const GgufValue& array) const { std::visit(PutValue{head, array.type}, array.value); }
  template <class T>
  void operator()(const std::vector<T>& list) const {
    head->number(static_cast<std::uint32_t>(type));
    head->number<std::uint64_t>(list.size());
    for (const T& part : list) (*this)(part);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T value) const { put_number(head, type, value); }
};

bool is_array(const GgufValue& value) {
  return value.value.index() > 3;  // behind the plain kinds
}

std::int64_t alignment_of(const std::map<std::string, GgufValue>& metadata, const std::string& path) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return 32;
  const auto* value = std::get_if<std::uint64_t>(&found->second.value);
  if (value == nullptr || *value < 8 || *value > (1 << 20) || (*value & (*value - 1)) != 0)
    fail_file(kind, path, "general.alignment is no power of two from 8 to 2^20");
  return static_cast<std::int64_t>(*value);
}

void check(const std::string& path, const GgufOutput& t) {
  const auto fail = [&](const auto&... parts) { fail_file(kind, path, "tensor ", in_quotes(t.name), " ", parts...); };
  if (t.sizes.size() > 4)
    fail_file(kind, path, "tensor ", in_quotes(t.name), ": expected at most 4 axes, got ", t.sizes.size());
  if (is_group_type(*t.type)) fail("is ", t.type->name, ", a type that folders hold and GGUF files do not");
  std::int64_t count = 1;
  for (const std::int64_t size : t.sizes)
    if (size < 1 || __builtin_mul_overflow(count, size, &count))
      fail("is ", listed(t.sizes), ", which GGUF does not have");
  const std::int64_t columns = t.sizes.empty() ? 1 : t.sizes.back();
  if (columns % t.type->weights != 0 || count / t.type->weights * t.type->bytes != t.byte_count)
    fail("is ", t.type->name, " ", listed(t.sizes), ", which ", t.byte_count, " bytes are not");
}

std::int64_t padded(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The head is all that stands before the tensors.
Head head_of(const std::string& path, const std::map<std::string, GgufValue>& metadata,
             const std::vector<GgufOutput>& tensors, std::int64_t alignment) {
  Head head;
  head.number<std::uint32_t>(0x46554747);
  head.number<std::uint32_t>(3);
  head.number<std::uint64_t>(tensors.size());
  head.number<std::uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    head.text(key);
    head.number(static_cast<std::uint32_t>(is_array(value) ? GgufValueType::array : value.type));
    PutValue{&head, value.type}(value);
  }
  std::set<std::string> names;
  std::int64_t offset = 0;
  for (const GgufOutput& t : tensors) {
    check(path, t);
    if (!names.insert(t.name).second) fail_file(kind, path, "tensor ", in_quotes(t.name), " appears twice");
    head.text(t.name);
    head.number(static_cast<std::uint32_t>(t.sizes.size()));
    for (std::size_t i = t.sizes.size(); i-- > 0;) head.number(static_cast<std::uint64_t>(t.sizes[i]));
    head.number(t.type->id);
    head.number(static_cast<std::uint64_t>(offset));
    offset += padded(t.byte_count, alignment);
  }
  head.pad(alignment);
  return head;
}

}  // namespace

std::int64_t gguf_file_bytes(const std::string& path, const std::map<std::string, GgufValue>& metadata,
                             const std::vector<GgufOutput>& tensors) {
  const std::int64_t alignment = alignment_of(metadata, path);
  auto bytes = static_cast<std::int64_t>(head_of(path, metadata, tensors, alignment).bytes().size());
  for (const GgufOutput& t : tensors) bytes += padded(t.byte_count, alignment);
  return bytes;
}

void save_gguf(const std::string& path, const std::map<std::string, GgufValue>& metadata,
               const std::vector<GgufOutput>& tensors) {
  const std::int64_t alignment = alignment_of(metadata, path);
  const Head head = head_of(path, metadata, tensors, alignment);
  ReplacingFile out(kind, path);
  out.write(head.bytes().data(), static_cast<std::int64_t>(head.bytes().size()));
  const std::string zeros(static_cast<std::size_t>(alignment), '\0');
  for (const GgufOutput& t : tensors) {
    if (t.bytes == nullptr && t.make) {
      const std::vector<std::uint8_t> made = t.make();
      if (std::ssize(made) != t.byte_count)
        fail_file(kind, path, "tensor ", in_quotes(t.name), ": expected ", t.byte_count, " bytes, got ", made.size());
      out.write(made.data(), t.byte_count);
    } else {
      out.write(t.bytes, t.byte_count);
    }
    out.write(zeros.data(), -t.byte_count & (alignment - 1));
  }
  out.commit();
}

}  // namespace bie::formats
