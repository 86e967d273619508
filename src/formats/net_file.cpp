#include "bie/formats/net_file.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/formats/replacing_file.h"
#include "formats/crc32c.h"
#include "formats/foreign_file.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as files have them");

namespace bie::formats {
namespace {

constexpr const char* kind = "net file";
constexpr char magic[8] = {'\x93', 'B', 'I', 'E', 'N', 'E', 'T', '\n'};
constexpr std::int64_t header_bytes = 64, blob_alignment = 64;
constexpr std::int64_t checked_from = 16;  // what the checksum covers begins here
// Far above what a net has, so that counts of a hostile file ask for no memory worth the name.
constexpr std::uint32_t most_items = 1 << 20, most_of_a_node = 64, most_text = 1 << 24;
constexpr std::int64_t most_size = std::int64_t{1} << 26;

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + blob_alignment - 1) / blob_alignment * blob_alignment; }

/// Numbers one after the other out of a range of bytes.
class Reader {
 public:
  Reader(const std::string& name, const std::uint8_t* at, std::int64_t size) : name_(name), at_(at), left_(size) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  /// A count of records that take `bytes` each at least.
  std::uint32_t count(const char* what, std::uint32_t most, std::int64_t bytes) {
    const auto value = number<std::uint32_t>();
    if (value > most || value * bytes > left_)
      fail_file(kind, name_, "claims ", value, " ", what, ", ", left_, " bytes are left");
    return value;
  }
  template <class T>
  std::vector<T> list(const char* what, std::uint32_t most) {
    std::vector<T> values(count(what, most, sizeof(T)));
    if (!values.empty()) std::memcpy(values.data(), take(values.size() * sizeof(T)), values.size() * sizeof(T));
    return values;
  }
  std::string text() {
    const std::uint32_t size = count("bytes of text", most_text, 1);
    return {reinterpret_cast<const char*>(take(size)), size};
  }
  std::int64_t left() const { return left_; }

 private:
  const std::uint8_t* take(std::size_t bytes) {
    if (static_cast<std::int64_t>(bytes) > left_) fail_file(kind, name_, "its graph ends too soon");
    left_ -= static_cast<std::int64_t>(bytes);
    return std::exchange(at_, at_ + bytes);
  }

  const std::string& name_;
  const std::uint8_t* at_;
  std::int64_t left_;
};

void check_numbers(const std::string& name, const char* what, const std::vector<std::uint32_t>& numbers,
                   std::size_t count, bool may_lack = false) {
  for (const std::uint32_t number : numbers)
    if (number >= count && !(may_lack && number == no_blob))
      fail_file(kind, name, "names ", what, " ", number, ", there are ", count);
}

NetValue read_value(const std::string& name, Reader& in) {
  const auto element = in.number<std::uint32_t>();
  if (element > static_cast<std::uint32_t>(NetElement::bits)) fail_file(kind, name, "has elements of kind ", element);
  NetValue value{static_cast<NetElement>(element), in.list<std::int64_t>("sizes", 3)};
  std::int64_t product = 1;
  for (const std::int64_t size : value.sizes) {
    if (size < 1 || size > most_size || (product *= size) > most_size)
      fail_file(kind, name, "has a value of ", listed(value.sizes));
  }
  if (value.sizes.size() != 1 && value.sizes.size() != 3)
    fail_file(kind, name, "expected a value of 1 or 3 sizes, got one of ", value.sizes.size());
  return value;
}

NetNode read_node(Reader& in) {
  NetNode node;
  node.op = in.number<std::uint32_t>();
  node.inputs = in.list<std::uint32_t>("inputs", most_of_a_node);
  node.output = in.number<std::uint32_t>();
  node.ints = in.list<std::int64_t>("integers", most_of_a_node);
  node.floats = in.list<float>("floats", most_of_a_node);
  node.blobs = in.list<std::uint32_t>("blobs", most_of_a_node);
  return node;
}

/// Every value is an input or what one node writes, before it is read.
void check_order(const std::string& name, const NetFile& net) {
  std::vector<bool> written(net.values.size());
  const auto write = [&](std::uint32_t value) {
    if (written[value]) fail_file(kind, name, "writes value ", value, " twice");
    written[value] = true;
  };
  const auto read = [&](std::uint32_t value) {
    if (!written[value]) fail_file(kind, name, "reads value ", value, " before it is written");
  };
  for (const std::uint32_t value : net.inputs) write(value);
  for (const NetNode& node : net.nodes) {
    for (const std::uint32_t value : node.inputs) read(value);
    write(node.output);
  }
  for (const std::uint32_t value : net.outputs) read(value);
}

/// Appends numbers as they lie in memory.
class Writer {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  template <class T>
  void list(const std::vector<T>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const T value : values) number(value);
  }
  void text(const std::string& text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

std::uint32_t checksum_of(const std::uint8_t* bytes, std::int64_t size) {
  return crc32c({reinterpret_cast<const char*>(bytes) + checked_from, static_cast<std::size_t>(size - checked_from)});
}

}  // namespace

NetFile read_net(const std::string& name, const std::uint8_t* bytes, std::int64_t size, NetChecksum checksum) {
  if (size < header_bytes || std::memcmp(bytes, magic, sizeof(magic)) != 0) {
    const std::string other = foreign_file(bytes, size);
    fail_file(kind, name, other.empty() ? std::string("is no net of bie") : "is " + other + ", no net of bie");
  }
  Reader header(name, bytes + sizeof(magic), header_bytes - static_cast<std::int64_t>(sizeof(magic)));
  const auto version = header.number<std::uint32_t>(), crc = header.number<std::uint32_t>();
  if (version == 0 || version > net_version)
    fail_file(kind, name, "is of version ", version, ", this build reads 1 to ", net_version);
  const auto whole = header.number<std::uint64_t>(), graph_bytes = header.number<std::uint64_t>(),
             data_begin = header.number<std::uint64_t>();
  const auto there = static_cast<std::uint64_t>(size);
  if (whole != there) fail_file(kind, name, "has ", size, " bytes, its header says ", whole);
  if (checksum == NetChecksum::wanted && checksum_of(bytes, size) != crc)
    fail_file(kind, name, "is damaged: its bytes are not those that were written (crc32c)");
  if (data_begin > there || data_begin % blob_alignment != 0 || data_begin < header_bytes ||
      graph_bytes > data_begin - header_bytes)
    fail_file(kind, name, "has a graph of ", graph_bytes, " bytes and data from byte ", data_begin, " on");

  NetFile net;
  Reader in(name, bytes + header_bytes, static_cast<std::int64_t>(graph_bytes));
  for (std::uint32_t left = in.count("texts", most_items, 8); left > 0; --left) {
    std::string key = in.text();
    net.metadata[std::move(key)] = in.text();
  }
  for (std::uint32_t left = in.count("values", most_items, 8); left > 0; --left)
    net.values.push_back(read_value(name, in));
  const auto data_bytes = there - data_begin;
  for (std::uint32_t left = in.count("blobs", most_items, 16); left > 0; --left) {
    const auto begin = in.number<std::uint64_t>(), count = in.number<std::uint64_t>();
    if (begin > data_bytes || count > data_bytes - begin || begin % blob_alignment != 0)
      fail_file(kind, name, "has a blob of ", count, " bytes at byte ", begin, " of ", data_bytes);
    net.blobs.push_back({bytes + data_begin + begin, static_cast<std::int64_t>(count)});
  }
  for (std::uint32_t left = in.count("nodes", most_items, 24); left > 0; --left) net.nodes.push_back(read_node(in));
  net.inputs = in.list<std::uint32_t>("inputs", most_of_a_node);
  net.outputs = in.list<std::uint32_t>("outputs", most_of_a_node);
  if (in.left() != 0) fail_file(kind, name, "has ", in.left(), " bytes behind its graph");

  check_numbers(name, "value", net.inputs, net.values.size());
  check_numbers(name, "value", net.outputs, net.values.size());
  for (const NetNode& node : net.nodes) {
    check_numbers(name, "value", node.inputs, net.values.size());
    check_numbers(name, "value", {node.output}, net.values.size());
    check_numbers(name, "blob", node.blobs, net.blobs.size(), /*may_lack=*/true);
  }
  check_order(name, net);
  return net;
}

NetFile load_net(const std::string& path, NetChecksum checksum) {
  const auto file = std::make_shared<const MappedFile>(kind, path);
  NetFile net = read_net(path, file->data(), file->size(), checksum);
  net.owners.push_back(file);
  return net;
}

std::vector<std::uint8_t> net_bytes(const NetFile& net) {
  Writer graph;
  graph.number(static_cast<std::uint32_t>(net.metadata.size()));
  for (const auto& [key, text] : net.metadata) {
    graph.text(key);
    graph.text(text);
  }
  graph.number(static_cast<std::uint32_t>(net.values.size()));
  for (const NetValue& value : net.values) {
    graph.number(static_cast<std::uint32_t>(value.element));
    graph.list(value.sizes);
  }
  graph.number(static_cast<std::uint32_t>(net.blobs.size()));
  std::int64_t data_bytes = 0;
  for (const NetBlob& blob : net.blobs) {
    graph.number(static_cast<std::uint64_t>(data_bytes));
    graph.number(static_cast<std::uint64_t>(blob.size));
    data_bytes = rounded_up(data_bytes + blob.size);
  }
  graph.number(static_cast<std::uint32_t>(net.nodes.size()));
  for (const NetNode& node : net.nodes) {
    graph.number(node.op);
    graph.list(node.inputs);
    graph.number(node.output);
    graph.list(node.ints);
    graph.list(node.floats);
    graph.list(node.blobs);
  }
  graph.list(net.inputs);
  graph.list(net.outputs);

  const auto graph_bytes = static_cast<std::int64_t>(graph.bytes().size());
  const std::int64_t data_begin = rounded_up(header_bytes + graph_bytes), size = data_begin + data_bytes;
  Writer header;
  for (const char c : magic) header.number(c);
  header.number(net_version);
  header.number(std::uint32_t{0});
  header.number(static_cast<std::uint64_t>(size));
  header.number(static_cast<std::uint64_t>(graph_bytes));
  header.number(static_cast<std::uint64_t>(data_begin));

  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  std::memcpy(bytes.data(), header.bytes().data(), header.bytes().size());
  std::memcpy(bytes.data() + header_bytes, graph.bytes().data(), graph.bytes().size());
  std::int64_t at = data_begin;
  for (const NetBlob& blob : net.blobs) {
    if (blob.size > 0) std::memcpy(bytes.data() + at, blob.data, static_cast<std::size_t>(blob.size));
    at = rounded_up(at + blob.size);
  }
  const std::uint32_t crc = checksum_of(bytes.data(), size);
  std::memcpy(bytes.data() + 12, &crc, sizeof(crc));
  return bytes;
}

void save_net(const std::string& path, const NetFile& net) {
  const std::vector<std::uint8_t> bytes = net_bytes(net);
  ReplacingFile file(kind, path);
  file.write(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  file.commit();
}

std::uint32_t add_blob(NetFile& net, std::vector<std::uint8_t> bytes) {
  const auto own = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  net.blobs.push_back({own->data(), static_cast<std::int64_t>(own->size())});
  net.owners.push_back(own);
  return static_cast<std::uint32_t>(net.blobs.size() - 1);
}

}  // namespace bie::formats
