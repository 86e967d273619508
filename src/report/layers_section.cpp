#include "report/layers_section.h"

#include <algorithm>

#include "report/histogram_chart.h"
#include "report/line_chart.h"
#include "report/table.h"

namespace bie::report {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " \u00d7 ") + std::to_string(size);
  return text;
}

std::string bits_text(int bits) { return bits == 0 ? no_value : bits == 32 ? "float" : std::to_string(bits); }

void draw_all(Markup& page, const std::vector<Layer>& layers) {
  std::vector<std::vector<std::string>> rows;
  for (const Layer& layer : layers)
    rows.push_back({layer.name, layer.kind, bits_text(layer.weight_bits), bits_text(layer.activation_bits),
                    shape_text(layer.shape), layer.bytes == 0 ? no_value : grouped(layer.bytes)});
  draw_table(
      page, "layers",
      {{"layer"}, {"kind"}, {"weight bits", true}, {"activation bits", true}, {"shape", true}, {"bytes saved", true}},
      rows);
}

bool any_value(const std::vector<double>& values) { return std::any_of(values.begin(), values.end(), drawable); }

void draw_one(Markup& page, const Layer& layer, const std::vector<double>& epochs) {
  page.open("div", {{"class", "layer"}}).element("h3", {}, layer.name);
  draw(page, "Weights", layer.weights);
  draw(page, {.title = "Step size of the activations, by epoch",
              .epochs = epochs,
              .curves = {{"", layer.step_sizes}},
              .small = true});
  draw(page, {.title = "Weights flipped since the start, by epoch",
              .unit = Unit::percent,
              .epochs = epochs,
              .curves = {{"", layer.flipped}},
              .small = true});
  page.close();
}

}  // namespace

void draw(Markup& page, const std::vector<Layer>& layers, const std::vector<double>& epochs) {
  if (layers.empty()) return;
  page.open("section", {{"class", "card"}}).element("h2", {}, "Layers");
  draw_all(page, layers);
  page.open("div", {{"class", "cards"}});
  for (const Layer& layer : layers)
    if (!layer.weights.counts.empty() || (!epochs.empty() && (any_value(layer.step_sizes) || any_value(layer.flipped))))
      draw_one(page, layer, epochs);
  page.close().close();
}

}  // namespace bie::report
