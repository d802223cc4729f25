#pragma once
// An object that a client writes part by part.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/hash.hpp"
#include "storage/objects/terms/object_terms.hpp"
#include "storage/objects/wire/directory_link.hpp"

namespace mooncaf {

struct object_outline {
  std::string_view key;
  std::uint64_t size = 0;
  object_ties ties = {};
};

struct part_to_read {
  std::size_t object = 0;  ///< which of the keys
  std::uint64_t at = 0;    ///< bytes from its start
  std::span<std::byte> to;
};

/// An outline that keeps its texts, and how the object is to lie.
struct begun_as {
  begun_as(const object_outline& outline, put_policy how)
      : key(outline.key),
        group(outline.ties.group),
        parent(outline.ties.parent),
        cost(outline.ties.cost),
        policy(std::move(how)) {}
  object_outline outline(std::uint64_t size) const { return {key, size, {group, parent, cost}}; }

  std::string key, group, parent;
  double cost;
  put_policy policy;
};

/// Room that a client has reserved, and the parts that it has written. It belongs to the connection that it
/// was reserved on: where that has ended, room is reserved anew, and what was written is carried there.
/// @thread  `store_client` may work on it on several threads; they take turns.
class partial_object {
 public:
  partial_object(std::shared_ptr<directory_link> link, std::uint64_t ticket, std::uint64_t size,
                 std::vector<replica_place> places, begun_as as)
      : as_(std::move(as)), link_(std::move(link)), ticket_(ticket), size_(size), places_(std::move(places)) {
    XXH3_64bits_reset(&hash_);
  }
  std::uint64_t size() const noexcept { return size_; }

 private:
  friend class store_client;
  /// Notes that these bytes were written. The checksum is computed on the way as long as they come in order;
  /// else each part has one of its own, which is compared when the whole one is computed.
  void note(std::uint64_t at, std::span<const std::span<const std::byte>> pieces);
  /// From now on each part has a checksum of its own.
  void leave_order();
  bool complete() const { return written_.size() == 1 && written_.begin()->second == size_; }

  const begun_as as_;
  std::shared_ptr<directory_link> link_;
  std::uint64_t ticket_, size_;
  std::vector<replica_place> places_;
  std::mutex mutex_;  // guards everything below
  XXH3_state_t hash_;
  std::uint64_t hashed_ = 0;
  bool in_order_ = true, settled_ = true, ended_ = false;
  std::map<std::uint64_t, std::uint64_t> written_;  // ends by beginnings, apart from each other
  struct part_sum {
    std::uint64_t end, checksum;
  };
  std::map<std::uint64_t, part_sum> sums_;  // by beginning, unless in order; of parts not written twice
};

struct begun_object {
  store_code code = store_code::ok;
  std::shared_ptr<partial_object> object;
};

}  // namespace mooncaf
