// What an object's replicas are made of: the part of `object_table` that knows of stripes.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

std::vector<std::span<const replica_place>> replicas_of(std::span<const replica_place> places,
                                                        std::uint64_t size) {
  std::vector<std::span<const replica_place>> all;
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].bytes > size - bytes) break;
    bytes += places[i].bytes;
    if (bytes < size) continue;
    all.push_back(places.subspan(begin, i + 1 - begin));
    begin = i + 1;
    bytes = 0;
  }
  return all;
}

std::vector<replica_place> part_of(std::span<const replica_place> replica, std::uint64_t at,
                                   std::uint64_t bytes) {
  std::vector<replica_place> all;
  for (const auto& stripe : replica) {
    if (bytes == 0) break;
    if (at >= stripe.bytes) {
      at -= stripe.bytes;
      continue;
    }
    const auto n = std::min(bytes, stripe.bytes - at);
    all.push_back({stripe.segment, stripe.offset + at, n});
    bytes -= n;
    at = 0;
  }
  return all;
}

/// The replicas that stay change hands.
void object_table::keep_copies(object& was, object& is) {
  auto stays = was.memory;
  if (is.leaving != 0) drop_copies(stays, is.leaving);
  std::erase_if(was.memory, [&](const held& part) {
    return std::any_of(stays.begin(), stays.end(), [&](const held& s) { return s.one_with(part); });
  });
  is.memory.insert(is.memory.begin(), stays.begin(), stays.end());
}

/// Takes out all replicas of which a part lies in the segment.
void object_table::drop_copies(std::vector<held>& memory, std::uint32_t from) {
  std::vector<held> there;
  for (const auto& part : memory)
    if (part.segment == from) there.push_back(part);
  std::erase_if(memory, [&](const held& part) {
    return std::any_of(there.begin(), there.end(), [&](const held& t) { return t.one_with(part); });
  });
}

/// A replica of which a stripe is lost is none. What is left of it rests: somebody may read or write it.
/// @returns whether it was the last.
bool object_table::lose_part(object& o, std::uint32_t from, time_point now) {
  auto stays = o.memory;
  drop_copies(stays, from);
  if (stays.size() == o.memory.size()) return false;
  const auto read_until = o.ticket != 0 ? now + options_.quarantine : protected_until(o);
  for (const auto& part : o.memory) {
    const bool gone =
        std::none_of(stays.begin(), stays.end(), [&](const held& s) { return s.one_with(part); });
    if (part.segment == from) {
      untake(part);
      hot_bytes_ -= part.for_readers ? part.bytes : 0;
    }
    if (gone && part.segment != from) give_back(part, read_until, now);
  }
  if (o.ticket != 0 && o.moves) owners_[o.owner].moving_bytes -= bytes_in(o.memory) - bytes_in(stays);
  o.memory = std::move(stays);
  return o.memory.empty();
}

/// Each replica has all bytes of the object, and shares no segment with another.
bool object_table::whole_copies(const object& o) {
  std::map<std::uint32_t, const held*> owner;
  std::uint64_t next = 0;
  const held* before = nullptr;
  for (const auto& part : o.memory) {
    if (part.at != next || part.size == 0 || (next != 0 && !part.one_with(*before))) return false;
    if (const auto [at, fresh] = owner.emplace(part.segment, &part); !fresh && !at->second->one_with(part))
      return false;
    next += part.size;
    if (next == o.size) next = 0;
    before = &part;
  }
  return next == 0;
}

}  // namespace mooncaf
