// Semantics of a net's nodes: their sizes, checked against the file's.
#pragma once

#include <string>

#include "bie/formats/net_file.h"
#include "bie/kernels/conv2d.h"
#include "bie/kernels/planes.h"
#include "bie/runtime/net_ops.h"

namespace bie::runtime {

/// Every node's lists and shapes fit, and every blob has the bytes that the node reads. @throws formats::Error, one
/// sentence that names the node.
void check_graph(const formats::NetFile& net);

std::int64_t elements_of(const formats::NetValue& value);
/// Bytes of one sample.
std::int64_t bytes_of(const formats::NetValue& value);
/// Channels, or features where there is one size.
inline std::int64_t channels_of(const formats::NetValue& value) { return value.sizes[0]; }
/// Pixels of a channel.
inline std::int64_t height_of(const formats::NetValue& v) { return v.sizes.size() == 3 ? v.sizes[1] : 1; }
inline std::int64_t width_of(const formats::NetValue& v) { return v.sizes.size() == 3 ? v.sizes[2] : 1; }

kernels::Dtype dtype_of(formats::NetElement element);

/// Shape of a conv2d or float_conv2d node of a checked net.
kernels::Conv2dShape conv_shape(const formats::NetNode& node, const formats::NetValue& x, std::int64_t batch);

/// Shape of a max_pool or average_pool node of a checked net.
kernels::PoolShape pool_shape(const formats::NetNode& node, const formats::NetValue& x, std::int64_t batch);

/// Codes of that many bits: 1, 4 or 8.
kernels::Dtype code_of(std::int64_t bits);

/// Elements that a layer_norm norms together.
std::int64_t normed_of(const formats::NetNode& node, const formats::NetValue& x);

template <class T>
const T* blob_of(const formats::NetFile& net, const formats::NetNode& node, std::size_t i) {
  const std::uint32_t blob = node.blobs[i];
  return blob == formats::no_blob ? nullptr : reinterpret_cast<const T*>(net.blobs[blob].data);
}

}  // namespace bie::runtime
