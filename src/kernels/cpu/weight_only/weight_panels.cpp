#include "kernels/cpu/weight_only/weight_panels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels {
namespace {

bool known_width(int bits) { return bits >= 1 && bits <= 8 && bits != 7; }

}  // namespace

Status check_weight(const PackedWeight& w) {
  if (w.k < 0 || w.n < 0 || w.groups < 0 || w.run_count < 0) return Status::bad_shape;
  if (w.scale_dtype != Dtype::f32 && w.scale_dtype != Dtype::bf16 && w.scale_dtype != Dtype::f16)
    return Status::bad_dtype;
  std::vector<int> bits_of(static_cast<std::size_t>(w.groups), 0);
  std::int64_t row = 0;
  for (int r = 0; r < w.run_count; ++r) {
    if (!known_width(w.runs[r].bits) || w.runs[r].rows < 0 || w.runs[r].rows > w.k - row) return Status::bad_shape;
    for (const std::int64_t end = row + w.runs[r].rows; row < end; ++row) {
      const std::int32_t group = w.group_of[row];
      if (group < 0 || group >= w.groups) return Status::bad_shape;
      int& bits = bits_of[static_cast<std::size_t>(group)];
      if (bits != 0 && bits != w.runs[r].bits) return Status::bad_shape;
      bits = w.runs[r].bits;
    }
  }
  if (row != w.k) return Status::bad_shape;
  if (w.input_of == nullptr) return Status::ok;
  std::vector<bool> seen(static_cast<std::size_t>(w.k), false);
  for (std::int64_t i = 0; i < w.k; ++i) {
    if (w.input_of[i] < 0 || w.input_of[i] >= w.k) return Status::bad_shape;
    const auto at = static_cast<std::size_t>(w.input_of[i]);
    if (seen[at]) return Status::bad_shape;
    seen[at] = true;
  }
  return Status::ok;
}

Status check_weight(const WeightRows& w) {
  if (w.k < 0 || w.n < 0 || w.group <= 0 || !known_width(w.bits)) return Status::bad_shape;
  if (w.scale_dtype != Dtype::f32 && w.scale_dtype != Dtype::bf16 && w.scale_dtype != Dtype::f16)
    return Status::bad_dtype;
  if (w.offset == Offset::zero) return Status::bad_shape;
  if (w.super_block != 0 && (w.super_block < w.group || w.super_block % w.group != 0 || w.super_block / w.group > 255 ||
                             w.open_levels == nullptr || (w.offset == Offset::none && !w.is_symmetric())))
    return Status::bad_shape;
  if (w.offset == Offset::value || w.is_symmetric()) return Status::ok;
  const bool counts = w.step == 1 || (w.step == 2 && w.bits == 1);
  return counts && w.bits <= 4 && w.zero >= 1 && w.zero <= 1 << w.bits ? Status::ok : Status::bad_shape;
}

namespace cpu {
namespace {

/// Position of a packed row's codes.
struct RowPlace {
  std::int64_t word;
  int bit, bits;
};

int place_of(int bits) { return bits <= 2 ? bits : bits <= 4 ? 4 : 8; }

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t lines_of(LineOrder order, int width, std::int64_t rows) {
  const std::int64_t at_once = order == LineOrder::pairs ? 8 / width : 32 / width;
  return (rows + at_once - 1) / at_once * (order == LineOrder::pairs ? 1 : 4);
}

/// Word and bit of the codes of row i of a group and outputs 16 v ....
struct CodePlace {
  std::int64_t word;
  int shift;
};

CodePlace code_place(LineOrder order, int width, std::int32_t i, int v) {
  if (order == LineOrder::pairs) {
    const int r = i % (8 / width);
    return {i * width / 8 * 16, width * (2 * r + v % 2) + 16 * (v / 2)};
  }
  const int r = i % (32 / width);
  return {(i * width / 32 * 4 + v) * 16, 8 * (r % 4) + width * (r / 4)};
}

/// The rows in the order of the panels, and the offsets in the arrangement.
struct Plan {
  std::vector<WeightGroup> groups;
  std::vector<std::int32_t> rows;  ///< packed rows, group by group
  bool gathers = false;
  WeightHead head{};

  Plan(const PackedWeight& w, LineOrder order, int groups_of_super = 0)
      : groups(static_cast<std::size_t>(w.groups), WeightGroup{0, 8, 0, 0}), rows(static_cast<std::size_t>(w.k)) {
    std::int64_t row = 0;
    for (int r = 0; r < w.run_count; ++r)
      for (std::int64_t i = 0; i < w.runs[r].rows; ++i, ++row) {
        WeightGroup& group = groups[static_cast<std::size_t>(w.group_of[row])];
        ++group.rows;
        group.width = place_of(w.runs[r].bits);
        group.middle = static_cast<float>(1 << (w.runs[r].bits - 1));
      }
    std::vector<std::int64_t> next(groups.size(), 0);
    std::int64_t first = 0, bytes = 0, quads = 0;
    const PanelNumbers numbers{w.scale_dtype, w.offset, groups_of_super};
    bytes = numbers.supers_of(w.groups) * numbers.super_bytes();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      next[g] = first;
      first += groups[g].rows;
      groups[g].lines = static_cast<std::int32_t>(lines_of(order, groups[g].width, groups[g].rows));
      quads += groups[g].quads();
      bytes += numbers.group_bytes() + 64 * groups[g].lines;
    }
    for (std::int64_t i = 0; i < w.k; ++i) {
      const std::int64_t at = next[static_cast<std::size_t>(w.group_of[i])]++;
      rows[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(i);
      gathers = gathers || at != i || (w.input_of != nullptr && w.input_of[i] != i);
    }
    const std::int64_t inputs_at = head_bytes + w.groups * static_cast<std::int64_t>(sizeof(WeightGroup));
    head = {w.n, w.k, w.groups, (w.n + panel_columns - 1) / panel_columns, bytes, 0, 0, quads, w.scale_dtype, w.offset};
    head.groups_of_super = static_cast<std::uint8_t>(groups_of_super);
    head.inputs_at = gathers ? inputs_at : 0;
    head.panels_at = round_up(inputs_at + (gathers ? 4 * w.k : 0), 64);
  }

  /// Bytes of the head and the panels.
  std::size_t bytes() const { return static_cast<std::size_t>(head.panels_at + head.panels * head.panel_bytes); }
};

/// Scales of a group, or its float zeros; outputs beyond the last one have 0.
void copy_floats(const void* from, Dtype dtype, std::int64_t first, std::int64_t columns, char* to) {
  const auto size = static_cast<std::size_t>(row_bytes(dtype, 1));
  std::memcpy(to, static_cast<const char*>(from) + static_cast<std::size_t>(first) * size,
              static_cast<std::size_t>(columns) * size);
}

}  // namespace

std::size_t weight_panel_bytes(const PackedWeight& w, LineOrder order) {
  // The last line or set of lines of each group may be partly empty.
  std::int64_t lines = w.groups * (order == LineOrder::pairs ? 1 : 4);
  for (int r = 0; r < w.run_count; ++r) lines += w.runs[r].rows * place_of(w.runs[r].bits) / 8;
  const std::int64_t numbers = row_bytes(w.scale_dtype, panel_columns) + zero_bytes(w.offset, w.scale_dtype);
  const std::int64_t panels = (w.n + panel_columns - 1) / panel_columns;
  const std::int64_t head = head_bytes + w.groups * static_cast<std::int64_t>(sizeof(WeightGroup)) + 4 * w.k;
  return static_cast<std::size_t>(round_up(head, 64) + panels * (w.groups * numbers + 64 * lines));
}

namespace {

/// Writes the head and the groups, and clears the rest behind the last panel; the order of the rows is written
/// elsewhere.
void write_head(const Plan& plan, std::size_t bytes, char* base) {
  const WeightHead& head = plan.head;
  std::memset(base, 0, static_cast<std::size_t>(head.panels_at));
  std::memcpy(base, &head, sizeof head);
  std::memset(base + plan.bytes(), 0, bytes - plan.bytes());
  if (!plan.groups.empty())
    std::memcpy(base + head_bytes, plan.groups.data(), plan.groups.size() * sizeof(WeightGroup));
}

}  // namespace

void pack_weight_panels(const PackedWeight& w, LineOrder order, void* packed, const Parallel& parallel) {
  const Plan plan(w, order);
  const WeightHead& head = plan.head;
  char* const base = static_cast<char*>(packed);
  write_head(plan, weight_panel_bytes(w, order), base);
  if (plan.gathers)
    for (std::int64_t t = 0; t < w.k; ++t) {
      const std::int32_t row = plan.rows[static_cast<std::size_t>(t)];
      const std::int32_t input = w.input_of == nullptr ? row : w.input_of[row];
      std::memcpy(base + head.inputs_at + 4 * t, &input, 4);
    }
  std::vector<RowPlace> places(static_cast<std::size_t>(w.k));
  std::int64_t row = 0, word = 0;
  for (int r = 0; r < w.run_count; ++r) {
    const BitRun& run = w.runs[r];
    for (std::int64_t i = 0; i < run.rows; ++i, ++row)
      places[static_cast<std::size_t>(row)] = {word + run.bits * i / 32, static_cast<int>(run.bits * i % 32), run.bits};
    word += run_words(run.bits, run.rows);
  }

  parallel_for(parallel, head.panels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      char* at = base + head.panels_at + p * head.panel_bytes;
      std::memset(at, 0, static_cast<std::size_t>(head.panel_bytes));
      const std::int64_t column = p * panel_columns, columns = std::min<std::int64_t>(panel_columns, w.n - column);
      const std::int32_t* source = plan.rows.data();
      for (std::int64_t g = 0; g < w.groups; ++g) {
        const WeightGroup& group = plan.groups[static_cast<std::size_t>(g)];
        copy_floats(w.scales, w.scale_dtype, g * w.n + column, columns, at);
        at += row_bytes(w.scale_dtype, panel_columns);
        if (w.offset == Offset::value) copy_floats(w.zeros, w.scale_dtype, g * w.n + column, columns, at);
        if (w.offset == Offset::zero)
          for (std::int64_t j = 0; j < columns; ++j)
            at[j] = static_cast<char>(static_cast<const std::int32_t*>(w.zeros)[g * w.n + column + j] - 1);
        at += zero_bytes(w.offset, w.scale_dtype);
        for (std::int32_t i = 0; i < group.rows; ++i, ++source) {
          const RowPlace& place = places[static_cast<std::size_t>(*source)];
          const std::uint32_t* const low = w.words + place.word * w.n + column;
          const bool straddles = place.bit + place.bits > 32;
          const std::uint32_t* const high = straddles ? low + w.n : low;
          const std::uint32_t mask = (1u << place.bits) - 1;
          const auto middle =
              static_cast<std::uint32_t>(1 << (group.width - 1)) - static_cast<std::uint32_t>(group.middle);
          for (int v = 0; v < 4 && 16 * v < columns; ++v) {
            const auto [line_at, shift] = code_place(order, group.width, i, v);
            auto* const line = reinterpret_cast<std::uint32_t*>(at) + line_at;
            const std::int64_t lanes = std::min<std::int64_t>(16, columns - 16 * v);
            const std::uint32_t *const from = low + 16 * v, *const rest = high + 16 * v;
            if (straddles)
              for (std::int64_t l = 0; l < lanes; ++l)
                line[l] |= (((from[l] >> place.bit | rest[l] << (32 - place.bit)) & mask) + middle) << shift;
            else
              for (std::int64_t l = 0; l < lanes; ++l) line[l] |= ((from[l] >> place.bit & mask) + middle) << shift;
          }
        }
        at += 64 * group.lines;
      }
    }
  });
}

namespace {

/// The sizes and groups of a weight of rows as those of packed words, which are never looked at. Quads take any whole
/// numbers; for pairs s * (step * q - zero) is s * (q - zero), or (2 s) * q - s * zero in float32.
struct RowsAsPacked {
  BitRun run;
  std::vector<std::int32_t> group_of;
  PackedWeight packed;

  RowsAsPacked(const WeightRows& w, LineOrder order) : run{w.bits, w.k}, group_of(static_cast<std::size_t>(w.k)) {
    for (std::int64_t i = 0; i < w.k; ++i)
      group_of[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / w.group);
    packed = {w.k,     w.n,     w.groups(),    nullptr,  &run,   1, group_of.data(),
              nullptr, nullptr, w.scale_dtype, w.offset, nullptr};
    if (order == LineOrder::quads || w.offset == Offset::value || w.is_symmetric()) return;
    packed.offset = w.step == 1 ? Offset::zero : Offset::value;
    if (w.step != 1) packed.scale_dtype = Dtype::f32;
  }
  RowsAsPacked(const RowsAsPacked&) = delete;
  RowsAsPacked& operator=(const RowsAsPacked&) = delete;
};

/// Panels of pairs hold products, not levels.
int groups_of_super(const WeightRows& w, LineOrder order) {
  return order == LineOrder::quads ? static_cast<int>(w.super_block / w.group) : 0;
}

constexpr int lanes = 16;  // outputs whose codes a line's words hold side by side

/// Numbers of `lanes` outputs.
void store_numbers(const float* values, Dtype dtype, char* to) {
  auto* const halves = reinterpret_cast<std::uint16_t*>(to);
  if (dtype == Dtype::f32)
    std::memcpy(to, values, lanes * sizeof(float));
  else if (dtype == Dtype::bf16)
    for (int l = 0; l < lanes; ++l) halves[l] = bf16_from_float(values[l]);
  else
    for (int l = 0; l < lanes; ++l) halves[l] = f16_from_float(values[l]);
}

/// The word of a line that holds these codes of an output 16 v + l, less the shift that v gives where four outputs
/// share a word (pairs).
template <LineOrder order, int width>
std::uint32_t word_of(const std::uint8_t* codes) {
  std::uint32_t word = 0;
  if constexpr (order == LineOrder::pairs) {
    for (int r = 0; r < 8 / width; ++r) word |= static_cast<std::uint32_t>(codes[r]) << (2 * width * r);
  } else {
    for (int bit = 0; bit < 8; bit += width) {
      std::uint32_t four;
      std::memcpy(&four, codes + 4 * (bit / width), 4);
      word |= four << bit;
    }
  }
  return word;
}

/// Writes the codes of a group's rows of outputs 16 v ... 16 v + 15 into its lines, those of v = 0 first: in pairs the
/// others are added to their words. Codes of output 16 v + l begin at codes + l * pitch.
template <LineOrder order, int width>
void put_lines(const std::uint8_t* codes, std::int64_t pitch, std::int32_t rows, int v, std::uint32_t* line) {
  constexpr bool shares = order == LineOrder::pairs;
  constexpr int at_once = shares ? 8 / width : 32 / width;
  const int shift = shares ? width * (v % 2) + 16 * (v / 2) : 0;
  const std::uint32_t kept = shares && v > 0 ? ~0u : 0;
  if (!shares) line += lanes * v;
  std::int32_t i = 0;
  for (; i + at_once <= rows; i += at_once, line += shares ? lanes : 4 * lanes)
    for (int l = 0; l < lanes; ++l) line[l] = (line[l] & kept) | word_of<order, width>(codes + l * pitch + i) << shift;
  if (i == rows) return;
  for (int l = 0; l < lanes; ++l) {
    std::uint8_t last[at_once] = {};
    std::copy_n(codes + l * pitch + i, rows - i, last);
    line[l] = (line[l] & kept) | word_of<order, width>(last) << shift;
  }
}

using PutLines = void (*)(const std::uint8_t* codes, std::int64_t pitch, std::int32_t rows, int v, std::uint32_t* line);

template <LineOrder order>
PutLines put_lines_of(int width) {
  switch (width) {
    case 1: return put_lines<order, 1>;
    case 2: return put_lines<order, 2>;
    case 4: return put_lines<order, 4>;
    default: return put_lines<order, 8>;
  }
}

/// Rows of a file, opened for `lanes` outputs at a time.
class OpenedRows {
 public:
  /// @param groups_of_super  of the panels: 0 where they hold no levels.
  OpenedRows(const WeightRows& w, int middle, int groups_of_super)
      : w_(w),
        middle_(middle),
        groups_(w.groups()),
        // Rows that begin a power of two apart would fall into the same few lines of the cache.
        pitch_(w.k + 64),
        codes_(static_cast<std::size_t>(lanes * pitch_)),
        supers_(groups_of_super == 0 ? 0 : (groups_ + groups_of_super - 1) / groups_of_super),
        scales_(static_cast<std::size_t>(lanes * groups_)),
        zeros_(scales_.size()),
        a_(supers_ == 0 ? 0 : scales_.size()),
        b_(a_.size()),
        d_(static_cast<std::size_t>(lanes * supers_)),
        least_(d_.size()) {}

  /// Opens up to `lanes` outputs; what stands for the others is 0.
  void open(std::int64_t first, std::int64_t count) {
    for (std::int64_t l = 0; l < count; ++l) {
      std::uint8_t* const codes = codes_.data() + l * pitch_;
      if (supers_ > 0)
        w_.open_levels(
            w_.file, first + l,
            {a_.data() + l * groups_, b_.data() + l * groups_, d_.data() + l * supers_, least_.data() + l * supers_});
      w_.open(w_.file, first + l, codes, scales_.data() + l * groups_, zeros_.data() + l * groups_);
      if (middle_ != 0)
        for (std::int64_t i = 0; i < w_.k; ++i) codes[i] = static_cast<std::uint8_t>(codes[i] + middle_);
    }
    std::fill(codes_.begin() + count * pitch_, codes_.end(), std::uint8_t{0});
    std::fill(scales_.begin() + count * groups_, scales_.end(), 0.0f);
    std::fill(zeros_.begin() + count * groups_, zeros_.end(), 0.0f);
    if (supers_ > 0) {
      std::fill(a_.begin() + count * groups_, a_.end(), std::uint8_t{0});
      std::fill(b_.begin() + count * groups_, b_.end(), std::uint8_t{0});
    }
    std::fill(d_.begin() + count * supers_, d_.end(), 0.0f);
    std::fill(least_.begin() + count * supers_, least_.end(), 0.0f);
  }

  const std::uint8_t* codes() const { return codes_.data(); }
  std::int64_t pitch() const { return pitch_; }

  /// These copy the numbers of group g, output by output.
  void scales(std::int64_t g, float* to) const { gather(scales_, groups_, g, to); }
  void zeros(std::int64_t g, float* to) const { gather(zeros_, groups_, g, to); }
  void level_scales(std::int64_t g, char* to) const { gather(a_, groups_, g, to); }
  void level_zeros(std::int64_t g, char* to) const { gather(b_, groups_, g, to); }
  void super_scales(std::int64_t t, float* to) const { gather(d_, supers_, t, to); }
  void super_zeros(std::int64_t t, float* to) const { gather(least_, supers_, t, to); }

 private:
  template <class Number, class To>
  static void gather(const std::vector<Number>& from, std::int64_t row, std::int64_t at, To* to) {
    for (int l = 0; l < lanes; ++l) to[l] = static_cast<To>(from[static_cast<std::size_t>(l * row + at)]);
  }

  const WeightRows& w_;
  int middle_;
  std::int64_t groups_, pitch_;
  std::vector<std::uint8_t> codes_;
  std::int64_t supers_;
  std::vector<float> scales_, zeros_;
  std::vector<std::uint8_t> a_, b_;
  std::vector<float> d_, least_;
};

/// Writes the scales and zeros of group g, of outputs from `first` on, to where the group's numbers begin.
void put_numbers(const WeightRows& w, const OpenedRows& rows, std::int64_t g, const PanelNumbers& form, int first,
                 std::int64_t count, char* at) {
  const std::int64_t scale_bytes = row_bytes(form.scale, panel_columns), before = row_bytes(form.scale, first);
  float scales[lanes], zeros[lanes];
  rows.scales(g, scales);
  if (form.offset == Offset::value) {
    if (w.offset == Offset::value)
      rows.zeros(g, zeros);
    else
      for (int l = 0; l < lanes; ++l) {
        zeros[l] = scales[l] * static_cast<float>(w.zero);
        scales[l] = scales[l] * static_cast<float>(w.step);
      }
    store_numbers(zeros, form.scale, at + scale_bytes + before);
  }
  store_numbers(scales, form.scale, at + before);
  if (form.offset == Offset::zero) std::memset(at + scale_bytes + first, w.zero - 1, static_cast<std::size_t>(count));
}

/// Writes the numbers of super-block t, of outputs from `first` on, to where they begin.
void put_super(const OpenedRows& rows, std::int64_t t, const PanelNumbers& form, int first, char* at) {
  float numbers[lanes];
  rows.super_scales(t, numbers);
  store_numbers(numbers, Dtype::f16, at + row_bytes(Dtype::f16, first));
  if (form.offset == Offset::none) return;
  rows.super_zeros(t, numbers);
  store_numbers(numbers, Dtype::f16, at + row_bytes(Dtype::f16, panel_columns + first));
}

}  // namespace

std::size_t weight_panel_bytes(const WeightRows& w, LineOrder order) {
  return Plan(RowsAsPacked(w, order).packed, order, groups_of_super(w, order)).bytes();
}

void pack_weight_panels(const WeightRows& w, LineOrder order, void* packed, const Parallel& parallel) {
  const RowsAsPacked shape(w, order);
  Plan plan(shape.packed, order, groups_of_super(w, order));
  const WeightHead& head = plan.head;
  char* const base = static_cast<char*>(packed);
  if (order == LineOrder::quads && w.offset == Offset::none && !w.is_symmetric()) {
    plan.head.step = static_cast<std::uint8_t>(w.step);
    plan.head.zero = static_cast<std::uint8_t>(w.zero + (1 << (place_of(w.bits) - 1)) - (1 << (w.bits - 1)));
  }
  write_head(plan, plan.bytes(), base);
  const int middle = (1 << (place_of(w.bits) - 1)) - (1 << (w.bits - 1));
  const PanelNumbers form{head.scale, head.offset, plan.head.groups_of_super};
  const PutLines put = order == LineOrder::pairs ? put_lines_of<LineOrder::pairs>(place_of(w.bits))
                                                 : put_lines_of<LineOrder::quads>(place_of(w.bits));
  parallel_for(parallel, head.panels, 1, [&](std::int64_t begin, std::int64_t end) {
    OpenedRows rows(w, middle, form.groups_of_super);
    for (std::int64_t p = begin; p < end; ++p) {
      char* const panel = base + head.panels_at + p * head.panel_bytes;
      const std::int64_t columns = std::min<std::int64_t>(panel_columns, w.n - p * panel_columns);
      if (columns < panel_columns) std::memset(panel, 0, static_cast<std::size_t>(head.panel_bytes));
      for (int v = 0; lanes * v < columns; ++v) {
        const std::int64_t count = std::min<std::int64_t>(lanes, columns - lanes * v);
        rows.open(p * panel_columns + lanes * v, count);
        const std::uint8_t* codes = rows.codes();
        char* at = panel;
        for (std::int64_t g = 0; g < w.groups(); ++g) {
          const WeightGroup& group = plan.groups[static_cast<std::size_t>(g)];
          if (form.groups_of_super == 0) {
            put_numbers(w, rows, g, form, lanes * v, count, at);
          } else {
            if (g % form.groups_of_super == 0) {
              put_super(rows, g / form.groups_of_super, form, lanes * v, at);
              at += form.super_bytes();
            }
            rows.level_scales(g, at + lanes * v);
            if (form.offset == Offset::value) rows.level_zeros(g, at + panel_columns + lanes * v);
          }
          at += form.group_bytes();
          put(codes, rows.pitch(), group.rows, v, reinterpret_cast<std::uint32_t*>(at));
          codes += group.rows;
          at += 64 * group.lines;
        }
      }
    }
  });
}

}  // namespace cpu
}  // namespace bie::kernels
