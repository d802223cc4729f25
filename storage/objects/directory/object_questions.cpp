#include "storage/objects/directory/object_questions.hpp"

#include <optional>
#include <regex>
#include <string_view>

namespace mooncaf {

using store_wire::frame;
using store_wire::get_count;
using store_wire::get_text_view;
using store_wire::put_code;

namespace {

/// An expression that cannot be made to take exponential time, nor deep recursion: no back references.
std::optional<std::regex> compile(std::string_view pattern) {
  constexpr std::size_t pattern_bytes_max = 1024;
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

bool object_questions::reserve(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto policy = store_wire::get_policy(in);
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    const auto size = in.get<std::uint64_t>();
    const auto ties = store_wire::get_ties(in);
    if (!in.ok()) return false;
    const auto inside = [&](std::string_view name, std::size_t which) {
      return name.empty() ? name : from.scope.inside(name, names_[which]);
    };
    const object_ties scoped{inside(ties.group, 1), inside(ties.parent, 2), ties.cost};
    // A tenant chooses places and replicas of its objects only when it puts them, because a move passes no
    // quota.
    const bool may = from.owner == 0 || !policy.move;
    const auto made = may ? table_.reserve(from.id, inside(key, 0), size, policy, from.host, now, scoped)
                          : reservation{store_code::not_supported, 0, {}};
    put_code(out, made.code);
    out->put(made.ticket);
    store_wire::put_places(*out, made.places);
  }
  return in.left() == 0;
}

bool object_questions::publish(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  const holder_journal::removal replaced{journal_};
  for (std::uint32_t i = 0; i < *n && in.ok(); ++i) {
    const auto ticket = in.get<std::uint64_t>();
    const auto checksum = in.get<std::uint64_t>();
    if (in.ok()) put_code(out, table_.publish(from.id, ticket, checksum, now));
  }
  return in.ok() && in.left() == 0;
}

bool object_questions::put_next(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto ticket = in.get<std::uint64_t>();
  const auto checksum = in.get<std::uint64_t>();
  const auto key = get_text_view(in);
  const auto policy = store_wire::get_policy(in);
  const auto size = in.get<std::uint64_t>();
  if (!in.ok() || in.left() != 0) return false;
  auto code = store_code::ok;
  if (!key.empty()) code = table_.name(from.id, ticket, from.scope.inside(key, names_[0]), now);
  if (code == store_code::ok) {
    const holder_journal::removal replaced{journal_};
    code = table_.publish(from.id, ticket, checksum, now);
  }
  // A tenant gets no room ahead: its quota counts by the object's key, which is not known yet.
  const bool may = code == store_code::ok && from.owner == 0;
  const auto next = may ? table_.reserve_ahead(from.id, size, policy, from.host, now)
                        : reservation{store_code::no_space, 0, {}};
  put_code(out, code);
  out->put(next.ticket);
  store_wire::put_places(*out, next.places);
  return true;
}

bool object_questions::revoke(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto ticket = in.get<std::uint64_t>();
    if (!in.ok()) return false;
    put_code(out, table_.revoke(from.id, ticket, now));
  }
  return in.left() == 0;
}

bool object_questions::find(const directory_session& from, byte_reader& in, bool lease, time_point now,
                            frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    if (!in.ok()) return false;
    const auto seen = lease ? table_.find(key, now) : table_.look(key, now);
    // A client that finds an object on SSD alone asks for it next, so reading it begins now.
    if (lease && seen.code == store_code::ok && seen.places.empty()) static_cast<void>(table_.load(key, now));
    store_wire::put_view(*out, seen);
  }
  return in.left() == 0;
}

bool object_questions::exists(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    if (!in.ok()) return false;
    out->put(static_cast<std::uint8_t>(table_.exists(key, now)));
  }
  return in.left() == 0;
}

bool object_questions::remove(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  const holder_journal::removal removal{journal_};
  for (std::uint32_t i = 0; i < *n && in.ok(); ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    const auto code = in.ok() ? table_.remove(key, force, now) : store_code::ok;
    if (in.ok()) put_code(out, code);
    if (code == store_code::not_found) disks_.changed(key);  // nor is it to come from an SSD that is away
  }
  return in.ok() && in.left() == 0;
}

bool object_questions::remove_all(const directory_session& from, byte_reader& in, time_point now,
                                  frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto pattern = get_text_view(in);
  if (!in.ok() || in.left() != 0) return false;
  const auto expression = compile(pattern);
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  const auto matches = [&](std::string_view name) {
    const auto key = from.scope.outside(name);
    return key && (pattern.empty() || finds(*expression, *key));
  };
  if (expression && from.owner == 0) disks_.all_changed();
  else if (expression) disks_.changed(all_of(from.scope.tenant));
  const holder_journal::removal removal{journal_};
  out->put(expression ? table_.remove_if(matches, force, now) : std::uint64_t{0});
  return true;
}

bool object_questions::list(const directory_session& from, byte_reader& in, time_point now,
                            frame& out) const {
  const auto pattern = get_text_view(in);
  auto room = in.get<std::uint32_t>();
  const auto segment = get_text_view(in);
  if (!in.ok() || in.left() != 0 || room > store_wire::batch_max) return false;
  const auto expression = compile(pattern);
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  std::size_t bytes = 0;
  if (expression && room > 0) {
    table_.for_each(
        [&](std::string_view name, std::uint64_t size, std::size_t replicas, std::size_t disks) {
          const auto key = from.scope.outside(name);
          if (!key || (!pattern.empty() && !finds(*expression, *key))) return true;
          out->put(std::uint8_t{1});
          out->put_text(*key);
          out->put(size);
          out->put(static_cast<std::uint8_t>(replicas));
          out->put(static_cast<std::uint8_t>(disks));
          bytes += key->size();
          return --room > 0 && bytes < store_wire::frame_bytes_max / 2;
        },
        segment, now);
  }
  out->put(std::uint8_t{0});
  return true;
}

}  // namespace mooncaf
