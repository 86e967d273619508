#include "bie/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "io/safetensors_header.h"

namespace bie::io {
namespace {

constexpr std::int64_t alignment = 8;
// One read or write call moves less than 2 GiB on Linux.
constexpr std::int64_t max_transfer_bytes = std::int64_t{1} << 30;

/// A file descriptor and the name it goes by in sentences.
class File {
 public:
  File(std::string path, int flags, mode_t mode = 0) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), flags | O_CLOEXEC, mode);
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  void read(void* bytes, std::int64_t count, std::int64_t offset) const {
    for (std::int64_t done = 0; done < count;) {
      const auto step = static_cast<std::size_t>(std::min(count - done, max_transfer_bytes));
      const ssize_t got = ::pread(fd_, static_cast<char*>(bytes) + done, step, offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(path_, "cannot be read: ", std::strerror(errno));
      if (got == 0) fail(path_, "ended at byte ", offset + done, " while it was being read");
      done += got;
    }
  }

 private:
  std::string path_;
  int fd_;
};

Header read_header(const File& file, std::int64_t file_bytes, std::int64_t* data_start) {
  const std::string& path = file.path();
  std::array<std::uint8_t, 8> prefix{};
  if (file_bytes < 8) fail(path, "has ", file_bytes, " bytes, a header length takes 8");
  file.read(prefix.data(), 8, 0);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | prefix[i];
  if (length > static_cast<std::uint64_t>(max_header_bytes)) {
    fail(path, "claims a header of ", length, " bytes, the limit is ", max_header_bytes);
  }
  if (length > static_cast<std::uint64_t>(file_bytes - 8)) {
    fail(path, "claims a header of ", length, " bytes and has ", file_bytes - 8, " after the length");
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(text.data(), static_cast<std::int64_t>(length), 8);
  if (text.empty() || text[0] != '{') fail(path, "the header does not begin with {");
  // The JSON library takes a zero byte for the end of its input.
  if (text.find('\0') != std::string::npos) fail(path, "the header holds a zero byte");
  HeaderParser parser(path);
  nlohmann::json::sax_parse(text, &parser);
  *data_start = 8 + static_cast<std::int64_t>(length);
  return parser.take();
}

/// Sizes agree with offsets, and the offsets tile the data without gap or overlap. Leaves the entries in file order.
void check_layout(const std::string& path, std::vector<Entry>* entries, std::int64_t data_bytes) {
  for (const Entry& e : *entries) {
    // Sizes of zero are counted as one, so that the strides of an empty tensor cannot overflow either.
    std::int64_t bytes = e.dtype->size;
    bool overflow = false;
    bool empty = false;
    for (const std::int64_t size : e.shape) {
      overflow |= __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
      empty |= size == 0;
    }
    if (overflow)
      fail(path, "tensor ", in_quotes(e.name), " has shape ", at::IntArrayRef(e.shape), ", whose size overflows");
    if (empty) bytes = 0;
    const std::int64_t begin = e.offsets[0];
    const std::int64_t end = e.offsets[1];
    if (begin > end || end > data_bytes) {
      fail(path, "tensor ", in_quotes(e.name), " has data_offsets ", at::IntArrayRef(e.offsets), ", the file has ",
           data_bytes, " data bytes");
    }
    if (end - begin != bytes) {
      fail(path, "tensor ", in_quotes(e.name), " is ", e.dtype->name, " ", at::IntArrayRef(e.shape), ", ", bytes,
           " bytes, and its data_offsets ", at::IntArrayRef(e.offsets), " span ", end - begin);
    }
  }
  std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::int64_t expected = 0;
  for (const Entry& e : *entries) {
    if (e.offsets[0] != expected) {
      fail(path, "tensor ", in_quotes(e.name), " begins at data byte ", e.offsets[0], ", the one before it ends at ",
           expected);
    }
    expected = e.offsets[1];
  }
  if (expected != data_bytes) fail(path, "has ", data_bytes, " data bytes and its tensors end at ", expected);
}

at::Tensor read_tensor(const File& file, const Entry& e, std::int64_t data_start) {
  at::Tensor tensor = at::empty(e.shape, e.dtype->type);
  const std::int64_t bytes = e.offsets[1] - e.offsets[0];
  if (bytes == 0) return tensor;
  auto* data = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  file.read(data, bytes, data_start + e.offsets[0]);
  // Any other byte in a bool is undefined behaviour wherever it is read.
  if (e.dtype->type == at::kBool && std::any_of(data, data + bytes, [](std::uint8_t b) { return b > 1; })) {
    fail(file.path(), "tensor ", in_quotes(e.name), " is BOOL and holds a byte that is neither 0 nor 1");
  }
  return tensor;
}

/// A file that takes its final name at the end, and leaves no trace if that point is not reached.
class ReplacingFile {
 public:
  explicit ReplacingFile(const std::string& path)
      : path_(path),
        temporary_(path + ".tmp-" + std::to_string(::getpid())),
        file_(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666) {
    if (!file_.is_open()) fail(path_, "cannot be written: ", std::strerror(errno));
  }
  ~ReplacingFile() {
    if (file_.is_open() && !renamed_) ::unlink(temporary_.c_str());
  }
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void write(const void* bytes, std::int64_t count) const {
    for (std::int64_t done = 0; done < count;) {
      const auto step = static_cast<std::size_t>(std::min(count - done, max_transfer_bytes));
      const ssize_t written = ::write(file_.fd(), static_cast<const char*>(bytes) + done, step);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "cannot be written: ", std::strerror(errno));
      done += written;
    }
  }

  void commit() {
    if (::fsync(file_.fd()) != 0) fail(path_, "cannot be flushed to disk: ", std::strerror(errno));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "cannot be replaced: ", std::strerror(errno));
    renamed_ = true;
    // The rename itself reaches the disk with its folder; a file system without this leaves one of the two files.
    const std::size_t slash = path_.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const File directory(folder, O_RDONLY | O_DIRECTORY);
    if (directory.is_open()) ::fsync(directory.fd());
  }

 private:
  const std::string& path_;
  std::string temporary_;
  File file_;
  bool renamed_ = false;
};

struct Output {
  const std::string* name;
  const at::Tensor* tensor;
  const DtypeName* dtype;
};

/// The tensors in file order: wide dtypes first, so that each begins at a multiple of its element size.
std::vector<Output> plan(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<Output> outputs;
  for (const auto& [name, tensor] : tensors) {
    if (name == metadata_key) fail(path, "a tensor cannot be named ", metadata_key);
    if (!tensor.defined()) fail(path, "tensor ", in_quotes(name), " is undefined");
    const at::ScalarType type = tensor.scalar_type();
    const auto* dtype = std::find_if(std::begin(dtypes), std::end(dtypes), [type](auto& d) { return d.type == type; });
    if (dtype == std::end(dtypes)) {
      fail(path, "tensor ", in_quotes(name), " is ", c10::toString(type), ", which the format does not have");
    }
    if (tensor.layout() != at::kStrided || tensor.is_meta()) {
      fail(path, "tensor ", in_quotes(name), " is on ", tensor.device(), " with layout ", tensor.layout(),
           ", a strided tensor with values is wanted");
    }
    outputs.push_back({&name, &tensor, dtype});
  }
  std::stable_sort(outputs.begin(), outputs.end(),
                   [](const Output& a, const Output& b) { return a.dtype->size > b.dtype->size; });
  return outputs;
}

std::string header_text(const std::string& path, const std::vector<Output>& outputs,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::int64_t offset = 0;
  for (const Output& o : outputs) {
    const std::int64_t end = offset + o.tensor->numel() * o.dtype->size;
    header[*o.name] = {{"dtype", o.dtype->name}, {"shape", o.tensor->sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    fail(path, "a tensor's name or a metadata string is not UTF-8");
  }
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > static_cast<std::size_t>(max_header_bytes)) {
    fail(path, "the header would take ", text.size(), " bytes, the limit is ", max_header_bytes);
  }
  return text;
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  // O_NONBLOCK: a named pipe is refused below instead of waited for.
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) fail(path, "cannot be opened: ", std::strerror(errno));
  struct stat facts {};
  if (::fstat(file.fd(), &facts) != 0) fail(path, "cannot be examined: ", std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) fail(path, "is not a regular file");

  std::int64_t data_start = 0;
  Header header = read_header(file, facts.st_size, &data_start);
  check_layout(path, &header.entries, facts.st_size - data_start);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  for (const Entry& e : header.entries) result.tensors.emplace(e.name, read_tensor(file, e, data_start));
  return result;
}

void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<Output> outputs = plan(path, tensors);
  const std::string header = header_text(path, outputs, metadata);
  ReplacingFile file(path);
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(header.size() >> (8 * i));
  file.write(length.data(), 8);
  file.write(header.data(), static_cast<std::int64_t>(header.size()));
  for (const Output& o : outputs) {
    const at::Tensor values = o.tensor->detach().to(at::kCPU).resolve_neg().contiguous();
    file.write(values.const_data_ptr(), values.numel() * o.dtype->size);
  }
  file.commit();
}

}  // namespace bie::io
