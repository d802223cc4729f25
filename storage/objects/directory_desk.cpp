#include "storage/objects/directory_desk.hpp"

#include <optional>
#include <regex>
#include <string>

namespace mooncaf {

using store_wire::frame;
using store_wire::get_count;
using store_wire::get_text_view;

namespace {

constexpr std::size_t pattern_bytes_max = 1024;
constexpr std::size_t name_bytes_max = 1024;

void put_code(frame& out, store_code code) { out->put(static_cast<std::int32_t>(code)); }

/// An expression that cannot be made to take exponential time, nor deep recursion: no back references.
std::optional<std::regex> compile(std::string_view pattern) {
  if (pattern.size() > pattern_bytes_max) return std::nullopt;
  const std::string ended{pattern};  // libstdc++ looks at the byte behind a pattern that ends in "("
  try {
    return std::regex{ended.begin(), ended.end(),
                      std::regex::ECMAScript | std::regex_constants::__polynomial};
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

bool finds(const std::regex& pattern, std::string_view key) {
  return std::regex_search(key.begin(), key.end(), pattern);
}

}  // namespace

std::uint64_t directory_desk::open() {
  sessions_.emplace(next_session_, session{});
  return next_session_++;
}

void directory_desk::close(std::uint64_t id, time_point now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  table_.end_session(id, now);
  for (const auto segment : found->second.lent) {
    table_.unmount(segment);
    addresses_.erase(segment);
  }
  sessions_.erase(found);
}

bool directory_desk::answer(std::uint64_t id, const store_wire::header& question,
                            std::span<const std::byte> payload, time_point now, std::vector<std::byte>& to) {
  using store_wire::op;
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  auto& from = found->second;
  if (!from.greeted && question.what != op::hello) return false;
  byte_reader in{payload};
  frame out{to, question.number, question.what};
  switch (question.what) {
    case op::hello:
      return greet(from, in, out);
    case op::mount:
      return mount(from, in, out);
    case op::segments:
      list_segments(out);
      return in.left() == 0;
    case op::reserve:
      return reserve(id, from, in, now, out);
    case op::publish:
      return publish(id, in, now, out);
    case op::revoke:
      return revoke(id, in, now, out);
    case op::find:
      return find(in, true, now, out);
    case op::look:
      return find(in, false, now, out);
    case op::exists:
      return exists(in, now, out);
    case op::remove:
      return remove(in, now, out);
    case op::remove_all:
      return remove_all(in, now, out);
    case op::list:
      return list(in, now, out);
    case op::counts:
      store_wire::put_counts(*out, table_.counts());
      return in.left() == 0;
  }
  return false;
}

bool directory_desk::greet(session& from, byte_reader& in, frame& out) {
  const auto version = in.get<std::uint32_t>();
  const auto host = get_text_view(in);
  if (!in.ok() || in.left() != 0 || host.size() > name_bytes_max) return false;
  from.host = host;
  from.greeted = version == store_wire::version;
  out->put(store_wire::version);
  return true;
}

bool directory_desk::mount(session& from, byte_reader& in, frame& out) {
  const auto name = in.get_text();
  const auto bytes = in.get<std::uint64_t>();
  auto address = store_wire::get_address(in);
  if (!in.ok() || in.left() != 0 || name.empty() || name.size() > name_bytes_max ||
      bytes > std::uint64_t{1} << 46)
    return false;
  const auto id = table_.mount(name, from.host, bytes);
  if (id != 0) {
    from.lent.push_back(id);
    addresses_.emplace(id, std::move(address));
  }
  put_code(out, id != 0 ? store_code::ok : store_code::segment_exists);
  return true;
}

void directory_desk::list_segments(frame& out) const {
  const auto all = table_.segments();
  out->put(static_cast<std::uint32_t>(all.size()));
  for (const auto& s : all) store_wire::put_segment(*out, {s, addresses_.at(s.id)});
}

bool directory_desk::reserve(std::uint64_t id, const session& from, byte_reader& in, time_point now,
                             frame& out) {
  const auto policy = store_wire::get_policy(in);
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    const auto size = in.get<std::uint64_t>();
    if (!in.ok()) return false;
    const auto made = table_.reserve(id, key, size, policy, from.host, now);
    put_code(out, made.code);
    out->put(made.ticket);
    store_wire::put_places(*out, made.places);
  }
  return in.left() == 0;
}

bool directory_desk::publish(std::uint64_t id, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto ticket = in.get<std::uint64_t>();
    const auto checksum = in.get<std::uint64_t>();
    if (!in.ok()) return false;
    put_code(out, table_.publish(id, ticket, checksum, now));
  }
  return in.left() == 0;
}

bool directory_desk::revoke(std::uint64_t id, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto ticket = in.get<std::uint64_t>();
    if (!in.ok()) return false;
    put_code(out, table_.revoke(id, ticket, now));
  }
  return in.left() == 0;
}

bool directory_desk::find(byte_reader& in, bool lease, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    if (!in.ok()) return false;
    const auto seen = lease ? table_.find(key, now) : table_.look(key, now);
    put_code(out, seen.code);
    out->put(seen.size);
    out->put(seen.checksum);
    store_wire::put_places(*out, seen.places);
  }
  return in.left() == 0;
}

bool directory_desk::exists(byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    if (!in.ok()) return false;
    out->put(static_cast<std::uint8_t>(table_.exists(key, now)));
  }
  return in.left() == 0;
}

bool directory_desk::remove(byte_reader& in, time_point now, frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    if (!in.ok()) return false;
    put_code(out, table_.remove(key, force, now));
  }
  return in.left() == 0;
}

bool directory_desk::remove_all(byte_reader& in, time_point now, frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto pattern = get_text_view(in);
  if (!in.ok() || in.left() != 0) return false;
  const auto expression = compile(pattern);
  const auto matches = [&](std::string_view key) { return pattern.empty() || finds(*expression, key); };
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  out->put(expression ? table_.remove_if(matches, force, now) : std::uint64_t{0});
  return true;
}

bool directory_desk::list(byte_reader& in, time_point now, frame& out) const {
  const auto pattern = get_text_view(in);
  auto room = in.get<std::uint32_t>();
  if (!in.ok() || in.left() != 0 || room > store_wire::batch_max) return false;
  const auto expression = compile(pattern);
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  std::size_t bytes = 0;
  if (expression && room > 0) {
    table_.for_each(
        [&](std::string_view key, std::uint64_t size, std::size_t replicas) {
          if (!pattern.empty() && !finds(*expression, key)) return true;
          out->put(std::uint8_t{1});
          out->put_text(key);
          out->put(size);
          out->put(static_cast<std::uint8_t>(replicas));
          bytes += key.size();
          return --room > 0 && bytes < store_wire::frame_bytes_max / 2;
        },
        now);
  }
  out->put(std::uint8_t{0});
  return true;
}

}  // namespace mooncaf
