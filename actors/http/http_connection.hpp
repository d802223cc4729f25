#pragma once
// One client connection of the HTTP server, and the answers that it is given. Beast's types stay in these
// sources.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/http/http_server.hpp"
#include "actors/http/http_stream.hpp"

namespace mooncaf {

class http_connection;

/// State that connections share with the server. Connections own it, since answers may outlive the server.
struct http_shared {
  http_shared(http_options o, http_handler h)
      : options(std::move(o)), handler(std::move(h)), context(static_cast<int>(options.threads)) {}

  const http_options options;
  const http_handler handler;
  std::optional<boost::asio::ssl::context> tls;  ///< set before the first connection
  boost::asio::io_context context;
  std::atomic<std::size_t> connections{0};  ///< with an open socket
  std::atomic<bool> draining{false};        ///< each connection may bring one more request, no more
  std::mutex mutex;
  std::vector<std::weak_ptr<http_connection>> all;  ///< guarded by `mutex`
  std::size_t answering = 0;        ///< guarded by `mutex`: requests whose answer is not all written
  std::condition_variable settled;  ///< `answering` has become 0
};

/// Reads one request after the other and writes their answers.
///
///   read ──► dispatch ──► watch for the client's leaving, while pieces of the answer go out ──► end ──► read
///   …
///    └──► refuse (malformed, too large) ──► linger until the client has read why ──► gone
///
/// A client that closes its side may still wait for its answer, or have left. It is told something that a
/// waiting one overlooks (an interim answer, or a comment of an event stream), and whoever left answers that
/// with a reset.
/// @thread Lives on its strand; `answer` objects reach it from other threads by posting.
class http_connection : public std::enable_shared_from_this<http_connection> {
 public:
  http_connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<http_shared> shared);
  ~http_connection();

  void run();
  /// Answers with an error instead of reading anything.
  void turn_away(unsigned status, std::string_view why, http_headers headers);
  void close();

 private:
  class answer;
  using error_code = boost::beast::error_code;

  /// Shakes hands where that is asked for, then `next`.
  void greet(std::function<void()> next);
  void read();
  /// Takes the next request from the bytes that have come, when no more will.
  void read_rest();
  void read_body(error_code error);
  void read_done(error_code error);
  void refuse(unsigned status, std::string_view why, http_headers headers = {});
  /// Whether what has come begins as HTTP/2 does where a client takes it for granted.
  bool speaks_http2() const;
  /// Says in HTTP/2's own frames that HTTP/1.1 is required, and ends the connection.
  void decline_http2();
  void dispatch();
  /// While an answer is being made the client may leave, or send its next request, which waits in `buffer_`.
  void watch();
  void watched(error_code error, std::size_t bytes);
  /// The client sends no more: finds out whether it has left, now and then again.
  void probe();
  void push(std::string bytes, bool last);
  void flush();
  void end();
  /// Sends the end of the connection, and reads on for a while: closing at once would reset the
  /// connection, and the client might never see the answer.
  void linger();
  void drain();
  void gone();
  /// The request under way, if there is one, needs nothing more.
  void settle();
  void expire_in(duration limit);

  const std::shared_ptr<http_shared> shared_;  ///< first: its io_context must outlive the socket
  http_stream stream_;
  std::optional<boost::asio::steady_timer> next_probe_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::shared_ptr<answer> answer_;
  std::deque<std::string> outgoing_;
  bool writing_ = false;
  bool answering_ = false;  ///< counted in `http_shared::answering`
  bool reset_awaited_ = false;
  bool begun_ = false;  ///< the head of the answer is queued
  bool last_queued_ = false;
  bool keep_alive_ = false;
  bool watching_ = false;
  bool read_next_ = false;  ///< as soon as the watch has ended
  bool input_ended_ = false;
  bool refused_ = false;
  bool closed_ = false;
};

}  // namespace mooncaf
