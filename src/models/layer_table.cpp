#include "bie/models/layer_table.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "bie/layers/quant_layer.h"

namespace bie::models {

std::vector<LayerRow> layer_rows(torch::nn::Module& model) {
  std::vector<LayerRow> rows;
  const auto add = [&](const std::string& name, const torch::nn::Module& module) {
    LayerRow row{name, {}, 32, 0, 0};
    for (const auto& tensor : module.named_parameters(/*recurse=*/false)) {
      row.bytes += static_cast<std::int64_t>(tensor.value().nbytes());
      if (tensor.key() == "weight" && tensor.value().dim() > 1) row.weights = tensor.value().numel();
    }
    for (const auto& tensor : module.named_buffers(/*recurse=*/false))
      row.bytes += static_cast<std::int64_t>(tensor.value().nbytes());
    if (row.bytes == 0) return;
    if (const auto* layer = dynamic_cast<const layers::QuantLayer*>(&module)) {
      row.bits = layer->weight_bits();
      row.weights = layer->weight_count();
    }
    std::ostringstream text;
    module.pretty_print(text);
    row.description = text.str();
    rows.push_back(std::move(row));
  };
  add("", model);  // by itself: named_modules wants a shared_ptr to include it
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    add(item.key(), *item.value());
  return rows;
}

std::string layer_table(torch::nn::Module& model) {
  const std::vector<LayerRow> rows = layer_rows(model);
  std::size_t name = 5, description = 5;
  for (const LayerRow& row : rows) {
    name = std::max(name, row.name.size());
    description = std::max(description, row.description.size());
  }
  std::string table;
  const auto line = [&](const std::string& a, const std::string& b, const std::string& bits, const std::string& weights,
                        const std::string& bytes) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "  %4s  %11s  %11s\n", bits.c_str(), weights.c_str(), bytes.c_str());
    table += a + std::string(name - a.size() + 2, ' ') + b + std::string(description - b.size(), ' ') + numbers;
  };
  line("name", "layer", "bits", "weights", "bytes");
  std::int64_t weights = 0, bytes = 0;
  for (const LayerRow& row : rows) {
    line(row.name, row.description, row.weights > 0 ? std::to_string(row.bits) : "-", std::to_string(row.weights),
         std::to_string(row.bytes));
    weights += row.weights;
    bytes += row.bytes;
  }
  line("total", "", "", std::to_string(weights), std::to_string(bytes));
  return table;
}

}  // namespace bie::models
