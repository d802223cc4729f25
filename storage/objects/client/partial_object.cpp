// Objects that are written and read part by part: the other half of `store_client`.

#include "storage/objects/client/partial_object.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/units.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/client/waiting_for_room.hpp"

namespace mooncaf {

namespace {

/// What is carried to other room at once.
constexpr std::uint64_t carried_at_once = 4 * MiB;

}  // namespace

void partial_object::leave_order() {
  if (!std::exchange(in_order_, false)) return;
  if (hashed_ > 0) sums_[0] = {hashed_, XXH3_64bits_digest(&hash_)};
}

void partial_object::note(std::uint64_t at, std::span<const std::span<const std::byte>> pieces) {
  if (at != hashed_) leave_order();
  if (!in_order_) XXH3_64bits_reset(&hash_);
  auto end = at;
  for (const auto& p : pieces) {
    XXH3_64bits_update(&hash_, p.data(), p.size());
    end += p.size();
  }
  if (in_order_) hashed_ = end;
  else {
    std::erase_if(sums_, [&](const auto& s) { return s.first < end && s.second.end > at; });
    sums_[at] = {end, XXH3_64bits_digest(&hash_)};
  }
  auto next = written_.upper_bound(at);
  if (next != written_.begin() && std::prev(next)->second >= at) --next;
  while (next != written_.end() && next->first <= end) {
    at = std::min(at, next->first);
    end = std::max(end, next->second);
    next = written_.erase(next);
  }
  written_.emplace(at, end);
}

std::vector<begun_object> store_client::begin(std::span<const object_outline> items,
                                              const put_policy& policy) {
  auto all = patiently([&] { return begin_once(items, policy); },
                       [](const auto& begun) {
                         return std::ranges::any_of(begun, [](const auto& one) {
                           return one.code == store_code::directory_unreachable;
                         });
                       });
  std::vector<store_code> codes;
  for (const auto& one : all) codes.push_back(one.code);
  auto patient = policy;
  for (waiting_for_room wait; wait.again(codes, patient);) {
    std::vector<object_outline> rest;
    for (const auto i : wait.busy()) rest.push_back(items[i]);
    auto fresh = begin_once(rest, patient);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      codes[wait.busy()[i]] = fresh[i].code;
      all[wait.busy()[i]] = std::move(fresh[i]);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].code = codes[i];
  return all;
}

std::vector<begun_object> store_client::begin_once(std::span<const object_outline> items,
                                                   const put_policy& policy) {
  std::vector<begun_object> all(items.size());
  if (items.size() > store_wire::batch_max) {
    for (auto& one : all) one.code = store_code::invalid_parameters;
    return all;
  }
  auto made = reserve(items, policy);
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& room = made.items[i];
    all[i].code = room.code;
    if (room.code != store_code::ok) continue;
    reach_all(room.places);
    all[i].object = std::make_shared<partial_object>(made.to->all[room.shard], room.ticket, items[i].size,
                                                     std::move(room.places), begun_as{items[i], policy});
  }
  return all;
}

store_code store_client::write_part(partial_object& object, std::uint64_t at, source_pieces pieces) {
  std::uint64_t bytes = 0;
  for (const auto& p : pieces) bytes += p.size();
  if (bytes == 0 || at > object.size_ || bytes > object.size_ - at) return store_code::invalid_parameters;
  std::lock_guard lock{object.mutex_};
  if (object.ended_) return store_code::invalid_parameters;
  if (!object.link_->usable())
    if (const auto code = carry_over(object); code != store_code::ok) return code;
  for (const auto replica : replicas_of(object.places_, object.size_)) {
    if (!reach_.write(part_of(replica, at, bytes), pieces, object.settled_))
      return store_code::transfer_failed;
  }
  object.note(at, pieces);
  return store_code::ok;
}

/// The checksum of bytes that did not come in order is computed from the object's memory, and each part's is
/// compared after that, so that no damage meanwhile is signed along.
result<std::uint64_t> store_client::sum_to_publish(const partial_object& o) {
  if (o.in_order_) return XXH3_64bits_digest(&o.hash_);
  const auto first = replicas_of(o.places_, o.size_).at(0);
  const auto whole = reach_.checksum(first);
  if (!whole) return whole;
  for (const auto& [at, part] : o.sums_) {
    const auto there = reach_.checksum(part_of(first, at, part.end - at));
    if (!there) return there;
    if (*there != part.checksum) return fail(ec::corrupt, "a part is not what was written");
  }
  return whole;
}

/// Its directory is gone, and with it the room. What was written lies there for a while, as a late writer might still write
/// (`object_table_options::quarantine`): another directory gives room, and it is copied there. Its parts' checksums are
/// compared when the object is published.
/// @pre nobody else works on the object: its lock is held, or it has ended
store_code store_client::carry_over(partial_object& o) {
  const auto outline = o.as_.outline(o.size_);
  const auto lost = [&](const reservations& r) {
    const auto code = r.items.front().code;
    return code == store_code::directory_unreachable ||
           (code == store_code::already_exists && came_of(outline.key) != store_code::ok);
  };
  auto made = patiently([&] { return reserve({&outline, 1}, o.as_.policy); }, lost);
  auto& room = made.items.front();
  if (room.code != store_code::ok) return room.code;
  const auto before = std::exchange(o.places_, std::move(room.places));
  o.link_ = made.to->all[room.shard];
  o.ticket_ = room.ticket;
  o.leave_order();
  reach_all(o.places_);
  const auto from = replicas_of(before, o.size_), to = replicas_of(o.places_, o.size_);
  std::vector<std::byte> bytes(std::min(carried_at_once, o.size_));
  for (const auto& [begin, end] : o.written_)
    for (auto at = begin; at < end; at += carried_at_once) {
      const auto piece = std::span{bytes}.first(std::min(carried_at_once, end - at));
      const auto read = std::ranges::any_of(from, [&](const auto& replica) {
        return reach_.read(part_of(replica, at, piece.size()), {&piece, 1}).has_value();
      });
      const std::span<const std::byte> out = piece;
      if (!read || !std::ranges::all_of(to, [&](const auto& replica) {
            return reach_.write(part_of(replica, at, out.size()), {&out, 1}, o.settled_).has_value();
          }))
        return store_code::transfer_failed;
    }
  return store_code::ok;
}

// An object whose directory goes away meanwhile is published by the next one. Where the answer alone was lost, it is there.
std::vector<store_code> store_client::finish(std::span<const std::shared_ptr<partial_object>> objects) {
  std::vector<store_code> codes(objects.size(), store_code::invalid_parameters);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    std::lock_guard lock{objects[i]->mutex_};
    if (!std::exchange(objects[i]->ended_, true)) open.push_back(i);
  }
  end_all(objects, open, codes);
  std::erase_if(open, [&](std::size_t i) { return codes[i] != store_code::directory_unreachable; });
  for (const auto i : open) codes[i] = carry_over(*objects[i]);
  std::vector<std::size_t> carried;
  for (const auto i : open) {
    if (codes[i] == store_code::already_exists) codes[i] = store_code::ok;
    else if (codes[i] == store_code::ok) carried.push_back(i);
  }
  end_all(objects, carried, codes);
  return codes;
}

/// Publishes, or gives up what is not whole.
/// @pre those have ended, so nobody else works on them
void store_client::end_all(std::span<const std::shared_ptr<partial_object>> objects,
                           std::span<const std::size_t> which, std::vector<store_code>& codes) {
  endings good, bad;
  for (const auto i : which) {
    const auto& o = *objects[i];
    const auto sum = o.complete() ? sum_to_publish(o) : result<std::uint64_t>{0};
    codes[i] = store_code::invalid_parameters;
    if (!sum)
      codes[i] =
          sum.error().code == ec::corrupt ? store_code::checksum_mismatch : store_code::transfer_failed;
    if (sum && o.complete() && o.settled_) good[o.link_.get()].push_back({i, o.ticket_, *sum});
    else if (o.settled_) bad[o.link_.get()].push_back({i, o.ticket_, 0});
  }
  revoke(bad);
  publish(good, codes);
}

void store_client::give_up(std::span<const std::shared_ptr<partial_object>> objects) {
  endings all;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    auto& o = *objects[i];
    std::lock_guard lock{o.mutex_};
    if (!o.ended_ && o.settled_) all[o.link_.get()].push_back({i, o.ticket_, 0});
    o.ended_ = true;
  }
  revoke(all);
}

/// How one call reads parts of an object: from which replicas, and from which no more.
struct store_client::parts_of_one {
  std::vector<std::vector<replica_place>> read_from, not_from;
  store_code why = store_code::transfer_failed;  ///< if no replica could be read at all
};

/// Chooses a replica of which all agrees with the checksum, the nearest first. @returns false if there is
/// none any more.
bool store_client::find_sound(object_view& object, parts_of_one& reading) {
  if (!object.sound.empty()) return true;
  reach_all(object.places);
  const auto is = [](std::span<const replica_place> replica) {
    return [=](const auto& other) {
      return std::equal(replica.begin(), replica.end(), other.begin(), other.end());
    };
  };
  for (const auto replica : nearest_first(object)) {
    if (std::any_of(reading.not_from.begin(), reading.not_from.end(), is(replica))) continue;
    const auto good = reach_.agrees(replica, object.checksum);
    if (good && *good) {
      object.sound.assign(replica.begin(), replica.end());
      return true;
    }
    reading.not_from.emplace_back(replica.begin(), replica.end());
    if (good) reading.why = store_code::checksum_mismatch;
  }
  return false;
}

/// Reads from one replica, or, where that fails or was torn, from another. @returns which one of `read_from`,
/// if the code is ok.
std::pair<store_code, std::size_t> store_client::read_part(object_view& object, const part_to_read& part,
                                                           parts_of_one& reading) {
  while (find_sound(object, reading)) {
    const auto read = reach_.read(part_of(object.sound, part.at, part.to.size()), {&part.to, 1}, false);
    auto& all = reading.read_from;
    if (read) {
      if (all.empty() || all.back() != object.sound) all.push_back(object.sound);
      return {store_code::ok, all.size() - 1};
    }
    if (read.error() == ec::corrupt) reading.why = store_code::checksum_mismatch;
    reading.not_from.push_back(std::exchange(object.sound, {}));
  }
  return {reading.why, 0};
}

// The directory is asked again after copying, because a lease may have ended while parts were read.
std::vector<store_code> store_client::read_parts(std::span<const std::string_view> keys,
                                                 std::span<object_view> objects,
                                                 std::span<const part_to_read> parts) {
  std::vector<store_code> codes(parts.size(), store_code::invalid_parameters);
  std::vector<parts_of_one> reading(objects.size());
  std::vector<std::size_t> read_from(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    auto& from = objects[part.object];
    if (from.code != store_code::ok) {
      codes[i] = from.code;
      continue;
    }
    if (part.to.empty() || part.at > from.size || part.to.size() > from.size - part.at) continue;
    std::tie(codes[i], read_from[i]) = read_part(from, part, reading[part.object]);
  }
  // A replica that is in its places now was there all the time: under a lease none leaves them and comes
  // back.
  const auto now = find(keys);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (codes[i] != store_code::ok) continue;
    const auto &before = objects[parts[i].object], &after = now[parts[i].object];
    const auto& places = reading[parts[i].object].read_from[read_from[i]];
    const auto there = replicas_of(after.places, after.size);
    const bool same = after.code == store_code::ok && after.size == before.size &&
                      after.checksum == before.checksum &&
                      std::any_of(there.begin(), there.end(), [&](const auto& replica) {
                        return std::equal(replica.begin(), replica.end(), places.begin(), places.end());
                      });
    if (!same)
      codes[i] = after.code == store_code::ok || after.code == store_code::not_found ? store_code::lease_ended
                                                                                     : after.code;
  }
  for (std::size_t i = 0; i < objects.size(); ++i) objects[i].asked = now[i].asked;
  return codes;
}

}  // namespace mooncaf
