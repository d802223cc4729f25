#pragma once
// Common to every TLS connection of this project: version 1.3, one cipher suite, no certificates, and a key
// that both ends know as the only proof. How a connection names its key to the other end is its own.
// @source RFC 8446, section 2.2 (psk_dhe_ke), with one external key.

#include <openssl/types.h>

#include <cstddef>
#include <span>
#include <string>

struct ssl_session_st;  // SSL_SESSION, which openssl/types.h does not declare

namespace mooncaf {

/// OpenSSL's calls to a connection during its handshake; each gives a `tls_psk_session`.
struct tls_psk_calls {
  /// Client: the key to use, and its name. @returns 1, or 0 to give up.
  int (*offer)(SSL*, const EVP_MD*, const unsigned char** name, std::size_t* name_bytes,
               ssl_session_st** session);
  /// Server: the key of that name, or null. @returns 1
  int (*find)(SSL*, const unsigned char* name, std::size_t name_bytes, ssl_session_st** session);
};

/// @returns a context for both roles, the caller's to free; null if OpenSSL has said why.
SSL_CTX* make_tls_psk_context(const tls_psk_calls& calls);
/// A key as OpenSSL wants it, OpenSSL's or the caller's to free; null if memory is short.
ssl_session_st* tls_psk_session(SSL* ssl, std::span<const unsigned char> key);
/// Sets the role of a connection that has not begun its handshake.
void set_tls_psk_role(SSL* ssl, bool client);
/// Whether the other end has proven that it knows the key. Asked when the handshake is done.
bool tls_psk_proved(SSL* ssl);

/// Takes OpenSSL's errors of the last call of this thread. @returns a sentence; `code` of the first error, or
/// zero for none.
std::string said_by_openssl(unsigned long& code);

}  // namespace mooncaf
