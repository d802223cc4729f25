// Objects that are given other places: the part of `store_client` that copies them.
//
// The new places are reserved first; from then on no client can replace the object. It may be removed or
// evicted meanwhile: the directory then refuses to publish the copy.

#include <algorithm>
#include <iterator>
#include <thread>

#include "storage/objects/client/store_client.hpp"

namespace mooncaf {

using store_wire::op;

std::vector<store_code> store_client::move(std::span<const std::string_view> keys, put_policy policy) {
  constexpr std::size_t at_once = 64;  // objects; each takes its room twice meanwhile
  std::vector<store_code> codes;
  for (std::size_t at = 0; at < keys.size(); at += at_once) {
    const auto part = move_some(keys.subspan(at, std::min(at_once, keys.size() - at)), policy);
    codes.insert(codes.end(), part.begin(), part.end());
  }
  return codes;
}

// Room for all is reserved, and all are published, with one question each; only the bytes go one object
// after the other.
std::vector<store_code> store_client::move_some(std::span<const std::string_view> keys, put_policy policy) {
  policy.move = true;
  std::vector<object_outline> outlines;
  for (const auto key : keys) outlines.push_back({key, 0, {}});
  const auto made = reserve(outlines, policy);
  auto views = look(keys);
  for (std::size_t i = 0; i < keys.size(); ++i)  // on SSD alone
    if (views[i].code == store_code::ok && views[i].places.empty())
      views[i] = find(keys.subspan(i, 1)).front();
  std::vector<store_code> codes;
  endings good, bad;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& room = made.items[i];
    codes.push_back(room.code);
    if (room.code != store_code::ok) continue;
    written done{views[i].code, 0, true};
    if (done.code == store_code::ok) {
      bytes.resize(views[i].size);
      const std::span<std::byte> whole{bytes};
      done.code = read(views[i], {&whole, 1});
    }
    if (done.code == store_code::ok)
      done = write({keys[i], {std::span<const std::byte>{bytes}}}, room.places);
    codes[i] = done.code;
    auto* const of = made.to->all[room.shard].get();
    if (done.code == store_code::ok) good[of].push_back({i, room.ticket, done.checksum});
    else if (done.settled) bad[of].push_back({i, room.ticket, 0});
  }
  revoke(bad);
  publish(good, codes);
  return codes;
}

store_client::emptied store_client::empty(const std::string& segment, time_point until,
                                          const std::function<void(std::uint64_t)>& tell) {
  return move_out(
      {segment, segment + "/ssd"}, until, [](const listed_object&) { return true; }, tell);
}

// Who has reserved room in the segment before it was drained may publish afterwards.
store_client::emptied store_client::move_last_copies(const std::string& segment, time_point until) {
  constexpr duration writing = std::chrono::milliseconds(100);
  const auto alone = [](const listed_object& o) { return o.replicas <= 1 && o.on_disk == 0; };
  auto all = move_out({segment}, until, alone, {});
  for (bool more = all.left == 0; more && clock_type::now() + writing < until;) {
    std::this_thread::sleep_for(writing);
    const auto late = move_out({segment}, until, alone, {});
    more = late.moved > 0;
    all.moved += late.moved;
    all.left = late.left;
    if (late.code != store_code::ok) all.code = late.code;
  }
  return all;
}

// Clients may write to the segment while it is emptied, so rounds go on as long as they move anything.
store_client::emptied store_client::move_out(const std::vector<std::string>& places, time_point until,
                                             const std::function<bool(const listed_object&)>& wanted,
                                             const std::function<void(std::uint64_t)>& tell) {
  emptied all;
  for (;;) {
    std::vector<listed_object> here;
    for (const auto& place : places) {
      const auto there = list({}, store_wire::batch_max, place);
      if (there.code != store_code::ok && place == places.front()) all.code = there.code;
      const bool full = there.objects.size() == store_wire::batch_max;  // others are seen when these are gone
      std::ranges::copy_if(there.objects, std::back_inserter(here),
                           [&](const listed_object& o) { return full || wanted(o); });
    }
    std::ranges::sort(here, {}, &listed_object::key);
    here.erase(
        std::unique(here.begin(), here.end(), [](const auto& a, const auto& b) { return a.key == b.key; }),
        here.end());
    all.left = here.size();
    std::uint64_t moved = 0;
    constexpr std::size_t at_once = 64;
    for (std::size_t at = 0; at < here.size() && clock_type::now() < until; at += at_once) {
      std::vector<std::string_view> keys;
      for (auto i = at; i < std::min(at + at_once, here.size()); ++i) keys.push_back(here[i].key);
      put_policy as_before;
      as_before.replicas = 0;
      for (const auto code : move(keys, as_before)) {
        moved += code == store_code::ok;
        if (code != store_code::ok && code != store_code::not_found) all.code = code;
      }
    }
    all.moved += moved;
    if (tell && !here.empty()) tell(all.moved);
    if (moved == 0) return all;
  }
}

std::pair<store_code, task_id> store_client::create_task(const task_order& order) {
  const auto to = links();
  if (!to) return {store_wire::code_of(to.error()), {}};
  const auto answer = (*to)->of(order.key)->ask_and_wait(
      op::create_task, [&](byte_writer& out) { store_wire::put_order(out, order); });
  if (!answer) return {store_wire::code_of(answer.error()), {}};
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  return {code, store_wire::get_task_id(in)};
}

/// An id says nothing of the object's key: one of the shards knows it.
std::pair<store_code, task_view> store_client::query_task(const task_id& id) {
  const auto answers =
      ask_everyone(op::query_task, [&](byte_writer& out) { store_wire::put_task_id(out, id); });
  if (!answers) return {store_wire::code_of(answers.error()), {}};
  std::pair<store_code, task_view> found;
  for (const auto& answer : *answers) {
    byte_reader in{answer};
    found.first = as_store_code(in.get<std::int32_t>());
    found.second = store_wire::get_task(in);
    if (found.first != store_code::task_not_found) break;
  }
  return found;
}

void store_client::end_task(const task_id& id, store_code code) {
  static_cast<void>(ask_everyone(op::end_task, [&](byte_writer& out) {
    store_wire::put_task_id(out, id);
    out.put(static_cast<std::int32_t>(code));
  }));
}

}  // namespace mooncaf
