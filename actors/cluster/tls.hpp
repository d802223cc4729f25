#pragma once
// The encryption of control links (`transport/net/tls_psk.hpp`), in steps that fit CAF's event loop: both
// ends prove that they know the cluster's key, and there are no certificates to make, store or renew.

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/result.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

enum class tls_role { client, server };
enum class tls_step { done, wants_read, wants_write, closed, failed };

/// The key that a client uses, and its name to the server.
struct tls_offer {
  std::string key, name;
};

/// One encrypted connection over a socket that it does not own. Used by one thread at a time.
class tls_session {
 public:
  explicit tls_session(SSL* ssl) noexcept : ssl_(ssl) {}
  tls_session(tls_session&& other) noexcept
      : ssl_(std::exchange(other.ssl_, nullptr)),
        offer_(std::move(other.offer_)),
        problem_(std::move(other.problem_)) {}
  tls_session& operator=(tls_session&&) = delete;
  ~tls_session();

  /// Goes on with the handshake. `failed`: see `problem`.
  tls_step handshake();
  tls_step read(void* to, std::size_t size, std::size_t& got);
  tls_step write(const void* from, std::size_t size, std::size_t& put);
  /// Bytes that are decrypted and wait to be read.
  std::size_t pending() const;
  const std::string& problem() const noexcept { return problem_; }
  SSL* ssl() const noexcept { return ssl_; }
  /// Client: the answer to OpenSSL when it asks for a key.
  void offer(std::unique_ptr<tls_offer> what);

 private:
  tls_step step_of(int status);

  SSL* ssl_;
  std::unique_ptr<tls_offer> offer_;
  std::string problem_;
};

/// Makes sessions that know the cluster's keys. May be shared by threads; outlives the handshakes of its
/// sessions.
class tls_context {
 public:
  static result<std::unique_ptr<tls_context>> make(key_ring keys);
  ~tls_context();
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;

  /// @error `ec::io_error`
  result<tls_session> start(int fd, tls_role role) const;

  const key_ring& keys() const noexcept { return keys_; }

 private:
  explicit tls_context(key_ring keys) : keys_(std::move(keys)) {}

  const key_ring keys_;
  SSL_CTX* context_ = nullptr;
};

}  // namespace mooncaf
