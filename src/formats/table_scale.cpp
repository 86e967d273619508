// Statistics of a table's training rows: means, deviations, and curves for heavy tails. Computed in double, because
// float cannot represent differences of 1 around 1e8.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "bie/formats/error.h"
#include "bie/formats/table.h"
#include "formats/table_place.h"
#include "formats/table_read.h"

namespace bie::formats {
namespace {

using Numbers = std::vector<double>;

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0;
};

Moments moments_of(const Numbers& values, const std::optional<Curve>& curve = {}) {
  Moments found;
  if (values.empty()) return found;
  const auto count = static_cast<double>(values.size());
  const auto mean_of = [&](const auto& term) {
    double sum = 0;
    for (const double value : values) sum += term(curve ? curve->of(value) : value) / count;
    return sum;
  };
  found.mean = mean_of([](double x) { return x; });
  found.mean += mean_of([&](double x) { return x - found.mean; });  // what rounding left of a large mean
  found.deviation = std::sqrt(mean_of([&](double x) { return (x - found.mean) * (x - found.mean); }));
  // Equal values may leave a deviation of a rounding.
  if (found.deviation <= 1e-14 * std::abs(found.mean)) found.deviation = 0;
  if (found.deviation > 0)
    found.kurtosis = mean_of([&](double x) { return std::pow((x - found.mean) / found.deviation, 4); });
  return found;
}

/// The point below which a share of the normal distribution lies.
double normal_point(double share) {
  double low = -10, high = 10;
  while (high - low > 1e-9) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return low;
}

/// At most 1000 of the sorted values, evenly spaced by rank, and the points of a normal distribution at their ranks.
struct Ranked {
  Numbers values, points;

  explicit Ranked(const Numbers& sorted) {
    const auto all = static_cast<double>(sorted.size()), count = std::min(all, 1000.0);
    for (int i = 0; i < count; ++i) {
      const double rank = std::floor((i + 0.5) * all / count);
      values.push_back(sorted[static_cast<std::size_t>(rank)]);
      points.push_back(normal_point((rank + 0.5) / all));
    }
  }

  /// Correlation with the normal distribution's points, 1 for values of that shape.
  double normality(const std::optional<Curve>& curve) const {
    const Moments of_values = moments_of(values, curve), of_points = moments_of(points);
    if (of_values.deviation == 0 || of_points.deviation == 0) return 0;
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += ((curve ? curve->of(values[i]) : values[i]) - of_values.mean) * (points[i] - of_points.mean);
    return sum / (static_cast<double>(values.size()) * of_values.deviation * of_points.deviation);
  }
};

/// The curve that gives values with a heavy tail the shape nearest to a normal one; none for others. It bends around
/// zero, the least, the middle or the largest value, and is linear up to a low quantile of the distances from there.
std::optional<Curve> curve_of(const Numbers& values) {
  constexpr double heavy = 12, least_gain = 0.05;  // kurtosis: 3 of a normal distribution, 9 of an exponential one
  if (moments_of(values).kurtosis < heavy) return std::nullopt;
  Numbers sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const Ranked ranked(sorted);
  const double plain = ranked.normality({});
  double best = plain + least_gain;
  std::optional<Curve> found;
  Numbers centers{sorted.front(), sorted[sorted.size() / 2], sorted.back()};
  if (sorted.front() >= 0) centers.push_back(0);
  for (const double center : centers) {
    Numbers distances;
    for (const double value : ranked.values)
      if (value != center) distances.push_back(std::abs(value - center));
    std::sort(distances.begin(), distances.end());
    for (const double share : {0.01, 0.1, 0.5}) {
      if (distances.empty()) continue;
      const Curve curve{center, distances[static_cast<std::size_t>(share * static_cast<double>(distances.size()))]};
      const double normality = ranked.normality(curve);
      if (normality <= best) continue;
      best = normality;
      found = curve;
    }
  }
  return found;
}

/// The numbers of a column in the training rows.
Numbers numbers_of(const CsvText& csv, const std::vector<std::int64_t>& rows, std::int64_t column,
                   const NumberForm& form) {
  Numbers values;
  for (const std::int64_t row : rows) {
    double value = 0;
    if (csv_number(csv.at(row, column), &value, form)) values.push_back(value);
  }
  return values;
}

/// A value so far from the others that the net would take these for equal.
void warn_of_outlier(const CsvText& csv, const TableColumn& column, std::int64_t place, const Numbers& values,
                     const Moments& moments, std::vector<std::string>* notes) {
  constexpr double far = 30;
  if (moments.deviation == 0) return;
  const auto distance = [&](double value) {
    return std::abs((column.curve ? column.curve->of(value) : value) - moments.mean) / moments.deviation;
  };
  const double worst =
      *std::max_element(values.begin(), values.end(), [&](double a, double b) { return distance(a) < distance(b); });
  if (distance(worst) < far) return;
  notes->push_back(joined(csv.path(), ": ", column.name.empty() ? joined("column ", place + 1) : in_quotes(column.name),
                          " has the value ", worst, ", ", std::round(distance(worst)),
                          " standard deviations from its mean: beside it the net hardly tells the others apart"));
}

int decimals_of(std::string_view text, char sign) {
  const std::size_t at = text.find(sign);
  if (at == std::string_view::npos) return 0;
  const std::size_t end = text.find_first_not_of("0123456789", at + 1);
  return static_cast<int>(std::min(end, text.size()) - at - 1);
}

void learn_target(const CsvText& csv, const std::vector<std::int64_t>& rows, std::int64_t place, TableForm* form) {
  const Numbers labels = numbers_of(csv, rows, place, form->numbers);
  form->curve = curve_of(labels);
  const Moments moments = moments_of(labels, form->curve);
  if (moments.deviation == 0) fail_file(table_kind, csv.path(), "all labels are equal, there is nothing to predict");
  form->mean = moments.mean;
  form->scale = moments.deviation;
  form->decimals = 0;
  for (const std::int64_t row : rows)
    form->decimals = std::max(form->decimals, decimals_of(csv.at(row, place), form->numbers.decimal));
  const auto [least, most] = std::minmax_element(labels.begin(), labels.end());
  form->least = *least;
  form->most = *most;
}

}  // namespace

double Curve::of(double value) const { return std::asinh((value - center) / width); }
double Curve::inverse(double value) const { return center + width * std::sinh(value); }

double TableForm::learnt(double labelled) const { return ((curve ? curve->of(labelled) : labelled) - mean) / scale; }

double TableForm::label_of(double target) const {
  const double value = target * scale + mean;
  return curve ? curve->inverse(value) : value;
}

double TableForm::answer(double output) const {
  if (!curve) return label_of(output);
  const double room = 0.5;  // deviations
  return label_of(std::clamp(output, learnt(least) - room, learnt(most) + room));
}

std::string answer_text(const TableForm& form, double answer) {
  const auto places = [](double value) { return value == 0 ? 0 : static_cast<int>(std::floor(std::log10(value))); };
  const int whole = std::max(places(std::abs(answer)), 0) + 1;
  const int scale = form.curve ? places(std::abs(answer)) : places(form.scale);
  const int digits = std::max({6, whole, whole + form.decimals, places(std::abs(answer)) - scale + 6});
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", std::min(digits, 17), answer);
  return text;
}

namespace {

/// Means and deviations of a column's features. Features of texts and marks are 0 or 1, so that their share gives both.
void scale_column(const CsvText& csv, const std::vector<std::int64_t>& rows, std::int64_t place, const TableForm& form,
                  TableColumn* column, std::vector<std::string>* notes) {
  const bool is_number = column->values.empty();
  column->centers.assign(static_cast<std::size_t>(column->features()), 0);
  column->scales = column->centers;
  if (is_number) {
    const Numbers values = numbers_of(csv, rows, place, form.numbers);
    if (values.empty()) fail_file(table_kind, csv.path(), "column ", place + 1, " has no value in the training rows");
    column->curve = curve_of(values);
    const Moments moments = moments_of(values, column->curve);
    warn_of_outlier(csv, *column, place, values, moments, notes);
    column->mean = column->curve ? column->curve->inverse(moments.mean) : moments.mean;
    column->centers[0] = moments.mean;
    column->scales[0] = moments.deviation;
  }
  TableColumn plain = *column;  // its features as they are
  plain.centers.clear();
  plain.scales.clear();
  Numbers sums(column->centers.size()), features;
  for (const std::int64_t row : rows) {
    features.clear();
    add_features({csv, row, place}, form, plain, &features, nullptr);
    for (std::size_t i = 0; i < features.size(); ++i) sums[i] += features[i];
  }
  for (std::size_t i = is_number ? 1 : 0; i < sums.size(); ++i) {
    const double share = sums[i] / static_cast<double>(rows.size());
    column->centers[i] = share;
    column->scales[i] = std::sqrt(share * (1 - share));
  }
}

}  // namespace

void learn_scales(const CsvText& csv, const std::vector<std::int64_t>& places, TableForm* form,
                  std::vector<std::string>* notes) {
  const TablePlaces found = find_places(csv, *form, Labels::wanted, {.header = form->named});
  std::vector<std::int64_t> rows;
  rows.reserve(places.size());
  for (const std::int64_t place : places) rows.push_back(found.first + place);
  for (std::size_t i = 0; i < form->columns.size(); ++i)
    scale_column(csv, rows, found.columns[i], *form, &form->columns[i], notes);
  if (form->regression) learn_target(csv, rows, found.label, form);
}

}  // namespace bie::formats
