#pragma once
// The members of a plain struct in the order of their declaration: wires, journals and comparisons share this
// one list, so that a new member of a struct is in all of them.

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace mooncaf {

/// A struct of public members, without base and without constructors.
template <class T>
concept plain_struct = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>;

namespace members_detail {

/// Stands for a value of any type when members are counted.
struct anything {
  template <class T>
  operator T() const;  // never defined: only asked about
};

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), anything{})...}; };
}

}  // namespace members_detail

inline constexpr std::size_t members_max = 32;

/// How many members a struct has: the longest list of initialisers that it takes, as it takes every shorter one.
template <plain_struct T, std::size_t Least = 1, std::size_t Most = members_max>
constexpr std::size_t member_count() {
  constexpr auto middle = (Least + Most + 1) / 2;
  if constexpr (Least == Most) {
    static_assert(
        Most < members_max || !members_detail::takes<T>(std::make_index_sequence<members_max + 1>{}),
        "raise members_max");
    return Most;
  } else if constexpr (members_detail::takes<T>(std::make_index_sequence<middle>{})) {
    return member_count<T, middle, Most>();
  } else {
    return member_count<T, Least, middle - 1>();
  }
}

/// A tuple of references to all members. A line for every number of them, as C++20 names no pack in a
/// structured binding.
// clang-format off
template <class T>
constexpr auto members_of(T& plain) {
  constexpr std::size_t many = member_count<std::remove_const_t<T>>();
  if constexpr (many == 1) { auto& [a] = plain; return std::tie(a); }
  else if constexpr (many == 2) { auto& [a, b] = plain; return std::tie(a, b); }
  else if constexpr (many == 3) { auto& [a, b, c] = plain; return std::tie(a, b, c); }
  else if constexpr (many == 4) { auto& [a, b, c, d] = plain; return std::tie(a, b, c, d); }
  else if constexpr (many == 5) { auto& [a, b, c, d, e] = plain; return std::tie(a, b, c, d, e); }
  else if constexpr (many == 6) { auto& [a, b, c, d, e, f] = plain; return std::tie(a, b, c, d, e, f); }
  else if constexpr (many == 7) { auto& [a, b, c, d, e, f, g] = plain; return std::tie(a, b, c, d, e, f, g); }
  else if constexpr (many == 8) { auto& [a, b, c, d, e, f, g, h] = plain; return std::tie(a, b, c, d, e, f, g, h); }
  else if constexpr (many == 9) { auto& [a, b, c, d, e, f, g, h, i] = plain; return std::tie(a, b, c, d, e, f, g, h, i); }
  else if constexpr (many == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (many == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k); }
  else if constexpr (many == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  else if constexpr (many == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  else if constexpr (many == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n); }
  else if constexpr (many == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
  else if constexpr (many == 16) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }
  else if constexpr (many == 17) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q); }
  else if constexpr (many == 18) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r); }
  else if constexpr (many == 19) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s); }
  else if constexpr (many == 20) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t); }
  else if constexpr (many == 21) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u); }
  else if constexpr (many == 22) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v); }
  else if constexpr (many == 23) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w); }
  else if constexpr (many == 24) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x); }
  else if constexpr (many == 25) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y); }
  else if constexpr (many == 26) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z); }
  else if constexpr (many == 27) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A); }
  else if constexpr (many == 28) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B); }
  else if constexpr (many == 29) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C); }
  else if constexpr (many == 30) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D); }
  else if constexpr (many == 31) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E); }
  else if constexpr (many == 32) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F] = plain; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F); }
}
// clang-format on

}  // namespace mooncaf
