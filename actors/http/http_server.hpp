#pragma once
// An HTTP/1.1 server with a fixed number of threads, for many slow, long answers.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

struct http_options {
  std::string host = "127.0.0.1";  ///< an address of this machine, or a name that has one
  std::uint16_t port = 0;          ///< 0: any free one
  /// PEM: the certificate followed by its signers', and its key. Empty: no TLS.
  std::string tls_certificate_file, tls_key_file;
  unsigned threads = 1;
  std::size_t max_connections = 4096;  ///< more are refused with 503
  std::size_t max_body_bytes = 8u << 20;
  std::size_t max_header_bytes = 32u << 10;
  /// Between requests, for a request to arrive whole, and for a client to read the answer.
  duration idle_timeout = std::chrono::seconds(60);
  /// How often a client that has closed its side, and waits for its answer, is asked whether it is still
  /// there.
  duration probe_interval = std::chrono::seconds(1);
  std::size_t max_unsent_bytes = 4u << 20;  ///< of a stream; a client that reads slower is dropped
  /// A socket of the file system over which a successor gets the listening socket, and over which it is got
  /// from a predecessor (`listener_handover.hpp`). Empty: neither.
  std::string handover;
};

struct http_request {
  std::string method;  ///< "GET", …
  std::string path;    ///< without query
  std::string query;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  /// Value of a header, compared without case; empty if absent.
  std::string_view header(std::string_view name) const;
};

using http_headers = std::vector<std::pair<std::string, std::string>>;

/// The way to answer one request; may outlive the server. @thread Safe: any thread, at any time; calls after
/// the end are ignored.
class http_responder {
 public:
  virtual ~http_responder() = default;
  /// A whole answer. One to HEAD may tell the length of what is not sent: "Content-Length" among its headers.
  virtual void respond(unsigned status, http_headers headers, std::string body) = 0;
  /// An answer in pieces: head now, pieces later, `finish` at the end.
  virtual void begin_stream(unsigned status, http_headers headers) = 0;
  /// @returns false once the client is gone, or too slow for `max_unsent_bytes`.
  virtual bool write(std::string piece) = 0;
  virtual void finish() = 0;
  /// Called once, on an I/O thread, if the client goes away before the answer is complete; at once if it is
  /// gone.
  virtual void on_close(std::function<void()> gone) = 0;
};

/// Called on an I/O thread for each request; must not block for long. The answer may come later, from
/// elsewhere.
using http_handler = std::function<void(http_request, std::shared_ptr<http_responder>)>;

/// Whether the two files can serve TLS, or both are empty.
/// @error `ec::invalid_argument` for one without the other; `ec::io_error` with the file and the reason.
result<void> check_tls_files(const std::string& certificate, const std::string& key);

class http_server {
 public:
  /// Listens and starts threads. @error `ec::io_error` with address and reason, or with the file of TLS.
  static result<std::unique_ptr<http_server>> start(http_options options, http_handler handler);
  /// Stops: closes all connections and joins the threads.
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Takes the connections that wait to be accepted, and no more. Each one that is open may still bring one
  /// request, whose answer tells its client that the connection ends.
  void drain();
  std::size_t answering() const;  ///< requests whose answer is not all written

  /// Takes no more connections, and waits until every request under way has its answer written, but not
  /// longer than `limit`. Whoever makes the answers ends them before or meanwhile; new requests still reach
  /// the handler.
  void settle(duration limit);

  std::uint16_t port() const noexcept;
  std::size_t connections() const noexcept;  ///< open now

 private:
  class impl;
  explicit http_server(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf
