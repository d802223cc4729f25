#include "storage/objects/wire/tenant_token.hpp"

#include "transport/net/kept_file.hpp"
#include "transport/net/secret.hpp"

namespace mooncaf {

result<std::string> tenant_key(std::string_view token) {
  const auto secret = cluster_secret::from_text(token);
  if (!secret)
    return fail(ec::invalid_argument, "a token has at least " + std::to_string(cluster_secret::bytes_min) +
                                          " bytes; `openssl rand -base64 32` makes a good one");
  const auto key = secret->derive("object store tenant v1");
  return std::string{reinterpret_cast<const char*>(key.data()), key.size()};
}

result<std::string> tenant_key_from_file(const std::string& path) {
  const auto text = read_kept_file(path, 4096, "token file");
  if (!text) return fail(text.error());
  auto key = tenant_key(*text);
  if (!key) return fail(key.error().code, "token file " + path + ": " + key.error().detail);
  return key;
}

}  // namespace mooncaf
