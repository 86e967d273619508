#include "formats/foreign_file.h"

#include <algorithm>
#include <string_view>

namespace bie::formats {
namespace {

struct Start {
  std::string_view bytes;
  const char* name;
};

constexpr Start starts[] = {
    {"\x89PNG\r\n", "a PNG picture"},
    {"\xff\xd8\xff", "a JPEG picture"},
    {"GIF8", "a GIF picture"},
    {std::string_view("BM", 2), "a BMP picture"},
    {std::string_view("II*\0", 4), "a TIFF picture"},
    {std::string_view("MM\0*", 4), "a TIFF picture"},
    {std::string_view("\0\0\0\x18"
                      "ftyp",
                      8),
     "a HEIF or AVIF picture, or a film"},
    {std::string_view("\0\0\0\x1c"
                      "ftyp",
                      8),
     "a HEIF or AVIF picture, or a film"},
    {std::string_view("\0\0\0\x20"
                      "ftyp",
                      8),
     "a HEIF or AVIF picture, or a film"},
    {"RIFF", "a RIFF file, as WebP pictures, sound and films are"},
    {"\x93NUMPY", "a NumPy array (.npy)"},
    {"PK\x03\x04", "a zip archive, as torch.save, numpy.savez and spreadsheets (.xlsx) make"},
    {"\x1f\x8b", "a gzip file"},
    {"\xfd"
     "7zXZ",
     "an xz file"},
    {"BZh", "a bzip2 file"},
    {"\x28\xb5\x2f\xfd", "a zstd file"},
    {"%PDF", "a PDF document"},
    {"GGUF", "a GGUF file"},
    {"\x7f"
     "ELF",
     "a program or library (ELF)"},
    {"\x93"
     "BIENET\n",
     "an exported net of bie"},
    {"\x80\x02", "a pickle"},
    {"\x80\x04", "a pickle"},
    {"\x80\x05", "a pickle"},
    {"<!DOCTYPE html", "a web page"},
    {"<!doctype html", "a web page"},
    {"<html", "a web page"},
    {"version https://git-lfs", "the pointer of a Git LFS file, whose contents are still to be fetched"},
    {std::string_view("\0\0\x08", 3), "an IDX file, as MNIST's are"},
};

}  // namespace

std::string foreign_file(const std::uint8_t* bytes, std::int64_t size) {
  const std::string_view file(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  for (const Start& start : starts)
    if (file.starts_with(start.bytes)) return start.name;
  const auto is_text = [](char c) { return c == '\n' || c == '\r' || c == '\t' || (c >= ' ' && c != '\x7f'); };
  const std::string_view first = file.substr(0, 64);
  return !first.empty() && std::all_of(first.begin(), first.end(), is_text) ? a_text : "";
}

}  // namespace bie::formats
