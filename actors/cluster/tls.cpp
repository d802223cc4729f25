#include "actors/cluster/tls.hpp"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <span>
#include <string_view>

#include "transport/net/tls_key.hpp"
#include "transport/net/tls_psk.hpp"

namespace mooncaf {

namespace {

/// Names the one key of a process that has one. A process that has several, as its secret is being changed, adds an
/// offer, by which a process that knows the key finds it among its own (`tls_key`).
constexpr std::string_view key_name = "mooncaf-cluster";

std::span<const unsigned char> bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

const tls_context& owner(SSL* ssl) {
  return *static_cast<const tls_context*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_size, SSL_SESSION** session) {
  const auto& offer = *static_cast<const tls_offer*>(SSL_get_app_data(ssl));
  *session = tls_psk_session(ssl, bytes_of(offer.key));
  *id = bytes_of(offer.name).data();
  *id_size = offer.name.size();
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* id, size_t id_size, SSL_SESSION** session) {
  *session = nullptr;
  std::string_view name{reinterpret_cast<const char*>(id), id_size};
  if (!name.starts_with(key_name)) return 1;
  name.remove_prefix(key_name.size());
  for (const auto& key : owner(ssl).keys().accepted()) {
    if (!name.empty() && !tls_key{key}.made(bytes_of(name))) continue;
    *session = tls_psk_session(ssl, bytes_of(key));
    break;
  }
  return 1;
}

result<std::unique_ptr<tls_offer>> make_offer(const key_ring& keys) {
  const auto all = keys.accepted();
  auto made = std::make_unique<tls_offer>(tls_offer{all.front(), std::string{key_name}});
  if (all.size() == 1) return made;
  const auto offer = tls_key{all.front()}.make_offer();
  if (!offer) return fail(offer.error());
  made->name.append(reinterpret_cast<const char*>(offer->data()), offer->size());
  return made;
}

std::string pending_errors() {
  std::string text;
  while (const auto code = ERR_get_error()) {
    char buffer[256];
    ERR_error_string_n(code, buffer, sizeof buffer);
    if (!text.empty()) text += "; ";
    text += buffer;
  }
  return text.empty() ? "connection closed" : text;
}

}  // namespace

tls_session::~tls_session() { SSL_free(ssl_); }

tls_step tls_session::step_of(int status) {
  switch (SSL_get_error(ssl_, status)) {
    case SSL_ERROR_NONE:
      return tls_step::done;
    case SSL_ERROR_WANT_READ:
      return tls_step::wants_read;
    case SSL_ERROR_WANT_WRITE:
      return tls_step::wants_write;
    case SSL_ERROR_ZERO_RETURN:
      return tls_step::closed;
    default:
      problem_ = pending_errors();
      return tls_step::failed;
  }
}

// OpenSSL's error queue belongs to the thread. An error that one connection left there would fail the next
// one that merely has to wait, so every operation begins with an empty queue.

tls_step tls_session::handshake() {
  ERR_clear_error();
  const auto step = step_of(SSL_do_handshake(ssl_));
  if (step == tls_step::done && !tls_psk_proved(ssl_)) {
    problem_ = "the other end did not use the cluster key";
    return tls_step::failed;
  }
  return step;
}

tls_step tls_session::read(void* to, std::size_t size, std::size_t& got) {
  ERR_clear_error();
  return step_of(SSL_read_ex(ssl_, to, size, &got) == 1 ? 1 : 0);
}

tls_step tls_session::write(const void* from, std::size_t size, std::size_t& put) {
  ERR_clear_error();
  return step_of(SSL_write_ex(ssl_, from, size, &put) == 1 ? 1 : 0);
}

std::size_t tls_session::pending() const { return static_cast<std::size_t>(SSL_pending(ssl_)); }

void tls_session::offer(std::unique_ptr<tls_offer> what) {
  offer_ = std::move(what);
  SSL_set_app_data(ssl_, offer_.get());
}

tls_context::~tls_context() { SSL_CTX_free(context_); }

result<std::unique_ptr<tls_context>> tls_context::make(key_ring keys) {
  std::unique_ptr<tls_context> made{new tls_context(std::move(keys))};
  made->context_ = make_tls_psk_context({offer_key, find_key});
  if (made->context_ == nullptr) return fail(ec::io_error, "TLS: " + pending_errors());
  SSL_CTX_set_app_data(made->context_, made.get());
  return made;
}

result<tls_session> tls_context::start(int fd, tls_role role) const {
  tls_session session{SSL_new(context_)};
  auto* ssl = session.ssl();
  if (ssl == nullptr || SSL_set_fd(ssl, fd) != 1) return fail(ec::io_error, "TLS: " + pending_errors());
  set_tls_psk_role(ssl, role == tls_role::client);
  if (role == tls_role::client) {
    auto offer = make_offer(keys_);
    if (!offer) return fail(offer.error());
    session.offer(std::move(*offer));
  }
  return session;
}

}  // namespace mooncaf
