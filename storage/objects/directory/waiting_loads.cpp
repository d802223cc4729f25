#include "storage/objects/directory/waiting_loads.hpp"

#include <utility>

namespace mooncaf {

namespace {
constexpr auto load_limit = std::chrono::seconds(10);
}

bool waiting_loads::ask(const directory_session& from, std::uint64_t number, byte_reader& in,
                        time_point now) {
  const auto n = store_wire::get_count(in);
  if (!n) return false;
  waiting_load w{from.id, number, {}, now + load_limit};
  std::string name;
  for (std::uint32_t i = 0; i < *n; ++i) {
    w.keys.emplace_back(from.scope.inside(store_wire::get_text_view(in), name));
    if (!in.ok()) return false;
  }
  if (in.left() != 0) return false;
  if (!settle(w, now)) loads_.push_back(std::move(w));
  return true;
}

void waiting_loads::end_session(std::uint64_t session) {
  loads_.remove_if([&](const waiting_load& w) { return w.session == session; });
}

/// @returns whether the answer was sent.
bool waiting_loads::settle(const waiting_load& w, time_point now) {
  std::vector<store_code> codes;
  bool all = true;
  for (const auto& key : w.keys) {
    codes.push_back(table_.load(key, now));
    all = all && codes.back() != store_code::busy;
  }
  if (!all && now < w.until) return false;
  std::vector<std::byte> answer;
  {
    store_wire::frame out{answer, w.number, store_wire::op::load};
    out->put(static_cast<std::uint32_t>(w.keys.size()));
    for (std::size_t i = 0; i < w.keys.size(); ++i) {
      if (codes[i] == store_code::ok) table_.hold(w.keys[i], now);
      auto view = table_.look(w.keys[i], now);
      if (codes[i] != store_code::ok) view.code = codes[i];
      store_wire::put_view(*out, view);
    }
  }
  out_.send(w.session, answer);
  return true;
}

void waiting_loads::settle(time_point now) {
  if (std::exchange(stirred_, false)) loads_.remove_if([&](const waiting_load& w) { return settle(w, now); });
}

}  // namespace mooncaf
