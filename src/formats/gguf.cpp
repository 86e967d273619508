#include "bie/formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "formats/foreign_file.h"
#include "formats/gguf_blocks.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "GGUF file";
constexpr std::int64_t default_alignment = 32;
constexpr std::uint32_t most_axes = 4;  // ggml's
constexpr int deepest_array = 8;
constexpr std::uint32_t q2_0 = 42;

std::int64_t padded(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// Reads forward through the head of a file and never beyond its end.
class Cursor {
 public:
  Cursor(const std::string& path, const MappedFile& file) : path_(path), file_(file) {}

  std::int64_t at() const { return at_; }
  std::int64_t left() const { return file_.size() - at_; }

  /// @param what  is read, for the sentence.
  template <class T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(static_cast<std::int64_t>(sizeof value), what), sizeof value);
    return value;
  }

  std::string text(const std::string& what) {
    const auto length = number<std::uint64_t>("the length of " + what);
    if (length > static_cast<std::uint64_t>(left()))
      fail_file(kind, path_, what, " claims ", length, " bytes, ", left(), " are left");
    const auto size = static_cast<std::size_t>(length);
    return {reinterpret_cast<const char*>(take(static_cast<std::int64_t>(length), what)), size};
  }

  /// A number of things of which each takes at least so many bytes.
  std::int64_t count(const std::string& what, std::int64_t least_bytes) {
    const auto claimed = number<std::uint64_t>("the number of " + what);
    if (claimed > static_cast<std::uint64_t>(left() / least_bytes))
      fail_file(kind, path_, "claims ", claimed, " ", what, ", its ", left(), " bytes left do not hold them");
    return static_cast<std::int64_t>(claimed);
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_file(kind, path_, parts...);
  }

 private:
  const std::uint8_t* take(std::int64_t bytes, const std::string& what) {
    if (bytes > left()) fail_file(kind, path_, "ends inside ", what, " (", file_.size(), " bytes)");
    const std::uint8_t* const from = file_.data() + at_;
    at_ += bytes;
    return from;
  }

  const std::string& path_;
  const MappedFile& file_;
  std::int64_t at_ = 0;
};

GgufValueType value_type(Cursor& in, const std::string& what) {
  const auto type = in.number<std::uint32_t>(what);
  if (type > static_cast<std::uint32_t>(GgufValueType::f64)) in.fail(what, " has the unknown type ", type);
  return static_cast<GgufValueType>(type);
}

/// Calls body(a value of the type in the file) where the type is a number.
template <class Body>
void with_number_type(GgufValueType type, const Body& body) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::boolean: return body(std::uint8_t());
    case GgufValueType::i8: return body(std::int8_t());
    case GgufValueType::u16: return body(std::uint16_t());
    case GgufValueType::i16: return body(std::int16_t());
    case GgufValueType::u32: return body(std::uint32_t());
    case GgufValueType::i32: return body(std::int32_t());
    case GgufValueType::f32: return body(float());
    case GgufValueType::u64: return body(std::uint64_t());
    case GgufValueType::i64: return body(std::int64_t());
    case GgufValueType::f64: return body(double());
    case GgufValueType::string:
    case GgufValueType::array: return;
  }
}

/// Type that a metadata number is stored as.
template <class T>
using Kept = std::conditional_t<std::is_floating_point_v<T>, double,
                                std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

template <class T>
Kept<T> number_of(Cursor& in, GgufValueType type, const std::string& what) {
  const T value = in.number<T>(what);
  if (type == GgufValueType::boolean && value != 0 && value != 1)
    in.fail(what, " is a bool of ", static_cast<double>(value));
  return static_cast<Kept<T>>(value);
}

GgufValue array_value(Cursor& in, const std::string& what, int depth) {
  if (depth > deepest_array) in.fail(what, " has arrays in arrays, more than ", deepest_array, " deep");
  GgufValue array{value_type(in, what), {}};
  if (array.type == GgufValueType::string) {
    std::vector<std::string> list(static_cast<std::size_t>(in.count("strings of " + what, 8)));
    for (std::string& text : list) text = in.text(what);
    array.value = std::move(list);
  } else if (array.type == GgufValueType::array) {
    std::vector<GgufValue> list(static_cast<std::size_t>(in.count("arrays of " + what, 12)));
    for (GgufValue& part : list) part = array_value(in, what, depth + 1);
    array.value = std::move(list);
  } else {
    with_number_type(array.type, [&]<class T>(T) {
      std::vector<Kept<T>> list(static_cast<std::size_t>(in.count("numbers of " + what, sizeof(T))));
      for (Kept<T>& value : list) value = number_of<T>(in, array.type, what);
      array.value = std::move(list);
    });
  }
  return array;
}

GgufValue metadata_value(Cursor& in, const std::string& what) {
  const GgufValueType type = value_type(in, what);
  if (type == GgufValueType::array) return array_value(in, what, 1);
  GgufValue value{type, {}};
  if (type == GgufValueType::string) value.value = in.text(what);
  with_number_type(type, [&]<class T>(T) { value.value = number_of<T>(in, type, what); });
  return value;
}

void check_magic(Cursor& in, const MappedFile& file) {
  if (in.left() < 4 || in.number<std::uint32_t>("the magic") != 0x46554747) {
    const std::string what = foreign_file(file.data(), file.size());
    in.fail("does not begin with GGUF", what.empty() ? "" : ": it is " + what);
  }
  const auto version = in.number<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) in.fail("is big-endian, which is not read");
  if (version != 2 && version != 3) in.fail("expected version 2 or 3, got ", version);
}

/// A tensor as the head names it.
struct Entry {
  GgufTensor tensor;
  std::int64_t offset = 0;  ///< from the first byte of data
};

std::string called(const std::string& name) { return "tensor " + in_quotes(name); }

Entry entry_of(Cursor& in) {
  Entry e;
  e.tensor.name = in.text("a tensor's name");
  const std::string what = called(e.tensor.name);
  const auto axes = in.number<std::uint32_t>("the axes of " + what);
  if (axes > most_axes) in.fail(what, ": expected at most ", most_axes, " axes, got ", axes);
  std::int64_t count = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto size = in.number<std::uint64_t>("the sizes of " + what);
    if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        __builtin_mul_overflow(count, static_cast<std::int64_t>(size), &count))
      in.fail(what, " has an axis of ", size, ", which no tensor can have");
    e.tensor.sizes.insert(e.tensor.sizes.begin(), static_cast<std::int64_t>(size));
  }
  const auto id = in.number<std::uint32_t>("the type of " + what);
  e.tensor.type = gguf_type_of_id(id);
  if (id == 36) in.fail(what, " has type 36, I2_S of bitnet.cpp, whose layout no document fixes; it is not read");
  if (e.tensor.type == nullptr) in.fail(what, " has the unknown type ", id);
  const auto offset = in.number<std::uint64_t>("the offset of " + what);
  if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 2))
    in.fail(what, " begins at data byte ", offset, ", beyond any file");
  e.offset = static_cast<std::int64_t>(offset);
  return e;
}

/// Bytes of a tensor as one type has them; nullopt where its rows are no whole blocks or the size overflows.
std::optional<std::int64_t> bytes_of(const GgufTensor& t, const GgufType& type) {
  std::int64_t bytes = 0;
  if (t.columns() % type.weights != 0) return std::nullopt;
  if (__builtin_mul_overflow(t.count() / type.weights, type.bytes, &bytes)) return std::nullopt;
  if (bytes > std::numeric_limits<std::int64_t>::max() / 2) return std::nullopt;
  return bytes;
}

/// Finds the blocks of Q2_0 that fit the distances between the tensors, which are in the order of their offsets.
const GgufType* q2_0_blocks(const std::vector<Entry*>& entries, std::int64_t data_bytes, std::int64_t alignment) {
  for (const char* name : {"Q2_0", "Q2_0_128"}) {
    const GgufType* type = gguf_type(name);
    bool fits = true;
    for (std::size_t i = 0; fits && i < entries.size(); ++i) {
      const Entry& e = *entries[i];
      if (e.tensor.type->id != q2_0) continue;
      const bool last = i + 1 == entries.size();
      const std::int64_t distance = (last ? data_bytes : entries[i + 1]->offset) - e.offset;
      const auto bytes = bytes_of(e.tensor, *type);
      fits = bytes && (distance == padded(*bytes, alignment) || (last && distance == *bytes));
    }
    if (fits) return type;
  }
  return nullptr;
}

/// Each tensor begins where the one before it ends, and the last ends in the file.
void check_layout(Cursor& in, std::vector<Entry>& entries, std::int64_t data_bytes, std::int64_t alignment) {
  std::vector<Entry*> sorted;
  sorted.reserve(entries.size());
  for (Entry& e : entries) sorted.push_back(&e);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  const GgufType* const blocks = q2_0_blocks(sorted, data_bytes, alignment);
  std::int64_t expected = 0;
  for (Entry* e : sorted) {
    GgufTensor& t = e->tensor;
    if (t.type->id == q2_0 && blocks != nullptr) t.type = blocks;
    const std::string what = called(t.name) + ", " + std::string(t.type->name) + " " + listed(t.sizes) + ",";
    const auto bytes = bytes_of(t, *t.type);
    if (!bytes) in.fail(what, " is no whole number of blocks of ", t.type->weights, " weights that a file could hold");
    if (e->offset != expected)
      in.fail(what, " begins at data byte ", e->offset, ", the one before it ends at ", expected);
    if (*bytes > data_bytes - e->offset)
      in.fail(what, " takes ", *bytes, " bytes from data byte ", e->offset, " on, the file has ", data_bytes);
    if (t.type->id == q2_0 && blocks == nullptr)
      in.fail(what, " fits neither blocks of 64 weights nor of 128 up to the next tensor");
    expected = padded(e->offset + *bytes, alignment);
  }
}

std::int64_t alignment_of(const Cursor& in, const GgufFile& file) {
  const auto found = file.metadata.find("general.alignment");
  if (found == file.metadata.end()) return default_alignment;
  const auto* value = std::get_if<std::uint64_t>(&found->second.value);
  if (value == nullptr || found->second.type != GgufValueType::u32 || *value == 0 || (*value & (*value - 1)) != 0)
    in.fail("general.alignment is no power of two of type uint32");
  return static_cast<std::int64_t>(*value);
}

std::int64_t element_bytes(const GgufType& type) {
  return type.kind == GgufType::Kind::elements ? size_of(type.element) : 1;
}

}  // namespace

std::int64_t GgufTensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const GgufTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

namespace {

GgufFile load_part(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(kind, path);
  GgufFile result;
  result.path = path;
  Cursor in(path, *file);
  check_magic(in, *file);
  const std::int64_t tensors = in.count("tensors", 24);
  const std::int64_t pairs = in.count("metadata entries", 13);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::string key = in.text("a metadata key");
    const std::string what = "the metadata " + in_quotes(key);
    if (!result.metadata.emplace(key, metadata_value(in, what)).second) in.fail(what, " appears twice");
  }
  std::vector<Entry> entries;
  std::set<std::string> names;
  for (std::int64_t i = 0; i < tensors; ++i) {
    entries.push_back(entry_of(in));
    if (!names.insert(entries.back().tensor.name).second) in.fail(called(entries.back().tensor.name), " appears twice");
  }
  const std::int64_t alignment = alignment_of(in, result);
  const std::int64_t start = padded(in.at(), alignment);
  if (tensors > 0 && start > file->size()) in.fail("ends before its data, which begin at byte ", start);
  check_layout(in, entries, std::max<std::int64_t>(0, file->size() - start), alignment);
  for (Entry& e : entries) {
    const std::int64_t bytes = *bytes_of(e.tensor, *e.tensor.type);
    e.tensor.bytes = mapped_bytes(file, start + e.offset, bytes, element_bytes(*e.tensor.type));
    result.tensors.push_back(std::move(e.tensor));
  }
  let_go({file->data(), in.at(), file, true});  // all of the head is kept as values
  return result;
}

std::optional<std::uint64_t> number_at(const GgufFile& file, const char* key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<std::uint64_t>(&found->second.value)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second.value); value != nullptr && *value >= 0)
    return static_cast<std::uint64_t>(*value);
  fail_file(kind, file.path, "the metadata ", in_quotes(key), " is no number from 0 on");
}

constexpr const char *split_count = "split.count", *split_number = "split.no", *split_tensors = "split.tensors.count";

/// The names of all parts beside one of them: NAME-00002-of-00005.gguf.
std::vector<std::string> names_of_parts(const GgufFile& part, std::uint64_t count, std::uint64_t number) {
  const auto five = [](std::uint64_t value) {
    const std::string digits = std::to_string(value);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  const auto end_of = [&](std::uint64_t i) { return joined("-", five(i + 1), "-of-", five(count), ".gguf"); };
  if (!part.path.ends_with(end_of(number)))
    fail_file(kind, part.path, "is part ", number + 1, " of ", count, ", whose name is expected to end in ",
              end_of(number));
  const std::string stem = part.path.substr(0, part.path.size() - end_of(number).size());
  std::vector<std::string> names;
  std::string missing;
  std::error_code ignored;
  for (std::uint64_t i = 0; i < count; ++i) {
    names.push_back(stem + end_of(i));
    if (missing.size() < 300 && !std::filesystem::exists(names.back(), ignored))
      missing += (missing.empty() ? "" : ", ") + std::filesystem::path(names.back()).filename().string();
  }
  if (!missing.empty())
    fail_file(kind, part.path, "is part ", number + 1, " of ", count, ", and these are not beside it: ", missing);
  return names;
}

/// All parts of a model as one file: the metadata of the first, the tensors of each.
GgufFile joined_parts(const GgufFile& one, std::uint64_t count) {
  constexpr std::uint64_t most_parts = 1 << 16;
  const std::uint64_t number = number_at(one, split_number).value_or(0);
  if (count > most_parts || number >= count)
    fail_file(kind, one.path, "says that it is part ", number + 1, " of ", count);
  GgufFile whole;
  whole.path = one.path;
  std::set<std::string> names;
  std::uint64_t i = 0;
  for (const std::string& path : names_of_parts(one, count, number)) {
    GgufFile part = load_part(path);
    if (number_at(part, split_count) != count || number_at(part, split_number) != i)
      fail_file(kind, path, "is expected to be part ", i + 1, " of ", count, ", its metadata say another");
    if (i == 0) whole.metadata = std::move(part.metadata);
    for (GgufTensor& tensor : part.tensors) {
      if (!names.insert(tensor.name).second) fail_file(kind, path, called(tensor.name), " lies in two parts");
      whole.tensors.push_back(std::move(tensor));
    }
    ++i;
  }
  const auto wanted = number_at(whole, split_tensors);
  if (wanted && *wanted != whole.tensors.size())
    fail_file(kind, whole.path, "its parts have ", whole.tensors.size(), " tensors, expected ", *wanted);
  for (const char* key : {split_count, split_number, split_tensors}) whole.metadata.erase(key);
  return whole;
}

}  // namespace

GgufFile load_gguf(const std::string& path) {
  GgufFile file = load_part(path);
  const std::uint64_t count = number_at(file, split_count).value_or(1);
  return count > 1 ? joined_parts(file, count) : file;
}

Array gguf_array(const GgufFile& file, const GgufTensor& t) {
  if (t.type->kind != GgufType::Kind::elements)
    fail_file(kind, file.path, called(t.name), " is ", t.type->name, ", which is not plain numbers");
  return {t.type->element, t.sizes, dense_strides(t.sizes), 0, t.bytes};
}

CodedRows gguf_codes(const GgufFile& file, const GgufTensor& t) {
  return gguf_codes(joined(kind, " ", file.path, ": ", called(t.name)), *t.type, t.bytes->data, t.rows(), t.columns());
}

}  // namespace bie::formats
