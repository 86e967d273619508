#include "bie/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bie/formats/mapped_file.h"
#include "bie/formats/replacing_file.h"
#include "formats/foreign_file.h"
#include "formats/safetensors_header.h"

namespace bie::formats {
namespace {

constexpr std::int64_t alignment = 8;

Header read_header(const std::string& path, const MappedFile& file, std::int64_t* data_start) {
  // The length may have the bytes that another format begins with: a header of 640 bytes begins as a pickle does.
  const bool has_header = file.size() > 8 && file.data()[8] == '{';
  if (const std::string other = has_header ? "" : foreign_file(file.data(), file.size()); !other.empty())
    fail(path, "is ", other, ", no safetensors file");
  if (file.size() < 8) fail(path, "has ", file.size(), " bytes, a header length takes 8");
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | file.data()[i];
  if (length > static_cast<std::uint64_t>(max_header_bytes)) {
    fail(path, "claims a header of ", length, " bytes, the limit is ", max_header_bytes);
  }
  if (length > static_cast<std::uint64_t>(file.size() - 8)) {
    fail(path, "claims a header of ", length, " bytes and has ", file.size() - 8, " after the length");
  }
  // A copy: what was checked is what is parsed, whatever another process does to the file.
  const std::string text(reinterpret_cast<const char*>(file.data()) + 8, static_cast<std::size_t>(length));
  if (text.empty() || text[0] != '{') fail(path, "the header does not begin with {");
  // The JSON library takes a zero byte for the end of its input.
  if (text.find('\0') != std::string::npos) fail(path, "the header holds a zero byte");
  HeaderParser parser(path);
  nlohmann::json::sax_parse(text, &parser);
  *data_start = 8 + static_cast<std::int64_t>(length);
  return parser.take();
}

/// Sizes agree with offsets, and the offsets tile the data without gap or overlap. Leaves the entries in file order.
void check_layout(const std::string& path, std::vector<Entry>* entries, std::int64_t data_bytes) {
  for (const Entry& e : *entries) {
    std::int64_t bytes = 0;
    if (!dense_bytes(e.dtype->element, e.shape, &bytes))
      fail(path, "tensor ", in_quotes(e.name), " has shape ", listed(e.shape), ", whose size overflows");
    const std::int64_t begin = e.offsets[0];
    const std::int64_t end = e.offsets[1];
    if (begin > end || end > data_bytes) {
      fail(path, "tensor ", in_quotes(e.name), " has data_offsets ", listed(e.offsets), ", the file has ", data_bytes,
           " data bytes");
    }
    if (end - begin != bytes) {
      fail(path, "tensor ", in_quotes(e.name), " is ", e.dtype->name, " ", listed(e.shape), ", ", bytes,
           " bytes, and its data_offsets ", listed(e.offsets), " span ", end - begin);
    }
  }
  std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::int64_t expected = 0;
  for (const Entry& e : *entries) {
    if (e.offsets[0] != expected) {
      fail(path, "tensor ", in_quotes(e.name), " begins at data byte ", e.offsets[0], ", the one before it ends at ",
           expected);
    }
    expected = e.offsets[1];
  }
  if (expected != data_bytes) fail(path, "has ", data_bytes, " data bytes and its tensors end at ", expected);
}

Array array_of(const std::string& path, const std::shared_ptr<MappedFile>& file, const Entry& e,
               std::int64_t data_start) {
  const std::int64_t bytes = e.offsets[1] - e.offsets[0], begin = data_start + e.offsets[0];
  const Element element = e.dtype->element;
  if (element == Element::boolean && !are_bools(file->data() + begin, bytes)) {
    fail(path, "tensor ", in_quotes(e.name), " is BOOL and holds a byte that is neither 0 nor 1");
  }
  return {element, e.shape, dense_strides(e.shape), 0, mapped_bytes(file, begin, bytes, size_of(element))};
}

struct Output {
  const std::string* name;
  const DenseArray* array;
  std::string_view dtype;
  std::int64_t bytes;
};

/// The arrays in file order: wide elements first, so that each begins at a multiple of its element's size.
std::vector<Output> plan(const std::string& path, const std::map<std::string, DenseArray>& arrays) {
  std::vector<Output> outputs;
  for (const auto& [name, array] : arrays) {
    if (name == metadata_key) fail(path, "a tensor cannot be named ", metadata_key);
    const Element element = array.element;
    const auto* dtype =
        std::find_if(std::begin(dtypes), std::end(dtypes), [element](auto& d) { return d.element == element; });
    std::int64_t bytes = 0;
    if (!dense_bytes(element, array.sizes, &bytes)) fail(path, "tensor ", in_quotes(name), " is larger than can be");
    outputs.push_back({&name, &array, dtype->name, bytes});
  }
  std::stable_sort(outputs.begin(), outputs.end(), [](const Output& a, const Output& b) {
    return size_of(a.array->element) > size_of(b.array->element);
  });
  return outputs;
}

std::string header_text(const std::string& path, const std::vector<Output>& outputs,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::int64_t offset = 0;
  for (const Output& o : outputs) {
    const std::int64_t end = offset + o.bytes;
    header[*o.name] = {{"dtype", o.dtype}, {"shape", o.array->sizes}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    fail(path, "a tensor's name or a metadata string is not UTF-8");
  }
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > static_cast<std::size_t>(max_header_bytes)) {
    fail(path, "the header would take ", text.size(), " bytes, the limit is ", max_header_bytes);
  }
  return text;
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  const auto file = std::make_shared<MappedFile>("safetensors file", path);
  std::int64_t data_start = 0;
  Header header = read_header(path, *file, &data_start);
  check_layout(path, &header.entries, file->size() - data_start);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  for (const Entry& e : header.entries) result.arrays.emplace(e.name, array_of(path, file, e, data_start));
  return result;
}

void save_safetensors(const std::string& path, const std::map<std::string, DenseArray>& arrays,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<Output> outputs = plan(path, arrays);
  const std::string header = header_text(path, outputs, metadata);
  ReplacingFile file("safetensors file", path);
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(header.size() >> (8 * i));
  file.write(length.data(), 8);
  file.write(header.data(), static_cast<std::int64_t>(header.size()));
  for (const Output& o : outputs) o.array->with_bytes([&](const void* bytes) { file.write(bytes, o.bytes); });
  file.commit();
}

std::int64_t safetensors_bytes(const std::string& path, const std::map<std::string, DenseArray>& arrays,
                               const std::map<std::string, std::string>& metadata) {
  const std::vector<Output> outputs = plan(path, arrays);
  std::int64_t bytes = 8 + std::ssize(header_text(path, outputs, metadata));
  for (const Output& o : outputs) bytes += o.bytes;
  return bytes;
}

}  // namespace bie::formats
