#include "transport/net/secret.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

namespace mooncaf {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

}  // namespace

cluster_secret::cluster_secret(std::string_view text) : bytes_(text.begin(), text.end()) {}

cluster_secret::~cluster_secret() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

result<cluster_secret> cluster_secret::from_text(std::string_view text) {
  const auto secret = trimmed(text);
  if (secret.size() < bytes_min) {
    return fail(ec::invalid_argument, "the cluster secret has " + std::to_string(secret.size()) +
                                          " bytes, at least " + std::to_string(bytes_min) +
                                          " are needed; `openssl rand -base64 32` makes a good one");
  }
  return cluster_secret{secret};
}

result<std::string> cluster_secret::make_text() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return fail(ec::io_error, std::generic_category().message(errno));
  std::string text;
  for (const auto byte : bytes) {
    constexpr char digits[] = "0123456789abcdef";
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  OPENSSL_cleanse(bytes, sizeof bytes);
  return text;
}

cluster_secret::key cluster_secret::derive(std::string_view purpose) const {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf{EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                              EVP_KDF_free};
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context{EVP_KDF_CTX_new(kdf.get()),
                                                                          EVP_KDF_CTX_free};
  char digest[] = "SHA256";
  char salt[] = "mooncaf cluster secret";
  std::string info{purpose};
  auto secret = bytes_;  // the parameter list wants mutable bytes
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end(),
  };
  key out{};
  const bool derived = context && EVP_KDF_derive(context.get(), out.data(), out.size(), params) == 1;
  OPENSSL_cleanse(secret.data(), secret.size());
  // A key of zeros would let everyone in.
  if (!derived) std::abort();
  return out;
}

}  // namespace mooncaf
