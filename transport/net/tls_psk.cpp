#include "transport/net/tls_psk.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace mooncaf {
namespace {

constexpr unsigned char cipher_id[] = {0x13, 0x01};
constexpr const char* cipher_name = "TLS_AES_128_GCM_SHA256";

}  // namespace

SSL_CTX* make_tls_psk_context(const tls_psk_calls& calls) {
  auto* const c = SSL_CTX_new(TLS_method());
  if (c == nullptr || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(c, cipher_name) != 1 || SSL_CTX_set_num_tickets(c, 0) != 1) {
    SSL_CTX_free(c);
    return nullptr;
  }
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_use_session_callback(c, calls.offer);
  SSL_CTX_set_psk_find_session_callback(c, calls.find);
  return c;
}

ssl_session_st* tls_psk_session(SSL* ssl, std::span<const unsigned char> key) {
  auto* session = SSL_SESSION_new();
  const auto* cipher = SSL_CIPHER_find(ssl, cipher_id);
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, key.data(), key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

void set_tls_psk_role(SSL* ssl, bool client) {
  if (!client) return SSL_set_accept_state(ssl);
  SSL_set_connect_state(ssl);
  // With no authority loaded no certificate is ever good: the key is the only proof. The accepting side has
  // no certificate to offer and asks for none.
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
}

// Without the key a handshake cannot succeed, as no other way of proof is set up; this says so again.
bool tls_psk_proved(SSL* ssl) { return SSL_session_reused(ssl) == 1; }

std::string said_by_openssl(unsigned long& code) {
  code = ERR_peek_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "TLS failed" : std::string{"TLS: "} + reason;
}

}  // namespace mooncaf
