#pragma once
// The bytes of one connection, plain or behind TLS. For the sources of this folder.

#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <optional>
#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// A connection as Asio reads and writes it. @thread  On the strand of its socket.
class http_stream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  /// @param tls  makes it TLS; null: plain. Outlives the stream.
  http_stream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls) : tcp_(std::move(socket)) {
    if (tls) tls_.emplace(tcp_, *tls);
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  bool encrypted() const noexcept { return tls_.has_value(); }

  void expires_after(duration limit) {
    tcp_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
  }
  void expires_never() { tcp_.expires_never(); }

  /// As a server; `done` is called with the error. For an encrypted stream.
  template <class Handler>
  void async_handshake(Handler done) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
  }
  template <class Buffers, class Handler>
  auto async_read_some(const Buffers& to, Handler&& done) {
    if (tls_) return tls_->async_read_some(to, std::forward<Handler>(done));
    return tcp_.async_read_some(to, std::forward<Handler>(done));
  }
  template <class Buffers, class Handler>
  auto async_write_some(const Buffers& from, Handler&& done) {
    if (tls_) return tls_->async_write_some(from, std::forward<Handler>(done));
    return tcp_.async_write_some(from, std::forward<Handler>(done));
  }
  /// A read that waits for as long as it takes.
  template <class Buffers, class Handler>
  void async_wait_for_bytes(const Buffers& to, Handler&& done) {
    if (tls_) tls_->async_read_some(to, std::forward<Handler>(done));
    else tcp_.socket().async_read_some(to, std::forward<Handler>(done));
  }

  /// Nothing is read or written any more, now and at once.
  void close() {
    boost::beast::error_code ignored;
    tcp_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
    tcp_.socket().close(ignored);
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace mooncaf
