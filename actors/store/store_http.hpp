#pragma once
// The object store over HTTP, for scripts, dashboards and Prometheus: a client of the directory with a port.

#include <memory>
#include <optional>
#include <string>

#include "actors/http/http_server.hpp"
#include "storage/objects/client/store_client.hpp"

namespace mooncaf::store {

struct store_http_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  /// The token that requests for objects must bring (Authorization: Bearer …). Empty: none is asked for, and
  /// web pages of other machines are refused.
  std::string token;
  std::string tls_certificate_file, tls_key_file;  ///< PEM, read once; empty: plain HTTP
  /// The directory that is asked for tenants' tokens; without it such tokens are refused.
  std::optional<directory_address> tenants_at;
  std::uint64_t object_bytes_max = 256 * MiB;  ///< largest value, in and out: it is held in memory meanwhile
};

/// - `/objects/KEY`: GET (with `Range`), HEAD, PUT (`?replicas=N`), DELETE (`?force=1`); KEY percent-encoded
/// - `/segments`: the memory that is mounted, as JSON
/// - `/get_all_segments`: names of segments, a line each, as SGLang asks Mooncake's master
/// - `/metrics`: Prometheus text: mooncaf's names, and Mooncake's
/// - `/store`: a live page, which needs no token and asks for it; `/store/figures`: what it polls, as JSON
/// - `/health`: 200 if the directory answers
/// @thread  construction and destruction only
class store_http {
 public:
  /// @error `ec::io_error` with the address or the file, if it cannot be had; `ec::invalid_argument` for one
  /// file of TLS without the other.
  static result<std::unique_ptr<store_http>> start(store_http_options options,
                                                   std::unique_ptr<store_client> store);
  ~store_http();
  std::uint16_t port() const noexcept;

 private:
  class impl;
  explicit store_http(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf::store
