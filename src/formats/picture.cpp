#include "bie/formats/picture.h"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/jpeg.h"
#include "bie/formats/webp.h"
#include "formats/foreign_file.h"

#define STB_IMAGE_RESIZE_IMPLEMENTATION
#define STB_IMAGE_RESIZE_STATIC
#include <stb/stb_image_resize.h>

namespace bie::formats {
namespace {

using Pixels = std::vector<std::uint8_t>;

constexpr const char* picture_kind = "picture";  // what sentences call it

constexpr std::pair<Fit, const char*> fits[] = {{Fit::crop, "crop"}, {Fit::pad, "pad"}, {Fit::stretch, "stretch"}};

enum class Kind { png, jpeg, webp, other };

Kind kind_of(const MappedFile& file) {
  constexpr std::int64_t most = 12;
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               static_cast<std::size_t>(std::min(file.size(), most)));
  if (start.starts_with("\x89PNG\r\n")) return Kind::png;
  if (start.starts_with("RIFF") && start.ends_with("WEBP")) return Kind::webp;
  return start.starts_with("\xff\xd8\xff") ? Kind::jpeg : Kind::other;
}

[[noreturn]] void fail_foreign(const std::string& path, const MappedFile& file) {
  const std::string what = foreign_file(file.data(), file.size());
  fail_file(picture_kind, path, "cannot be read: it is ",
            file.size() == 0 ? "empty"
            : what.empty()   ? "none"
                             : what,
            "; PNG, JPEG and WebP files are read");
}

struct Box {
  std::int64_t top, left, height, width;
};

/// The part in the middle that has the shape of `to`.
Box middle(std::int64_t height, std::int64_t width, const PictureForm& to) {
  std::int64_t h = height, w = width;
  if (height * to.width > width * to.height)
    h = std::max<std::int64_t>(1, (width * to.height + to.width / 2) / to.width);
  else
    w = std::max<std::int64_t>(1, (height * to.width + to.height / 2) / to.height);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

/// Where the whole of it goes.
Box inside(std::int64_t height, std::int64_t width, const PictureForm& to) {
  std::int64_t h = to.height, w = to.width;
  if (height * to.width > width * to.height)
    w = std::max<std::int64_t>(1, (width * to.height + height / 2) / height);
  else
    h = std::max<std::int64_t>(1, (height * to.width + width / 2) / width);
  return {(to.height - h) / 2, (to.width - w) / 2, h, w};
}

/// A part of a picture [height, width, channels] into a part of another.
void scale(const std::uint8_t* from, std::int64_t from_width, const Box& source, std::uint8_t* to,
           std::int64_t to_width, const Box& target, std::int64_t channels) {
  const auto as_int = [](std::int64_t value) { return static_cast<int>(value); };
  if (stbir_resize_uint8_generic(
          from + (source.top * from_width + source.left) * channels, as_int(source.width), as_int(source.height),
          as_int(from_width * channels), to + (target.top * to_width + target.left) * channels, as_int(target.width),
          as_int(target.height), as_int(to_width * channels), as_int(channels), STBIR_ALPHA_CHANNEL_NONE, 0,
          STBIR_EDGE_CLAMP, STBIR_FILTER_TRIANGLE, STBIR_COLORSPACE_LINEAR, nullptr) == 0)
    throw std::bad_alloc();
}

Array fitted(const Array& picture, const PictureForm& form) {
  const std::int64_t height = picture.sizes[0], width = picture.sizes[1], channels = picture.sizes[2];
  Pixels pixels(static_cast<std::size_t>(form.height * form.width * channels));
  const Box whole{0, 0, height, width}, all{0, 0, form.height, form.width};
  const Box source = form.fit == Fit::crop ? middle(height, width, form) : whole;
  const Box target = form.fit == Fit::pad ? inside(height, width, form) : all;
  scale(picture.data<std::uint8_t>(), width, source, pixels.data(), form.width, target, channels);
  return array_of(Element::u8, {form.height, form.width, channels}, std::move(pixels));
}

/// [height, width, channels], of its own size or larger than what the form takes.
Array whole_picture(const std::string& path, const MappedFile& file, std::int64_t channels,
                    const std::optional<PictureForm>& form) {
  std::optional<std::array<std::int64_t, 2>> at_least;
  if (form) at_least = {form->height, form->width};
  switch (kind_of(file)) {
    case Kind::jpeg: return load_jpeg(path, file, channels, at_least);
    case Kind::webp: return load_webp(path, file, channels);
    case Kind::png: return load_png(path, file, channels);
    case Kind::other: break;
  }
  fail_foreign(path, file);
}

/// [height, width, channels] to [channels, height, width].
Array planes_of(const Array& picture) {
  const std::int64_t channels = picture.sizes[2], plane = picture.sizes[0] * picture.sizes[1];
  const auto* const pixels = picture.data<std::uint8_t>();
  Pixels planes(static_cast<std::size_t>(channels * plane));
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t p = 0; p < plane; ++p) planes[static_cast<std::size_t>(c * plane + p)] = pixels[p * channels + c];
  return array_of(Element::u8, {channels, picture.sizes[0], picture.sizes[1]}, std::move(planes));
}

}  // namespace

const char* name(Fit fit) {
  return std::find_if(std::begin(fits), std::end(fits), [fit](const auto& known) { return known.first == fit; })
      ->second;
}

std::optional<Fit> fit_of(const std::string& name) {
  for (const auto& [fit, known] : fits)
    if (name == known) return fit;
  return {};
}

bool is_picture(const MappedFile& file) { return kind_of(file) != Kind::other; }

PictureFacts picture_facts(const std::string& path) { return picture_facts(path, MappedFile(picture_kind, path)); }

PictureFacts picture_facts(const std::string& path, const MappedFile& file) {
  switch (kind_of(file)) {
    case Kind::jpeg: return jpeg_facts(path, file);
    case Kind::webp: return webp_facts(path, file);
    case Kind::png: return png_facts(path, file);
    case Kind::other: break;
  }
  fail_foreign(path, file);
}

Array load_picture(const std::string& path, std::int64_t channels, const std::optional<PictureForm>& form) {
  return load_picture(path, MappedFile(picture_kind, path), channels, form);
}

Array load_picture(const std::string& path, const MappedFile& file, std::int64_t channels,
                   const std::optional<PictureForm>& form) {
  const Array picture = whole_picture(path, file, channels, form);
  const bool as_it_is = !form || (form->height == picture.sizes[0] && form->width == picture.sizes[1]);
  return planes_of(as_it_is ? picture : fitted(picture, *form));
}

}  // namespace bie::formats
