#pragma once
// One closed list of failures. The code names the kind; a person can act on the detail: option and range,
// file and offset, peer and errno.

#include <cstdint>
#include <string>
#include <string_view>

namespace mooncaf {

enum class ec : std::uint8_t {
  none = 0,
  invalid_argument,  ///< A caller or a client gave a value outside its stated range.
  not_found,         ///< The named thing does not exist (any more).
  already_exists,    ///< The name is taken.
  out_of_space,      ///< No memory, block or disk room is free, and nothing could be evicted.
  overloaded,        ///< A bounded queue is full or the admission policy said no; try later.
  slo_unreachable,   ///< Admission predicts that the request would miss its SLO.
  timed_out,         ///< A deadline passed.
  cancelled,         ///< The owner withdrew the request.
  peer_lost,         ///< The other process died or its link broke.
  unauthenticated,   ///< The peer did not prove that it knows the cluster secret.
  incompatible,      ///< Model fingerprint, layout or protocol version differ.
  corrupt,           ///< A checksum or a format check failed.
  unsupported,       ///< A valid request for something that this build or file does not offer.
  io_error,          ///< The operating system refused; the detail carries path or peer and errno.
  unavailable,       ///< No live instance of the needed role.
  internal,          ///< A bug of ours; please report it.
};

constexpr std::string_view to_string(ec code) noexcept {
  switch (code) {
    case ec::none:
      return "none";
    case ec::invalid_argument:
      return "invalid argument";
    case ec::not_found:
      return "not found";
    case ec::already_exists:
      return "already exists";
    case ec::out_of_space:
      return "out of space";
    case ec::overloaded:
      return "overloaded";
    case ec::slo_unreachable:
      return "SLO unreachable";
    case ec::timed_out:
      return "timed out";
    case ec::cancelled:
      return "cancelled";
    case ec::peer_lost:
      return "peer lost";
    case ec::unauthenticated:
      return "unauthenticated";
    case ec::incompatible:
      return "incompatible";
    case ec::corrupt:
      return "corrupt";
    case ec::unsupported:
      return "unsupported";
    case ec::io_error:
      return "I/O error";
    case ec::unavailable:
      return "unavailable";
    case ec::internal:
      return "internal error";
  }
  return "unknown error";
}

/// A failure, with the detail that a person needs to act on it.
struct error {
  ec code = ec::none;
  std::string detail;

  friend bool operator==(const error& a, ec b) noexcept { return a.code == b; }
  friend std::string to_string(const error& e) {
    std::string text{to_string(e.code)};
    if (!e.detail.empty()) text += ": " + e.detail;
    return text;
  }
};

}  // namespace mooncaf
