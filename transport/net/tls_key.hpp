#pragma once
// A client of TLS names its key in clear without giving it away: 16 random bytes and HMAC(secret, these bytes). A
// listener that does not know the secret sees noise, never the same twice.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// The key that both ends of a `tls_stream` know, made from a secret that they share. The bytes are wiped
/// when the object dies.
class tls_key {
 public:
  static constexpr std::size_t offer_bytes = 32;
  using offer = std::array<unsigned char, offer_bytes>;

  /// @param secret  32 bytes that cannot be guessed, derived for this purpose alone.
  explicit tls_key(std::string_view secret);
  tls_key(const tls_key&) = default;
  tls_key& operator=(const tls_key&) = default;
  ~tls_key();

  /// Another one each time. @error `ec::io_error` if the system gives no random bytes.
  result<offer> make_offer() const;
  /// Whether the maker of an offer knows this key, or has seen an offer made with it. Any bytes may be asked
  /// about.
  bool made(std::span<const unsigned char> claimed) const;

  std::span<const unsigned char> bytes() const noexcept { return key_; }

 private:
  std::array<unsigned char, 32> sign(std::span<const unsigned char> salt) const;

  std::array<unsigned char, 32> key_{}, offering_{};
};

}  // namespace mooncaf
