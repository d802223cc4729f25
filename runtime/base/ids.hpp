#pragma once
// Ids are distinct small structs, never bare integers: a pin cannot be passed where a request is meant.

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace mooncaf {

/// A 64-bit id that is its own type per `Tag`. Zero means "none".
template <class Tag>
struct basic_id {
  std::uint64_t value = 0;

  constexpr explicit operator bool() const noexcept { return value != 0; }
  friend constexpr auto operator<=>(const basic_id&, const basic_id&) noexcept = default;
  friend std::string to_string(basic_id id) { return std::to_string(id.value); }
};

using request_id = basic_id<struct request_tag>;    ///< One client request, cluster-wide unique.
using node_id = basic_id<struct node_tag>;          ///< One process of the cluster.
using worker_id = basic_id<struct worker_tag>;      ///< One prefill or decode instance.
using region_id = basic_id<struct region_tag>;      ///< A registered span of memory on one node.
using pin_id = basic_id<struct pin_tag>;            ///< A promise not to evict a set of blocks.
using transfer_id = basic_id<struct transfer_tag>;  ///< One transfer of one node.

}  // namespace mooncaf

template <class Tag>
struct std::hash<mooncaf::basic_id<Tag>> {
  std::size_t operator()(mooncaf::basic_id<Tag> id) const noexcept {
    return static_cast<std::size_t>(id.value * 0x9E3779B97F4A7C15ull);
  }
};
