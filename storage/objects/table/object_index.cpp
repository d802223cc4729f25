#include "storage/objects/table/object_index.hpp"

namespace mooncaf {

stored_object* object_index::find(std::string_view key) {
  const auto found = all_.find(key);
  return found == all_.end() ? nullptr : &found->second;
}

const stored_object* object_index::find(std::string_view key) const {
  const auto found = all_.find(key);
  return found == all_.end() ? nullptr : &found->second;
}

stored_object* object_index::find_hash(std::uint64_t hash) {
  const auto found = all_.find(hashed_key{hash});
  return found == all_.end() ? nullptr : &found->second;
}

std::pair<stored_object*, bool> object_index::add(std::string&& key) {
  const auto [at, fresh] = all_.try_emplace(std::move(key));
  at->second.key = &at->first;
  return {&at->second, fresh};
}

stored_object& object_index::add_or_beside(std::string_view key) {
  const bool beside = all_.find(key) != all_.end();
  const auto at = (beside ? beside_ : all_).try_emplace(std::string{key}).first;
  at->second.key = &at->first;
  at->second.beside = beside;
  return at->second;
}

void object_index::expect_many() {
  if (const auto n = all_.size(); n >= all_.bucket_count()) all_.reserve(4 * n);
}

void object_index::rename(stored_object& o, std::string_view key) {
  auto node = all_.extract(all_.find(*o.key));
  node.key() = key;
  all_.insert(std::move(node));  // the key, and the object, stay where they are
}

void object_index::put_in_place(stored_object& o) {
  if (!std::exchange(o.beside, false)) return;
  all_.insert(beside_.extract(beside_.find(*o.key)));
}

void object_index::erase(stored_object& o) {
  auto& from = o.beside ? beside_ : all_;
  from.erase(from.find(*o.key));
}

}  // namespace mooncaf
