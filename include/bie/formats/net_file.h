// Exported nets (.net.bie): a graph of layers and the bytes of their weights. docs/spec/nets.md has every byte.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bie::formats {

/// Elements of what flows between the nodes.
enum class NetElement : std::uint32_t {
  f32,
  s8,    ///< a code per byte, signs as 1 and -1
  s32,   ///< sums of a product
  bits,  ///< signs of features, 8 per byte: element 8j+i is bit i of byte j, 1 means >= 0
};

/// One sample's value between two nodes: [features] or [channels, height, width].
struct NetValue {
  NetElement element = NetElement::f32;
  std::vector<std::int64_t> sizes;
};

/// One operation; what its lists mean belongs to `op` (docs/spec/nets.md).
struct NetNode {
  std::uint32_t op = 0;
  std::vector<std::uint32_t> inputs;  ///< values
  std::uint32_t output = 0;           ///< a value that no other node writes
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::uint32_t> blobs;  ///< no_blob: left out
};

inline constexpr std::uint32_t no_blob = 0xffffffff;

/// Bytes of a weight, at a multiple of 64 in a file.
struct NetBlob {
  const std::uint8_t* data = nullptr;
  std::int64_t size = 0;
};

struct NetFile {
  std::vector<NetValue> values;
  std::vector<NetNode> nodes;  ///< each behind those whose values it reads
  std::vector<std::uint32_t> inputs, outputs;
  std::vector<NetBlob> blobs;
  std::map<std::string, std::string> metadata;
  std::vector<std::shared_ptr<const void>> owners;  ///< of the blobs' bytes
};

inline constexpr std::uint32_t net_version = 1;

enum class NetChecksum : std::uint8_t { wanted, ignored };

/// Maps a file and trusts nothing in it: every count, number of a value and range of bytes is checked, what the nodes
/// mean is not. Blobs are views into the map. @throws Error, one sentence naming the file.
NetFile load_net(const std::string& path, NetChecksum checksum = NetChecksum::wanted);
/// Reads a net from memory, which must be aligned to 64 bytes and outlive the result.
/// @param name  names the net in error sentences.
NetFile read_net(const std::string& name, const std::uint8_t* bytes, std::int64_t size,
                 NetChecksum checksum = NetChecksum::wanted);

/// The bytes of a file. The same net gives the same bytes on every machine.
std::vector<std::uint8_t> net_bytes(const NetFile& net);
/// Replaces what is at `path` in one step. @throws Error
void save_net(const std::string& path, const NetFile& net);

/// Adds a blob that owns its bytes; its number.
std::uint32_t add_blob(NetFile& net, std::vector<std::uint8_t> bytes);

}  // namespace bie::formats
