#include "bie/data/checksum.h"

#include <c10/util/Exception.h>
#include <zlib.h>

namespace bie::data {

std::uint32_t checksum(const std::map<std::string, at::Tensor>& tensors, const std::string& text) {
  uLong crc = crc32_z(0, nullptr, 0);
  const auto add = [&](const void* bytes, std::size_t count) {
    crc = crc32_z(crc, static_cast<const Bytef*>(bytes), count);
  };
  const auto add_text = [&](const std::string& part) { add(part.c_str(), part.size() + 1); };
  add_text(text);
  for (const auto& [name, tensor] : tensors) {
    add_text(name);
    add_text(c10::str(tensor.scalar_type(), tensor.sizes()));
    const at::Tensor values = tensor.detach().to(at::kCPU).resolve_neg().contiguous();
    if (values.numel() > 0) add(values.const_data_ptr(), values.nbytes());
  }
  return static_cast<std::uint32_t>(crc);
}

}  // namespace bie::data
