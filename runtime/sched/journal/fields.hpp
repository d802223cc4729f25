#pragma once
// A journal keeps all members of a structure, in the order of their declaration, as each may decide an
// answer. A structure that changes changes the format, as tests/golden/status/journal.txt shows. New members then go to
// its end, a new input to the end of `inputs`, a new value to the end of its enumeration; `journal_version` is raised, and
// `growth_of` says how many members there were before. So journals of the release before are read, too.

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/base/members.hpp"
#include "runtime/base/wire_version.hpp"
#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/journal/origin.hpp"

namespace mooncaf::journal {

/// Of the format and of the answers of core and queue.
inline constexpr std::uint32_t journal_version = 17;
/// Of the release before, whose journals are replayed, too. Where a release decides otherwise, the first decision that
/// differs may be its own: `mooncaf replay` says which release wrote the file.
inline constexpr std::uint32_t oldest_version = 15;

/// As `wire::growth_of`, by versions of the journal.
template <class T>
inline constexpr std::array<wire::growth, 0> growth_of{};
template <>
inline constexpr std::array growth_of<origin>{wire::growth{16, 0}};
template <>
inline constexpr std::array growth_of<conductor_options>{wire::growth{16, 18}};
template <>
inline constexpr std::array growth_of<admission_queue_options>{wire::growth{16, 2}};
template <>
inline constexpr std::array growth_of<elastic_role_options>{wire::growth{17, 2}};

/// How many members, of `all` that it has, a structure had in a journal of this version.
template <class T>
constexpr std::size_t members_at(std::uint32_t version, std::size_t all) noexcept {
  return wire::members_at(growth_of<T>, version, all);
}

/// How many values an enumeration has: a reader refuses others.
template <class E>
inline constexpr unsigned values_of = 0;
template <>
inline constexpr unsigned values_of<ec> = static_cast<unsigned>(ec::internal) + 1;
template <>
inline constexpr unsigned values_of<placement_policy> = 4;
template <>
inline constexpr unsigned values_of<admission_policy> = static_cast<unsigned>(admission_policy::adaptive) + 1;
template <>
inline constexpr unsigned values_of<worker_role> = 2;
template <>
inline constexpr unsigned values_of<instance_state> = 4;
template <>
inline constexpr unsigned values_of<storage_tier> = 2;
template <>
inline constexpr unsigned values_of<reject_stage> = 6;
template <>
inline constexpr unsigned values_of<role_step> = 3;

/// The first value of an enumeration; a journal counts from zero.
template <class E>
inline constexpr unsigned first_value_of = 0;
template <>
inline constexpr unsigned first_value_of<storage_tier> = static_cast<unsigned>(storage_tier::dram);
template <>
inline constexpr unsigned first_value_of<worker_role> = static_cast<unsigned>(worker_role::prefill);

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b);
inline bool same(const decision& a, const decision& b);
/// Equal in every member.
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (plain_struct<T>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto x = members_of(a), y = members_of(b);
      return (same(std::get<I>(x), std::get<I>(y)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(members_of(a))>>{});
  } else {
    return a == b;
  }
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return same(x, y); });
}
template <class T>
bool same(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}
template <class T, class E>
bool same(const tl::expected<T, E>& a, const tl::expected<T, E>& b) {
  if (a.has_value() != b.has_value()) return false;
  if (!a) return same(a.error(), b.error());
  if constexpr (std::is_void_v<T>) return true;
  else return same(*a, *b);
}

inline bool same(const decision& a, const decision& b) { return a.id == b.id && same(a.outcome, b.outcome); }

}  // namespace mooncaf::journal
