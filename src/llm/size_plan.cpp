#include "bie/llm/size_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/kernels/shared_rows.h"
#include "llm/model_formats.h"
#include "llm/model_tensors.h"
#include "llm/rounded_rows.h"
#include "llm/sensitivity.h"
#include "llm/type_plan.h"

namespace bie::llm {
namespace {

using formats::GgufType;
using formats::joined;

constexpr std::int64_t sampled_rows = 64;  // of a matrix, whose errors stand for all
constexpr std::int64_t measured_windows = 1;
constexpr int rounds = 3;  // of plans whose types are measured

double bits(const GgufType& type) { return 8.0 * static_cast<double>(type.bytes) / static_cast<double>(type.weights); }

struct Matrix {
  std::string name;  ///< with ".weight"
  std::int64_t rows, columns;
  weights::Linear LayerWeights::*linear = nullptr;  ///< null of the embedding and the head
};

/// Matrices that get one type.
struct Group {
  std::vector<Matrix> matrices;
  std::int64_t layer = -1;  ///< -1: the embedding or the head
};

std::string stem(const std::string& name) { return name.substr(0, name.rfind(".weight")); }

/// A curve tells what a group loses under each type: measured for some, by the errors of its weights for the others.
struct Curve {
  struct Point {
    const GgufType* type;
    std::int64_t bytes;
    double error;  ///< of the weights
    std::optional<double> nats;
  };
  std::vector<Point> points;

  bool is_known(std::size_t point) const { return points[point].error == 0 || points[point].nats.has_value(); }

  /// The type with an error whose bits a weight are nearest.
  std::size_t nearest_to(double wanted) const {
    std::size_t best = 0;
    const auto away = [&](std::size_t i) { return std::fabs(bits(*points[i].type) - wanted); };
    for (std::size_t i = 1; i < points.size(); ++i)
      if (points[i].error > 0 && (points[best].error == 0 || away(i) < away(best))) best = i;
    return best;
  }

  std::vector<TypeCost> costs() const {
    std::vector<TypeCost> costs;
    for (const Point& point : points) costs.push_back({point.type, point.bytes, nats_of(point)});
    return costs;
  }

 private:
  /// A power of the error between two types that were measured, else a multiple of it.
  double nats_of(const Point& point) const {
    if (point.error == 0 || point.nats) return point.nats.value_or(0);
    const Point *below = nullptr, *above = nullptr;  // the nearest errors
    for (const Point& other : points) {
      if (!other.nats) continue;
      if (other.error <= point.error && (below == nullptr || other.error > below->error)) below = &other;
      if (other.error >= point.error && (above == nullptr || other.error < above->error)) above = &other;
    }
    if (below == nullptr && above == nullptr) return 0;
    const bool is_between = below != nullptr && above != nullptr && below->error != above->error;
    if (is_between && *below->nats != 0 && *above->nats != 0) {
      const double share = std::log(point.error / below->error) / std::log(above->error / below->error);
      return *below->nats * std::pow(*above->nats / *below->nats, share);
    }
    const Point& nearest = below != nullptr ? *below : *above;
    return *nearest.nats * point.error / nearest.error;
  }
};

class Maker {
 public:
  Maker(const ModelFile& file, const SizeOptions& options, const kernels::Parallel& parallel)
      : file_(file), options_(options), parallel_(parallel), planner_(file, options.fixed) {}

  SizePlan run() {
    const std::int64_t rest = find_groups();
    if (options_.file_bytes < rest + smallest())
      throw formats::Error(joined("--size: expected ", rest + smallest(),
                                  " bytes at least, which the smallest plan takes, got ", options_.file_bytes));
    const std::int64_t bytes = options_.file_bytes - rest;
    std::vector<std::size_t> chosen;
    const std::vector<std::vector<TypeCost>> costs = measure(bytes, &chosen);
    SizePlan plan;
    plan.file_bytes = rest;
    std::map<std::string, const GgufType*> types = fixed_;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const TypeCost& cost = costs[g][chosen[g]];
      plan.file_bytes += cost.bytes;
      plan.divergence += cost.divergence;
      for (const Matrix& matrix : groups_[g].matrices) types[matrix.name] = cost.type;
    }
    planner_.for_each_matrix(
        [&](const std::string& name, std::int64_t, std::int64_t) { plan.types.emplace_back(name, types.at(name)); });
    return plan;
  }

 private:
  /// The groups that the plan is free to choose for. @return the bytes of everything else in the file.
  std::int64_t find_groups() {
    config_ = read_config(file_);
    bool has_head = false;
    TypePlan all = options_.fixed;
    planner_.for_each_matrix([&](const std::string& name, std::int64_t, std::int64_t columns) {
      has_head = has_head || name == head_name;
      const bool is_plain = options_.format == ModelFormat::gptq && (name == embedding_name || name == head_name);
      if (const GgufType* const type = planner_.asked_for(name))
        fixed_[name] = type;
      else if (is_plain)
        fixed_[name] = formats::gguf_type("F16");
      else
        all.keep.emplace_back(name, &stand_in(columns));
    });
    planner_.check_all_used(has_head);
    has_head_ = has_head;
    const auto parts = linear_parts(config_);
    for (std::int64_t i = 0; i < config_.layers; ++i)
      for (const auto& [first, last] : {std::pair{0, 3}, {3, 4}, {4, 6}, {6, 7}}) {
        Group group;
        group.layer = i;
        for (int part = first; part < last; ++part)
          group.matrices.push_back({layer_prefix(i) + parts[part].name + ".weight", parts[part].outputs,
                                    parts[part].inputs, parts[part].linear});
        add(std::move(group));
      }
    add({{{embedding_name, config_.vocabulary, config_.width}}});
    if (has_head) add({{{head_name, config_.vocabulary, config_.width}}});
    QuantizeOptions options;
    options.plan = all;
    options.write = false;
    options.format = options_.format;
    std::int64_t rest = quantize(file_, file_.path(), options, parallel_).file_bytes;
    sizes_ = FormatSizes(file_, options_.format);
    for (const Group& group : groups_)
      for (const Matrix& matrix : group.matrices) rest -= bytes_of(matrix, stand_in(matrix.columns));
    return rest;
  }

  void add(Group group) {
    std::erase_if(group.matrices, [&](const Matrix& matrix) { return fixed_.contains(matrix.name); });
    if (!group.matrices.empty()) groups_.push_back(std::move(group));
  }

  /// The types of a plan that rows of a length can have, the smallest first.
  std::vector<const GgufType*> types_of(std::int64_t columns) const {
    std::vector<const GgufType*> types = candidates(options_.format);
    std::erase_if(types, [&](const GgufType* type) { return columns % type->weights != 0; });
    return types;
  }
  /// The type of a free matrix while everything else is counted: of folders one with as many tensors as most have.
  const GgufType& stand_in(std::int64_t columns) const {
    return options_.format == ModelFormat::gguf ? *formats::gguf_type("F16") : *types_of(columns).front();
  }
  std::vector<const GgufType*> types_of(const Group& group) const {
    std::vector<const GgufType*> types = candidates(options_.format);
    for (const Matrix& matrix : group.matrices)
      std::erase_if(types, [&](const GgufType* type) { return matrix.columns % type->weights != 0; });
    return types;
  }

  std::int64_t bytes_of(const Matrix& matrix, const GgufType& type) const {
    return sizes_.bytes_of(type, matrix.rows, matrix.columns);
  }
  std::int64_t bytes_of(const Group& group, const GgufType& type) const {
    std::int64_t sum = 0;
    for (const Matrix& matrix : group.matrices) sum += bytes_of(matrix, type);
    return sum;
  }

  std::int64_t smallest() const {
    std::int64_t sum = 0;
    for (const Group& group : groups_) {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const GgufType* type : types_of(group)) least = std::min(least, bytes_of(group, *type));
      sum += least;
    }
    return sum;
  }

  /// What the types of every group cost. One type of each is tried in the model, then those that the plan chooses,
  /// until it chooses none that was not tried, or has been made a few times.
  std::vector<std::vector<TypeCost>> measure(std::int64_t bytes, std::vector<std::size_t>* chosen) {
    const auto count = static_cast<std::ptrdiff_t>(
        std::min(std::ssize(options_.text.tokens), measured_windows * options_.text.window));
    const Model model(file_.path(), Arithmetic::exact, parallel_);
    Sensitivity sensitivity(model, {options_.text.tokens.begin(), options_.text.tokens.begin() + count},
                            options_.text.window, parallel_);
    ModelTensors tensors(file_, Arithmetic::exact, false, parallel_);
    const double wanted = bits_of(bytes);
    std::vector<Curve> curves;
    for (const Group& group : groups_) {
      tell(curves.size(), 0);
      curves.push_back(curve_of(group, model, tensors, sensitivity));
      const std::size_t probe = curves.back().nearest_to(wanted);
      try_type(group, probe, model, tensors, sensitivity, &curves.back());
    }
    std::vector<std::vector<TypeCost>> costs;
    for (int round = 0;; ++round) {
      costs.clear();
      for (const Curve& curve : curves) costs.push_back(curve.costs());
      *chosen = cheapest_types(costs, bytes);
      bool is_new = false;
      for (std::size_t g = 0; g < groups_.size() && round < rounds; ++g) {
        if (curves[g].is_known((*chosen)[g])) continue;
        is_new = true;
        tell(g, round + 1);
        try_type(groups_[g], (*chosen)[g], model, tensors, sensitivity, &curves[g]);
      }
      if (!is_new) return costs;
    }
  }

  void tell(std::size_t group, int round) const {
    const double of_round = static_cast<double>(group) / static_cast<double>(groups_.size());
    if (options_.progress) options_.progress((round + of_round) / (rounds + 1));
  }

  double bits_of(std::int64_t bytes) const {
    std::int64_t weights = 0;
    for (const Group& group : groups_)
      for (const Matrix& matrix : group.matrices) weights += matrix.rows * matrix.columns;
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, weights));
  }

  Curve curve_of(const Group& group, const Model& model, ModelTensors& tensors, const Sensitivity& sensitivity) const {
    Curve curve;
    for (const GgufType* type : types_of(group)) curve.points.push_back({type, bytes_of(group, *type), 0, {}});
    for (const Matrix& matrix : group.matrices) {
      const std::vector<float> importance = importance_of(group, matrix, model, sensitivity);
      const OpenMatrix open = tensors.open(stem(matrix.name), matrix.rows, matrix.columns);
      for (Curve::Point& point : curve.points) point.error += error_of(matrix, *point.type, importance, open.read);
      open.let_go();
    }
    return curve;
  }

  void try_type(const Group& group, std::size_t point, const Model& model, ModelTensors& tensors,
                Sensitivity& sensitivity, Curve* curve) const {
    Curve::Point& tried = curve->points[point];
    if (tried.error > 0) tried.nats = std::max(0.0, measured(group, *tried.type, model, tensors, sensitivity));
  }

  std::vector<float> importance_of(const Group& group, const Matrix& matrix, const Model& model,
                                   const Sensitivity& sensitivity) const {
    if (group.layer >= 0)
      return sensitivity.importance(model.layers()[static_cast<std::size_t>(group.layer)].*matrix.linear);
    if (matrix.name == head_name || !has_head_) return sensitivity.importance(model.head());
    std::vector<float> ones(static_cast<std::size_t>(matrix.columns), 1);
    return ones;
  }

  std::vector<float> weights_for(const GgufType& type, const std::vector<float>& importance) const {
    return options_.search && type.kind == GgufType::Kind::codes ? importance : std::vector<float>();
  }

  /// The sum of squared errors of a matrix, weighted by the importance of columns, told by some of its rows.
  double error_of(const Matrix& matrix, const GgufType& type, const std::vector<float>& importance,
                  const ReadRow& read) const {
    if (type.kind != GgufType::Kind::codes) return 0;
    const GgufType& held = type_as_held(options_.format, type);
    const std::int64_t samples = std::min(sampled_rows, matrix.rows);
    const std::vector<float> weighting = weights_for(type, importance);
    std::vector<double> errors(static_cast<std::size_t>(samples));
    kernels::share_rows(parallel_, samples, 4, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> values(static_cast<std::size_t>(matrix.columns)), opened(values.size());
      for (std::int64_t s = begin; s < end; ++s) {
        read(s * matrix.rows / samples, values.data());
        const std::vector<std::uint8_t> blocks = formats::gguf_rounded(
            matrix.name, held, values.data(), 1, matrix.columns, weighting.empty() ? nullptr : weighting.data());
        const weights::FileMatrix row(matrix.name, tensor_of(matrix.name, held, 1, matrix.columns, blocks));
        row.read_row(0, opened.data());
        for (std::size_t c = 0; c < values.size(); ++c) {
          const double away = static_cast<double>(values[c]) - static_cast<double>(opened[c]);
          errors[static_cast<std::size_t>(s)] += static_cast<double>(importance[c]) * away * away;
        }
      }
    });
    return std::accumulate(errors.begin(), errors.end(), 0.0) * static_cast<double>(matrix.rows) /
           static_cast<double>(samples);
  }

  static formats::GgufTensor tensor_of(const std::string& name, const GgufType& type, std::int64_t rows,
                                       std::int64_t columns, std::vector<std::uint8_t> blocks) {
    const auto kept = std::make_shared<std::vector<std::uint8_t>>(std::move(blocks));
    const auto bytes = std::make_shared<formats::Bytes>();
    bytes->data = kept->data();
    bytes->size = std::ssize(*kept);
    bytes->owner = kept;
    return {name, {rows, columns}, &type, bytes};
  }

  double measured(const Group& group, const GgufType& chosen, const Model& model, ModelTensors& tensors,
                  Sensitivity& sensitivity) const {
    const GgufType& type = type_as_held(options_.format, chosen);
    std::optional<LayerWeights> layer;
    if (group.layer >= 0) layer = model.layers()[static_cast<std::size_t>(group.layer)];
    for (const Matrix& matrix : group.matrices) {
      const std::vector<float> weighting = weights_for(type, importance_of(group, matrix, model, sensitivity));
      const OpenMatrix open = tensors.open(stem(matrix.name), matrix.rows, matrix.columns);
      const weights::FileMatrix rounded(
          matrix.name, tensor_of(matrix.name, type, matrix.rows, matrix.columns,
                                 rounded_rows(matrix.name, type, matrix.rows, matrix.columns, open.read, parallel_,
                                              weighting.empty() ? nullptr : weighting.data())));
      open.let_go();
      const auto linear = [&] {
        return weights::Linear(rounded, Arithmetic::exact, tensors.bias_of(stem(matrix.name), matrix.rows), parallel_);
      };
      if (layer) {
        (*layer).*matrix.linear = linear();
      } else if (matrix.name == head_name) {
        const weights::Linear head = linear();
        return sensitivity.of_ends(nullptr, &head);
      } else if (has_head_) {
        return sensitivity.of_ends(&rounded, nullptr);
      } else {
        const weights::Linear head = linear();
        return sensitivity.of_ends(&rounded, &head);
      }
    }
    return sensitivity.of_layer(group.layer, *layer);
  }

  const ModelFile& file_;
  const SizeOptions& options_;
  const kernels::Parallel& parallel_;
  Planner planner_;
  Config config_;
  bool has_head_ = false;
  FormatSizes sizes_;
  std::map<std::string, const GgufType*> fixed_;
  std::vector<Group> groups_;
};

}  // namespace

SizePlan plan_for_size(const ModelFile& model, const SizeOptions& options, const kernels::Parallel& parallel) {
  return Maker(model, options, parallel).run();
}

}  // namespace bie::llm
