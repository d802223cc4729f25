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
  const auto views = look(keys);
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

}  // namespace mooncaf
