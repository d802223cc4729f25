#pragma once
// The one map of objects, by key. A value that is being written under a key that has a value lies beside the
// map until it is published.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/hash.hpp"
#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

/// Invariant: an object is in exactly one of the two maps, under `*object.key`, and in the second only while
/// the first has another of this key. Objects keep their address until they are erased.
/// @thread  not synchronised.
class object_index {
 public:
  static std::uint64_t hash_of(std::string_view key) noexcept { return XXH3_64bits(key.data(), key.size()); }
  static std::uint64_t hash_of(const stored_object& o) noexcept { return hash_of(*o.key); }

  /// The object in the map: a published one, or one that is being written where there is no other. Null:
  /// none.
  stored_object* find(std::string_view key);
  const stored_object* find(std::string_view key) const;
  /// By all that is known of its key. @param hash  see `hash_of`
  stored_object* find_hash(std::uint64_t hash);
  /// Whether another value of the key is being written beside its present one.
  bool has_beside(std::string_view key) const { return beside_.find(key) != beside_.end(); }

  /// @returns the object of the key, and whether it is a new one.
  std::pair<stored_object*, bool> add(std::string&& key);
  /// A new object: beside the one of this key, where there is one. @pre `has_beside(key)` is false
  stored_object& add_or_beside(std::string_view key);
  /// A million come in a second or two, of which growing by two each time took a sixth: grows by four.
  void expect_many();
  /// @pre no object has the key, and the object does not lie beside another.
  void rename(stored_object& o, std::string_view key);
  /// An object that lay beside the map takes its place there. @pre the place is free
  void put_in_place(stored_object& o);
  void erase(stored_object& o);

  std::size_t size() const noexcept { return all_.size() + beside_.size(); }
  /// Calls `visit` for the objects in the map, in no order, until it returns false. `visit` must not add or
  /// erase any.
  template <class F>
  void each(F visit) {
    for (auto& [key, o] : all_)
      if (!visit(o)) return;
  }
  template <class F>
  void each(F visit) const {
    for (const auto& [key, o] : all_)
      if (!visit(o)) return;
  }
  /// The same for the objects beside the map.
  template <class F>
  void each_beside(F visit) {
    for (auto& [key, o] : beside_)
      if (!visit(o)) return;
  }
  template <class F>
  void each_beside(F visit) const {
    for (const auto& [key, o] : beside_)
      if (!visit(o)) return;
  }

 private:
  struct hashed_key {  ///< the hash is all that a lookup needs
    std::uint64_t hash;
  };
  struct text_hash {
    using is_transparent = void;
    // Not noexcept, so that libstdc++ keeps it beside the key: a table that grows reads no key again.
    std::size_t operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }
    std::size_t operator()(hashed_key key) const noexcept { return key.hash; }
  };
  struct same_key {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept { return a == b; }
    bool operator()(hashed_key a, std::string_view b) const noexcept { return a.hash == text_hash{}(b); }
    bool operator()(std::string_view a, hashed_key b) const noexcept { return text_hash{}(a) == b.hash; }
  };
  using map = std::unordered_map<std::string, stored_object, text_hash, same_key>;

  map all_, beside_;
};

}  // namespace mooncaf
