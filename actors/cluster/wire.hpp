#pragma once
// The few things between us and CAF 0.17 that every message needs: interface signatures, members, floats as
// bits, and our errors as CAF's. A move to CAF 1.x changes this file and little else.

#include <bit>
#include <caf/deserializer.hpp>
#include <caf/error.hpp>
#include <caf/make_message.hpp>
#include <caf/replies_to.hpp>
#include <caf/result.hpp>
#include <caf/sec.hpp>
#include <caf/serializer.hpp>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/members.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/wire_version.hpp"

/// One message of an interface: `MOONCAF_RPC(answer, arguments…)`, answer `void` where there is none.
#define MOONCAF_RPC(R, ...) caf::replies_to<__VA_ARGS__>::with<R>

namespace mooncaf {

namespace wire {
template <>
inline constexpr bool never_grows<hash128> = true;
template <class Tag>
inline constexpr bool never_grows<basic_id<Tag>> = true;
}  // namespace wire

/// Members of `T` as they cross: their number, and as many of them as the receiver knows. @error of a number beyond
/// the members that this process knows.
template <class T, class Inspector, class... Members>
auto inspect_members(Inspector& f, Members&... members) {
  constexpr bool reads = std::is_base_of_v<caf::deserializer, Inspector>;
  // Neither: text for a log, or a test's look at all members.
  constexpr bool crosses = reads || std::is_base_of_v<caf::serializer, Inspector>;
  if constexpr (!crosses || wire::never_grows<T>) {
    return f(members...);
  } else {
    const auto version = wire::comes_first<T> ? wire::oldest : reads ? wire::known() : wire::spoken();
    const auto known = wire::members_at<T>(version, sizeof...(Members));
    auto count = static_cast<std::uint8_t>(known);
    auto failed = f(count);
    if (failed) return failed;
    if (count > known)
      return decltype(failed){caf::sec::unknown_type};  // a release that this one does not know
    std::size_t at = 0;
    static_cast<void>((... && (at++ >= count || !(failed = f(members)))));
    return failed;
  }
}

/// A plain struct crosses as its members, in the order of their declaration.
template <class Inspector, plain_struct T>
auto inspect(Inspector& f, T& x) {
  return std::apply([&](auto&... members) { return inspect_members<T>(f, members...); }, members_of(x));
}

/// A float as its bits: CAF 0.17 serialises infinities in an endless loop and turns NaN into 1.
struct float_bits {
  std::uint32_t bits = 0;

  float_bits() = default;
  explicit float_bits(float value) : bits(std::bit_cast<std::uint32_t>(value)) {}
  float value() const noexcept { return std::bit_cast<float>(bits); }
};

template <class Inspector>
auto inspect(Inspector& f, float_bits& x) {
  return f(x.bits);
}

/// The category under which our errors travel.
inline constexpr auto error_category = caf::atom("mooncaf");

/// Our error as CAF's: the code, and the detail as its context.
inline caf::error to_caf(const error& e) {
  return caf::error{static_cast<std::uint8_t>(e.code), error_category, caf::make_message(e.detail)};
}

/// The value, or our error as CAF's.
template <class T>
caf::result<T> to_caf(result<T>&& outcome) {
  if (!outcome) return to_caf(outcome.error());
  return std::move(*outcome);
}

inline caf::result<void> to_caf(result<void>&& outcome) {
  if (!outcome) return to_caf(outcome.error());
  return caf::unit;
}

/// The value that a promise is fulfilled with: errors of ours as CAF's.
template <class T>
T&& as_answer(T&& value) {
  return std::forward<T>(value);
}
inline caf::error as_answer(error&& e) { return to_caf(e); }

/// CAF's error as ours. Errors of CAF itself (a time-out, a dead peer) become the nearest of our codes.
error from_caf(const caf::error& e);

}  // namespace mooncaf
