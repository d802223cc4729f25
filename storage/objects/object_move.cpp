// Objects that are given other places: the part of `store_client` that copies them.
//
// The new places are reserved first; from then on nobody else can replace the object. It may be removed or
// evicted meanwhile: the directory then refuses to publish the copy.

#include <algorithm>

#include "storage/objects/store_client.hpp"

namespace mooncaf {

using store_wire::op;

std::vector<store_code> store_client::move(std::span<const std::string_view> keys, put_policy policy) {
  constexpr std::size_t at_once = 64;  // whose room is taken twice meanwhile
  std::vector<store_code> codes;
  for (std::size_t at = 0; at < keys.size(); at += at_once) {
    const auto part = move_some(keys.subspan(at, std::min(at_once, keys.size() - at)), policy);
    codes.insert(codes.end(), part.begin(), part.end());
  }
  return codes;
}

std::vector<store_code> store_client::move_some(std::span<const std::string_view> keys, put_policy policy) {
  policy.move = true;
  const auto to = link();
  if (!to) return std::vector<store_code>(keys.size(), store_wire::code_of(to.error()));
  const auto answer = (*to)->ask_and_wait(op::reserve, [&](byte_writer& out) {
    store_wire::put_policy_to(out, policy);
    out.put(static_cast<std::uint32_t>(keys.size()));
    for (const auto key : keys) {
      out.put_text(key);
      out.put(std::uint64_t{0});
      store_wire::put_ties(out, {});
    }
  });
  if (!answer) return std::vector<store_code>(keys.size(), store_wire::code_of(answer.error()));
  auto views = look(keys);
  for (std::size_t i = 0; i < keys.size(); ++i)  // on SSD alone
    if (views[i].code == store_code::ok && views[i].places.empty())
      views[i] = find(keys.subspan(i, 1)).front();
  byte_reader in{*answer};
  in.get<std::uint32_t>();
  std::vector<store_code> codes;
  std::vector<ending> good, bad;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    codes.push_back(as_store_code(in.get<std::int32_t>()));
    const auto ticket = in.get<std::uint64_t>();
    const auto places = store_wire::get_places(in);
    if (codes[i] != store_code::ok) continue;
    written done{views[i].code, 0, true};
    if (done.code == store_code::ok) {
      bytes.resize(views[i].size);
      const std::span<std::byte> whole{bytes};
      done.code = read(views[i], {&whole, 1});
    }
    if (done.code == store_code::ok) done = write({keys[i], {std::span<const std::byte>{bytes}}}, places);
    codes[i] = done.code;
    if (done.code == store_code::ok) good.push_back({i, ticket, done.checksum});
    else if (done.settled) bad.push_back({i, ticket, 0});
  }
  if (!in.ok()) return std::vector<store_code>(keys.size(), store_code::internal);
  if (!bad.empty()) revoke(**to, bad);
  if (!good.empty()) publish(**to, good, codes);
  return codes;
}

std::pair<store_code, task_id> store_client::create_task(const task_order& order) {
  const auto answer = ask(op::create_task, [&](byte_writer& out) { store_wire::put_order(out, order); });
  if (!answer) return {store_wire::code_of(answer.error()), {}};
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  return {code, store_wire::get_task_id(in)};
}

std::pair<store_code, task_view> store_client::query_task(const task_id& id) {
  const auto answer = ask(op::query_task, [&](byte_writer& out) { store_wire::put_task_id(out, id); });
  if (!answer) return {store_wire::code_of(answer.error()), {}};
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  return {code, store_wire::get_task(in)};
}

void store_client::end_task(const task_id& id, store_code code) {
  static_cast<void>(ask(op::end_task, [&](byte_writer& out) {
    store_wire::put_task_id(out, id);
    out.put(static_cast<std::int32_t>(code));
  }));
}

}  // namespace mooncaf
