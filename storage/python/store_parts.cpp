#include "storage/python/store_parts.hpp"

#include <utility>

namespace mooncaf {

namespace {
constexpr auto invalid = static_cast<std::int32_t>(store_code::invalid_parameters);
}  // namespace

std::vector<std::int32_t> store_parts::begin_puts(const store& to, const strings& keys,
                                                  const std::vector<std::uint64_t>& sizes, const how& given) {
  const without_lock free;
  std::vector<std::int32_t> codes(keys.size(), invalid);
  const auto policy = given.policy();
  if (!to || !policy || sizes.size() != keys.size() || !given.fits(keys.size())) return codes;
  std::vector<object_outline> items;
  std::vector<std::size_t> which;
  {
    std::lock_guard lock{mutex_};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (writing_.count(keys[i]) != 0) continue;
      which.push_back(i);
      items.push_back({keys[i], sizes[i], given.ties(i)});
    }
  }
  const auto begun = to->begin(items, *policy);
  std::lock_guard lock{mutex_};
  for (std::size_t i = 0; i < which.size(); ++i) {
    codes[which[i]] = static_cast<std::int32_t>(begun[i].code);
    if (begun[i].object) writing_[keys[which[i]]] = begun[i].object;
  }
  return codes;
}

std::vector<std::int64_t> store_parts::put_parts(const store& to, const strings& keys, const py::list& all,
                                                 const offsets_by_key& offsets) {
  auto parts = take(all, keys.size(), false);
  std::vector<std::int64_t> codes(keys.size(), invalid);
  const without_lock free;
  if (!to || offsets.size() != keys.size()) return codes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto object = find(keys[i]);
    if (!object || !parts[i].valid || offsets[i].size() != parts[i].spans.size()) continue;
    codes[i] = 0;
    for (std::size_t p = 0; p < offsets[i].size() && codes[i] >= 0; ++p) {
      const std::span<const std::byte> piece{parts[i].spans[p]};
      const auto code = to->write_part(*object, offsets[i][p], {&piece, 1});
      codes[i] = code == store_code::ok ? codes[i] + static_cast<std::int64_t>(piece.size())
                                        : static_cast<std::int64_t>(code);
    }
  }
  return codes;
}

std::vector<std::int32_t> store_parts::end_puts(const store& to, const strings& keys, bool publish) {
  const without_lock free;
  std::vector<std::int32_t> codes(keys.size(), invalid);
  if (!to) return codes;
  std::vector<std::shared_ptr<partial_object>> objects;
  std::vector<std::size_t> which;
  {
    std::lock_guard lock{mutex_};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = writing_.find(keys[i]);
      if (found == writing_.end()) continue;
      which.push_back(i);
      objects.push_back(std::move(found->second));
      writing_.erase(found);
    }
  }
  auto ends = std::vector<store_code>(objects.size(), store_code::ok);
  if (publish) ends = to->finish(objects);
  else to->give_up(objects);
  for (std::size_t i = 0; i < which.size(); ++i) codes[which[i]] = static_cast<std::int32_t>(ends[i]);
  return codes;
}

std::vector<std::int32_t> store_parts::begin_gets(const store& from, const strings& keys) {
  const without_lock free;
  std::vector<std::int32_t> codes(keys.size(), invalid);
  if (!from) return codes;
  auto found = from->find(views(keys));
  std::lock_guard lock{mutex_};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    codes[i] = static_cast<std::int32_t>(found[i].code);
    if (found[i].code == store_code::ok) reading_[keys[i]] = std::move(found[i]);
  }
  return codes;
}

std::vector<std::vector<std::int64_t>> store_parts::get_parts(
    const store& from, const strings& keys, const py::list& all, const offsets_by_key& offsets,
    bool in_session, const std::function<bool(std::span<const std::byte>)>& may) {
  auto parts = take(all, keys.size(), true);
  std::vector<std::vector<std::int64_t>> codes;
  for (std::size_t i = 0; i < keys.size(); ++i)
    codes.emplace_back(i < offsets.size() ? offsets[i].size() : 1, invalid);
  const without_lock free;
  if (!from || offsets.size() != keys.size()) return codes;
  auto objects = in_session ? std::vector<object_view>(keys.size()) : from->find(views(keys));
  std::vector<part_to_read> wanted;
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (in_session) {
      std::lock_guard lock{mutex_};
      const auto found = reading_.find(keys[i]);
      if (found == reading_.end()) continue;
      objects[i] = found->second;
    }
    if (!parts[i].valid || offsets[i].size() != parts[i].spans.size()) continue;
    for (std::size_t p = 0; p < offsets[i].size(); ++p) {
      if (!may(parts[i].spans[p])) {
        if (objects[i].code != store_code::ok) codes[i][p] = static_cast<std::int64_t>(objects[i].code);
        continue;
      }
      wanted.push_back({i, offsets[i][p], parts[i].spans[p]});
      which.emplace_back(i, p);
    }
  }
  if (wanted.empty()) return codes;
  const auto done = from->read_parts(views(keys), objects, wanted);
  for (std::size_t w = 0; w < wanted.size(); ++w)
    codes[which[w].first][which[w].second] = done[w] == store_code::ok
                                                 ? static_cast<std::int64_t>(wanted[w].to.size())
                                                 : static_cast<std::int64_t>(done[w]);
  if (!in_session) return codes;
  std::lock_guard lock{mutex_};  // a checksum that was compared need not be again
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (const auto found = reading_.find(keys[i]); found != reading_.end())
      found->second.sound = objects[i].sound;
  return codes;
}

void store_parts::end_gets(const strings& keys) {
  const without_lock free;
  std::lock_guard lock{mutex_};
  for (const auto& key : keys) reading_.erase(key);
}

void store_parts::forget() {
  std::lock_guard lock{mutex_};
  writing_.clear();
  reading_.clear();
}

std::shared_ptr<partial_object> store_parts::find(const std::string& key) {
  std::lock_guard lock{mutex_};
  const auto found = writing_.find(key);
  return found == writing_.end() ? nullptr : found->second;
}

}  // namespace mooncaf
