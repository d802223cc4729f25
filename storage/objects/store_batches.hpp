#pragma once
// Questions about many objects, as a client of the store asks them.

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "storage/objects/store_wire.hpp"

namespace mooncaf {

inline void put_keys(byte_writer& out, std::span<const std::string_view> keys) {
  out.put(static_cast<std::uint32_t>(keys.size()));
  for (const auto key : keys) out.put_text(key);
}

/// Splits what does not fit one question. @param one  answers for a part of the items
template <class Result, class Item, class Ask>
std::vector<Result> in_batches(std::span<const Item> items, const Ask& one) {
  if (items.size() <= store_wire::batch_max) return one(items);
  std::vector<Result> all;
  for (std::size_t at = 0; at < items.size(); at += store_wire::batch_max) {
    const auto part = one(items.subspan(at, std::min<std::size_t>(store_wire::batch_max, items.size() - at)));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace mooncaf
