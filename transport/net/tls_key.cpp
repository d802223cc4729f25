#include "transport/net/tls_key.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>

namespace mooncaf {

namespace {

constexpr std::size_t salt_bytes = tls_key::offer_bytes / 2;

std::array<unsigned char, 32> hmac(std::span<const unsigned char> key, std::span<const unsigned char> text) {
  std::array<unsigned char, 32> out{};
  unsigned size = 0;
  // A key of zeros would let everyone in.
  if (::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(), out.data(),
             &size) == nullptr)
    std::abort();
  return out;
}

std::array<unsigned char, 32> derived(std::string_view secret, std::string_view purpose) {
  const auto bytes = [](std::string_view text) {
    return std::span{reinterpret_cast<const unsigned char*>(text.data()), text.size()};
  };
  return hmac(bytes(secret), bytes(purpose));
}

}  // namespace

tls_key::tls_key(std::string_view secret)
    : key_(derived(secret, "mooncaf TLS: key")), offering_(derived(secret, "mooncaf TLS: offer")) {}

tls_key::~tls_key() {
  OPENSSL_cleanse(key_.data(), key_.size());
  OPENSSL_cleanse(offering_.data(), offering_.size());
}

std::array<unsigned char, 32> tls_key::sign(std::span<const unsigned char> salt) const {
  return hmac(offering_, salt);
}

result<tls_key::offer> tls_key::make_offer() const {
  offer made{};
  if (::RAND_bytes(made.data(), salt_bytes) != 1)
    return fail(ec::io_error, "the system gives no random bytes");
  const auto mac = sign(std::span{made}.first(salt_bytes));
  std::copy_n(mac.begin(), made.size() - salt_bytes, made.begin() + salt_bytes);
  return made;
}

bool tls_key::made(std::span<const unsigned char> claimed) const {
  if (claimed.size() != offer_bytes) return false;
  const auto mac = sign(claimed.first(salt_bytes));
  return ::CRYPTO_memcmp(mac.data(), claimed.data() + salt_bytes, offer_bytes - salt_bytes) == 0;
}

}  // namespace mooncaf
