#pragma once
// Sums by number, for numbers that lie anywhere: hours apart cost nothing.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace mooncaf {

/// Values by key, ascending; only keys that hold something take memory.
/// @thread  Owned by one thread; not synchronised.
template <class Key, class Value>
class sparse_buckets {
 public:
  using entry = std::pair<Key, Value>;

  /// Made if it is not there. @cost a shift of all entries behind it; nothing at the end, where time adds.
  Value& at(const Key& key) {
    const auto i = from(key);
    if (i != all_.end() && i->first == key) return i->second;
    return all_.insert(i, entry{key, Value{}})->second;
  }
  Value* find(const Key& key) {
    const auto i = from(key);
    return i != all_.end() && i->first == key ? &i->second : nullptr;
  }
  void erase(const Key& key) {
    if (const auto i = from(key); i != all_.end() && i->first == key) all_.erase(i);
  }
  void drop_before(const Key& key) { all_.erase(all_.begin(), from(key)); }

  /// The first entry with a key not below this one.
  auto from(const Key& key) { return std::ranges::lower_bound(all_, key, {}, &entry::first); }
  auto from(const Key& key) const { return std::ranges::lower_bound(all_, key, {}, &entry::first); }
  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  std::size_t size() const noexcept { return all_.size(); }

 private:
  std::vector<entry> all_;
};

}  // namespace mooncaf
