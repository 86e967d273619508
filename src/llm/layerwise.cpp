#include "llm/layerwise.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bie/formats/error.h"
#include "bie/llm/config.h"
#include "bie/weights/second_moment.h"
#include "llm/architectures.h"
#include "llm/decoder.h"
#include "llm/gptq.h"
#include "llm/model_tensors.h"

namespace bie::llm {
namespace {

using formats::GgufTensor;
using formats::GgufType;

bool is_coded(const GgufType& type) { return type.kind == GgufType::Kind::codes; }

class Work {
 public:
  Work(const ModelFile& model, const Layerwise& work, const Parts& parts, const kernels::Parallel& parallel)
      : model_(model),
        work_(work),
        parts_(parts),
        parallel_(parallel),
        config_(read_config(model)),
        tensors_(model, Arithmetic::exact, /*one_scale=*/false, parallel),
        pass_(config_, CacheKind::f32, parallel),
        sequence_(config_, CacheKind::f32),
        has_head_(!model.is_tied()) {}

  void run() {
    embed();
    for (std::int64_t i = 0; i < config_.layers; ++i) layer(i);
    head();
  }

 private:
  /// x of every window, between two layers.
  void embed() {
    std::optional<weights::FileMatrix> table;
    if (has_head_)
      table.emplace("the embedding", finish("token_embd", config_.vocabulary, config_.width, nullptr));
    else
      table.emplace(tensors_.matrix("token_embd", config_.vocabulary, config_.width));
    const auto count = std::ssize(work_.tokens);
    for (std::int64_t at = 0; at + work_.window <= count; at += work_.window) {
      sequence_.cut(0);
      sequence_.append(work_.tokens.data() + at, work_.window);
      if (at == 0) {
        std::vector<Row> rows;
        for (std::int64_t i = 0; i < work_.window; ++i) rows.push_back({&sequence_, i, false});
        pass_.begin(rows);
      }
      pass_.x().resize(static_cast<std::size_t>(work_.window * config_.width));
      pass_.embed(*table);
      x_.push_back(pass_.x());
      kept_.emplace_back();
      step();
    }
    table->let_go();
  }

  /// Calls body(window) with the window's x in the pass.
  template <class Body>
  void each(const Body& body) {
    for (std::size_t w = 0; w < x_.size(); ++w) {
      pass_.x().swap(x_[w]);
      body(w);
      pass_.x().swap(x_[w]);
      step();
    }
  }

  void layer(std::int64_t index) {
    LayerWeights w = norms_of_layer(tensors_, config_, index);
    const auto parts = linear_parts(config_);
    const auto [query, key, value, output, gate, up, down] = parts;
    is_made_ = std::all_of(parts.begin(), parts.end(), [&](const LinearPart& part) { return found(index, part); });
    const auto add = [&](weights::SecondMoment& moment, const std::vector<float>& x) {
      if (!is_made_) moment.add(x.data(), work_.window, parallel_);
    };
    weights::SecondMoment before(config_.width);
    each([&](std::size_t) {
      pass_.read_attention(w);
      add(before, pass_.normed());
    });
    finish(index, {query, key, value}, &before, &w);

    weights::SecondMoment mixed(output.inputs);
    const std::int64_t mixed_floats = work_.window * output.inputs;
    each([&](std::size_t i) {
      pass_.read_attention(w);
      pass_.attend(w, index);
      add(mixed, pass_.mixed());
      kept_[i].assign(pass_.mixed().begin(), pass_.mixed().begin() + mixed_floats);
    });
    finish(index, {output}, &mixed, &w);

    weights::SecondMoment inner(config_.width);
    each([&](std::size_t i) {
      pass_.mixed().swap(kept_[i]);
      pass_.join_attention(w);
      pass_.read_inner(w);
      add(inner, pass_.normed());
    });
    finish(index, {gate, up}, &inner, &w);

    weights::SecondMoment gated(config_.inner);
    each([&](std::size_t i) {
      pass_.read_inner(w);
      pass_.gate(w);
      add(gated, pass_.gated());
      kept_[i].assign(pass_.gated().begin(), pass_.gated().begin() + work_.window * config_.inner);
    });
    finish(index, {down}, &gated, &w);

    each([&](std::size_t i) {
      pass_.gated().swap(kept_[i]);
      pass_.join_inner(w);
    });
  }

  void head() {
    const char* const name = has_head_ ? "output" : "token_embd";
    weights::SecondMoment states(config_.width);
    if (find(name, config_.vocabulary, config_.width)) return;
    const Vector norm = tensors_.vector("output_norm.weight", config_.width);
    each([&](std::size_t) {
      pass_.read_head(norm);
      states.add(pass_.normed().data(), work_.window, parallel_);
    });
    const weights::ErrorFeedback feedback(what(name), states.take(), config_.width, parallel_);
    finish(name, config_.vocabulary, config_.width, &feedback);
  }

  std::optional<GgufTensor> find(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return parts_.find(name + ".weight", work_.type_of(name + ".weight"), {rows, columns});
  }
  bool found(std::int64_t index, const LinearPart& part) const {
    return find(layer_prefix(index) + part.name, part.outputs, part.inputs).has_value();
  }

  std::string what(const std::string& name) const {
    return formats::joined(model_.kind, " ", model_.path(), ": tensor ", formats::in_quotes(name + ".weight"));
  }

  /// Linears that read the same inputs.
  void finish(std::int64_t index, const std::vector<LinearPart>& linears, weights::SecondMoment* moment,
              LayerWeights* w) {
    std::optional<weights::ErrorFeedback> feedback;
    if (!is_made_)
      feedback.emplace(what(layer_prefix(index) + linears.front().name), moment->take(), moment->size(), parallel_);
    for (const LinearPart& part : linears) {
      const std::string name = layer_prefix(index) + part.name;
      const GgufTensor made = finish(name, part.outputs, part.inputs, feedback ? &*feedback : nullptr);
      w->*part.linear = weights::Linear(weights::FileMatrix(what(name), made), Arithmetic::exact,
                                        tensors_.bias_of(name, part.outputs), parallel_);
    }
  }

  /// A matrix that is there, or is made and put there.
  GgufTensor finish(const std::string& name, std::int64_t rows, std::int64_t columns,
                    const weights::ErrorFeedback* feedback) {
    if (std::optional<GgufTensor> there = find(name, rows, columns)) return *there;
    const GgufType& type = work_.type_of(name + ".weight");
    const OpenMatrix matrix = tensors_.open(name, rows, columns);
    const std::vector<std::uint8_t> blocks =
        feedback != nullptr && is_coded(type) ? gptq_rows(what(name), type, rows, matrix.read, *feedback, parallel_)
                                              : rounded_rows(what(name), type, rows, columns, matrix.read, parallel_);
    matrix.let_go();
    return parts_.put(name + ".weight", type, {rows, columns}, blocks);
  }

  /// Every window passes the embedding, the head and five parts of each layer.
  void step() {
    const std::size_t windows = work_.tokens.size() / static_cast<std::size_t>(work_.window);
    const std::size_t all = windows * static_cast<std::size_t>(5 * config_.layers + 2);
    if (work_.progress) work_.progress(static_cast<double>(++steps_) / static_cast<double>(all));
  }

  const ModelFile& model_;
  const Layerwise& work_;
  const Parts& parts_;
  const kernels::Parallel& parallel_;
  Config config_;
  ModelTensors tensors_;
  Decoder pass_;
  Sequence sequence_;
  bool has_head_;
  bool is_made_ = false;                      ///< all of the layer is there
  std::vector<std::vector<float>> x_, kept_;  ///< of each window
  std::size_t steps_ = 0;
};

}  // namespace

void quantize_layers(const ModelFile& model, const Layerwise& work, const Parts& parts,
                     const kernels::Parallel& parallel) {
  Work(model, work, parts, parallel).run();
}

}  // namespace bie::llm
