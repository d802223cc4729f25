// Puts one after the other of one size, as KV blocks are: each takes along room for the next, so that from
// the third on a put is one question instead of two.

#include "storage/objects/client/store_client.hpp"

namespace mooncaf {

using store_wire::op;

namespace {
/// Half of the directory's `object_table_options::ahead_for`: older room may be another object's before it is
/// written.
constexpr auto good_for = std::chrono::milliseconds(500);

bool has_ties(const object_ties& t) { return !t.group.empty() || !t.parent.empty() || t.cost != 0; }
}  // namespace

/// @returns nothing if there is no room for such an object, or it was of no use: then the put is made as any.
std::optional<store_code> store_client::put_ahead(const outgoing_object& item, const put_policy& policy) {
  if (item.key.empty() || has_ties(item.ties)) return std::nullopt;
  const auto to = links();
  if (!to) return std::nullopt;
  const auto shard = (*to)->shard_of(item.key);
  room_ahead room;
  {
    std::lock_guard lock{mutex_};
    auto& had = ahead_in(shard);
    if (had.ticket == 0 || had.size != size_of(item) || !(had.policy == policy)) return std::nullopt;
    room = std::exchange(had, {});
  }
  if (room.of != (*to)->all[shard] || clock_type::now() - room.asked > good_for) return std::nullopt;
  const auto done = write(item, room.places);
  if (done.code != store_code::ok) {
    if (done.settled) revoke({{room.of.get(), {{0, room.ticket, 0}}}});
    return std::nullopt;
  }
  const auto code = put_next(room, shard, done.checksum, item.key);
  if (code == store_code::not_found) return std::nullopt;  // the directory has ended it
  return code;
}

/// Called under the mutex.
store_client::room_ahead& store_client::ahead_in(std::uint32_t shard) {
  if (ahead_.size() <= shard) ahead_.resize(shard + 1);
  return ahead_[shard];
}

/// Whether the put before this one was of the same kind, so that another one may follow.
bool store_client::put_alike(std::span<const outgoing_object> items, const put_policy& policy,
                             std::uint32_t shard) {
  if (items.size() != 1 || has_ties(items[0].ties) || !policy.may_be_ahead()) return false;
  const auto size = size_of(items[0]);
  std::lock_guard lock{mutex_};
  auto& had = ahead_in(shard);
  if (had.size == size && had.policy == policy) return true;
  if (had.ticket == 0 || clock_type::now() - had.asked > good_for) had = {nullptr, policy, size, 0, {}, {}};
  return false;
}

/// Publishes the object in `now`, under `key` unless it has one, and keeps the room that is had for the next.
store_code store_client::put_next(room_ahead now, std::uint32_t shard, std::uint64_t checksum,
                                  std::string_view key) {
  const auto asked = clock_type::now();
  const auto answer = now.of->ask_and_wait(op::put_next, [&](byte_writer& out) {
    out.put(now.ticket);
    out.put(checksum);
    out.put_text(key);
    store_wire::put_policy_to(out, now.policy);
    out.put(now.size);
  });
  if (!answer) return store_wire::code_of(answer.error());
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  const auto ticket = in.get<std::uint64_t>();
  auto places = store_wire::get_places(in);
  if (!in.ok()) return store_code::internal;
  if (code != store_code::already_exists && code != store_code::invalid_key) {  // else the room stays
    now.ticket = ticket;
    now.places = std::move(places);
    now.asked = asked;
  }
  std::lock_guard lock{mutex_};
  auto& had = ahead_in(shard);
  if (had.ticket == 0)
    had = std::move(now);  // else the room of another thread stays, and this one is given
                           // back
  return code;
}

}  // namespace mooncaf
