#include "llm/folder/rotated_rows.h"

#include "llm/architectures.h"

namespace bie::llm::folder {

RowOrder folder_rows_of_gguf(const Config& config, const std::string& name) {
  const bool is_query = name.find(".attn_q.") != std::string::npos;
  if (!config.architecture->neighbours || (!is_query && name.find(".attn_k.") == std::string::npos)) return {};
  const std::int64_t heads = is_query ? config.heads : config.kv_heads, size = config.head_size;
  RowOrder order;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < size; ++i) order.push_back(head * size + i % 2 * (size / 2) + i / 2);
  return order;
}

RowOrder gguf_rows_of_folder(const Config& config, const std::string& name) {
  const RowOrder order = folder_rows_of_gguf(config, name);
  RowOrder inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return inverse;
}

}  // namespace bie::llm::folder
