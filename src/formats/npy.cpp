#include "bie/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "NPY file";
constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_rank = 32;

struct Type {
  std::string_view name;
  Element element;
};
constexpr Type types[] = {{"|u1", Element::u8},  {"|i1", Element::i8},  {"<i2", Element::i16},
                          {"<i4", Element::i32}, {"<i8", Element::i64}, {"<f2", Element::f16},
                          {"<f4", Element::f32}, {"<f8", Element::f64}, {"|b1", Element::boolean}};

/// The text behind 'KEY': in the header, a Python dict of three entries.
std::string_view entry(const std::string& path, std::string_view header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "':");
  if (at == std::string_view::npos) fail_file(kind, path, "its header has no ", key);
  std::string_view rest = header.substr(at + key.size() + 3);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

Element element_of(const std::string& path, std::string_view text) {
  const std::size_t end = text.starts_with('\'') ? text.find('\'', 1) : std::string_view::npos;
  if (end == std::string_view::npos) fail_file(kind, path, "its elements are of no single type");
  const std::string_view name = text.substr(1, end - 1);
  const auto* found = std::find_if(std::begin(types), std::end(types), [&](auto& t) { return t.name == name; });
  if (found == std::end(types)) fail_file(kind, path, "its elements are ", in_quotes(name), ", which is not read");
  return found->element;
}

/// "(3, 4)", "(3,)" or "()".
std::vector<std::int64_t> sizes_of(const std::string& path, std::string_view text) {
  std::vector<std::int64_t> sizes;
  const char *at = text.data() + 1, *const end = text.data() + text.size();
  bool good = text.starts_with('(');
  while (good && at < end && *at != ')') {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    good = error == std::errc() && size >= 0 && sizes.size() < max_rank;
    sizes.push_back(size);
    for (at = next; at < end && (*at == ',' || *at == ' ');) ++at;
  }
  if (!good || at >= end) fail_file(kind, path, "its header has no shape that can be read");
  return sizes;
}

}  // namespace

Array load_npy(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(kind, path);
  const std::string_view bytes(reinterpret_cast<const char*>(file->data()), static_cast<std::size_t>(file->size()));
  if (!bytes.starts_with(magic) || bytes.size() < 12) fail_file(kind, path, "does not begin with an NPY header");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(file->data()[i]); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) fail_file(kind, path, "has format version ", version, ", 1 to 3 are read");
  const std::size_t start = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - start) fail_file(kind, path, "ends inside its header");
  const std::string_view header = bytes.substr(start, length);

  const Element element = element_of(path, entry(path, header, "descr"));
  if (!entry(path, header, "fortran_order").starts_with("False"))
    fail_file(kind, path, "is in Fortran order; numpy.ascontiguousarray puts it into the order that is read");
  std::vector<std::int64_t> sizes = sizes_of(path, entry(path, header, "shape"));
  const auto begin = static_cast<std::int64_t>(start + length);
  std::int64_t wanted = 0;
  const bool possible = dense_bytes(element, sizes, &wanted);
  if (!possible || wanted != file->size() - begin)
    fail_file(kind, path, "holds ", file->size() - begin, " bytes of data, its shape ", listed(sizes), " takes ",
              possible ? std::to_string(wanted) : "more than there can be");
  if (element == Element::boolean && !are_bools(file->data() + begin, wanted))
    fail_file(kind, path, "holds a bool that is neither 0 nor 1");
  std::vector<std::int64_t> strides = dense_strides(sizes);
  return {element, std::move(sizes), std::move(strides), 0, mapped_bytes(file, begin, wanted, size_of(element))};
}

}  // namespace bie::formats
