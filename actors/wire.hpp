#pragma once
// The few things between us and CAF 0.17 that every message needs: interface signatures, field lists, floats
// as bits, and our errors as CAF's. A move to CAF 1.x changes this file and little else.

#include <bit>
#include <caf/error.hpp>
#include <caf/make_message.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/replies_to.hpp>
#include <caf/result.hpp>
#include <caf/sec.hpp>
#include <cstdint>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"

/// One message of an interface: `MOONCAF_RPC(answer, arguments…)`, answer `void` where there is none.
#define MOONCAF_RPC(R, ...) caf::replies_to<__VA_ARGS__>::with<R>

namespace mooncaf {

/// Serialises the listed members of `obj`, in order.
template <class Inspector, class T, class... Fields>
auto fields(Inspector& f, const char* name, T&, Fields&... members) {
  return f(caf::meta::type_name(name), members...);
}

template <class Inspector, class Tag>
auto inspect(Inspector& f, basic_id<Tag>& x) {
  return f(caf::meta::type_name("id"), x.value);
}

template <class Inspector>
auto inspect(Inspector& f, hash128& x) {
  return f(caf::meta::type_name("hash128"), x.high, x.low);
}

template <class Inspector>
auto inspect(Inspector& f, error& x) {
  return f(caf::meta::type_name("error"), x.code, x.detail);
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
  return f(caf::meta::type_name("float_bits"), x.bits);
}

/// The category under which our errors travel.
inline constexpr auto error_category = caf::atom("mooncaf");

/// Our error as CAF's: the code, and the detail as its context.
inline caf::error to_caf(const error& e) {
  return caf::error{static_cast<std::uint8_t>(e.code), error_category, caf::make_message(e.detail)};
}

/// CAF's error as ours. Errors of CAF itself (a time-out, a dead peer) become the nearest of our codes.
error from_caf(const caf::error& e);

}  // namespace mooncaf
