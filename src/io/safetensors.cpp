#include "bie/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "io/mapped_file.h"
#include "io/replacing_file.h"
#include "io/safetensors_header.h"

namespace bie::io {
namespace {

constexpr std::int64_t alignment = 8;

Header read_header(const std::string& path, const MappedFile& file, std::int64_t* data_start) {
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
    // Sizes of zero are counted as one, so that the strides of an empty tensor cannot overflow either.
    std::int64_t bytes = e.dtype->size;
    bool overflow = false;
    bool empty = false;
    for (const std::int64_t size : e.shape) {
      overflow |= __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
      empty |= size == 0;
    }
    if (overflow)
      fail(path, "tensor ", in_quotes(e.name), " has shape ", at::IntArrayRef(e.shape), ", whose size overflows");
    if (empty) bytes = 0;
    const std::int64_t begin = e.offsets[0];
    const std::int64_t end = e.offsets[1];
    if (begin > end || end > data_bytes) {
      fail(path, "tensor ", in_quotes(e.name), " has data_offsets ", at::IntArrayRef(e.offsets), ", the file has ",
           data_bytes, " data bytes");
    }
    if (end - begin != bytes) {
      fail(path, "tensor ", in_quotes(e.name), " is ", e.dtype->name, " ", at::IntArrayRef(e.shape), ", ", bytes,
           " bytes, and its data_offsets ", at::IntArrayRef(e.offsets), " span ", end - begin);
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

at::Tensor tensor_of(const std::string& path, const std::shared_ptr<MappedFile>& file, const Entry& e,
                     std::int64_t data_start) {
  const std::int64_t bytes = e.offsets[1] - e.offsets[0];
  if (bytes == 0) return at::empty(e.shape, e.dtype->type);
  const std::int64_t begin = data_start + e.offsets[0];
  if (e.dtype->type == at::kBool && !are_bools(file->data() + begin, bytes)) {
    fail(path, "tensor ", in_quotes(e.name), " is BOOL and holds a byte that is neither 0 nor 1");
  }
  std::vector<std::int64_t> strides(e.shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * e.shape[i];
  return view_of(mapped_storage(file, begin, bytes, e.dtype->size), e.dtype->type, 0, e.shape, strides);
}

struct Output {
  const std::string* name;
  const at::Tensor* tensor;
  const DtypeName* dtype;
};

/// The tensors in file order: wide dtypes first, so that each begins at a multiple of its element size.
std::vector<Output> plan(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<Output> outputs;
  for (const auto& [name, tensor] : tensors) {
    if (name == metadata_key) fail(path, "a tensor cannot be named ", metadata_key);
    if (!tensor.defined()) fail(path, "tensor ", in_quotes(name), " is undefined");
    const at::ScalarType type = tensor.scalar_type();
    const auto* dtype = std::find_if(std::begin(dtypes), std::end(dtypes), [type](auto& d) { return d.type == type; });
    if (dtype == std::end(dtypes)) {
      fail(path, "tensor ", in_quotes(name), " is ", c10::toString(type), ", which the format does not have");
    }
    if (tensor.layout() != at::kStrided || tensor.is_meta()) {
      fail(path, "tensor ", in_quotes(name), " is on ", tensor.device(), " with layout ", tensor.layout(),
           ", a strided tensor with values is wanted");
    }
    outputs.push_back({&name, &tensor, dtype});
  }
  std::stable_sort(outputs.begin(), outputs.end(),
                   [](const Output& a, const Output& b) { return a.dtype->size > b.dtype->size; });
  return outputs;
}

std::string header_text(const std::string& path, const std::vector<Output>& outputs,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::int64_t offset = 0;
  for (const Output& o : outputs) {
    const std::int64_t end = offset + o.tensor->numel() * o.dtype->size;
    header[*o.name] = {{"dtype", o.dtype->name}, {"shape", o.tensor->sizes().vec()}, {"data_offsets", {offset, end}}};
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
  for (const Entry& e : header.entries) result.tensors.emplace(e.name, tensor_of(path, file, e, data_start));
  return result;
}

void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<Output> outputs = plan(path, tensors);
  const std::string header = header_text(path, outputs, metadata);
  ReplacingFile file("safetensors file", path);
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(header.size() >> (8 * i));
  file.write(length.data(), 8);
  file.write(header.data(), static_cast<std::int64_t>(header.size()));
  for (const Output& o : outputs) {
    const at::Tensor values = o.tensor->detach().to(at::kCPU).resolve_neg().contiguous();
    file.write(values.const_data_ptr(), values.numel() * o.dtype->size);
  }
  file.commit();
}

}  // namespace bie::io
