#include "actors/http/http_server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace mooncaf {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

std::string_view http_request::header(std::string_view name) const {
  const auto same = [](std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
  };
  for (const auto& [key, value] : headers) {
    if (same(key, name)) return value;
  }
  return {};
}

namespace {

std::string error_json(std::string_view message) {
  return "{\"error\":{\"message\":\"" + std::string{message} +
         "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
}

/// What connections share with the server.
struct shared_state {
  http_options options;
  http_handler handler;
  std::atomic<std::size_t> connections{0};
  std::mutex mutex;
  std::vector<std::weak_ptr<class connection>> all;
};

/// One client connection. Lives on its strand; `answer` objects reach it from other threads by posting.
class connection : public std::enable_shared_from_this<connection> {
 public:
  connection(tcp::socket socket, shared_state& shared) : stream_(std::move(socket)), shared_(shared) {
    ++shared_.connections;
  }
  ~connection() { --shared_.connections; }

  void run() {
    asio::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->read(); });
  }
  void close() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->gone(); });
  }

 private:
  class answer;

  void read();
  void read_done(beast::error_code error);
  void refuse(http::status status, std::string_view why);
  void dispatch();
  /// While an answer is being made nothing is expected from the client but its leaving.
  void watch();
  void push(std::string bytes, bool last);
  void flush();
  void gone();
  void end();

  beast::tcp_stream stream_;
  shared_state& shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<answer> answer_;
  std::deque<std::string> outgoing_;
  bool writing_ = false;
  bool last_queued_ = false;
  bool keep_alive_ = false;
  bool watching_ = false;
  bool closed_ = false;
};

class connection::answer final : public http_responder {
 public:
  answer(std::shared_ptr<connection> owner, bool head_only, bool keep_alive, bool http11)
      : owner_(std::move(owner)), head_only_(head_only), keep_alive_(keep_alive), chunked_(http11) {}

  void respond(unsigned status, http_headers headers, std::string body) override {
    std::string text = head(status, headers, body.size());
    if (!head_only_) text += body;
    send(std::move(text), true);
  }

  void begin_stream(unsigned status, http_headers headers) override {
    send(head(status, headers, std::nullopt), false);
  }

  bool write(std::string piece) override {
    if (piece.empty()) return !closed_;
    if (chunked_) {
      char size[24];
      std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
      piece = size + piece + "\r\n";
    }
    if (unsent_ + piece.size() > owner_->shared_.options.max_unsent_bytes) {
      owner_->close();
      closed_ = true;
      return false;
    }
    send(std::move(piece), false);
    return !closed_;
  }

  void finish() override { send(chunked_ ? "0\r\n\r\n" : "", true); }

  void on_close(std::function<void()> gone) override {
    bool now = false;
    {
      const std::lock_guard lock{mutex_};
      now = closed_ && !ended_;
      if (!now) gone_ = gone;
    }
    if (now) gone();
  }

  /// The client left. Called on the strand.
  void lost() {
    std::function<void()> tell;
    {
      const std::lock_guard lock{mutex_};
      if (closed_.exchange(true) || ended_) return;
      tell = std::move(gone_);
    }
    if (tell) tell();
  }

  void sent(std::size_t bytes) { unsent_ -= bytes; }
  bool ended() const { return ended_; }

 private:
  std::string head(unsigned status, const http_headers& headers, std::optional<std::size_t> length) const {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " " +
                       std::string{http::obsolete_reason(static_cast<http::status>(status))} + "\r\n";
    for (const auto& [key, value] : headers) text += key + ": " + value + "\r\n";
    if (length) {
      text += "Content-Length: " + std::to_string(*length) + "\r\n";
    } else if (chunked_) {
      text += "Transfer-Encoding: chunked\r\n";
    }
    text += "Access-Control-Allow-Origin: *\r\n";
    text += keep_alive_ && (length || chunked_) ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return text;
  }

  void send(std::string text, bool last) {
    const std::lock_guard lock{mutex_};
    if (ended_ || closed_) return;
    if (last) {
      ended_ = true;
      gone_ = nullptr;
    }
    unsent_ += text.size();
    // Posted under the lock, so that pieces of several threads keep the order of their calls.
    asio::post(owner_->stream_.get_executor(), [owner = owner_, text = std::move(text), last]() mutable {
      owner->push(std::move(text), last);
    });
  }

  const std::shared_ptr<connection> owner_;
  const bool head_only_;
  const bool keep_alive_;
  const bool chunked_;
  std::mutex mutex_;
  std::function<void()> gone_;
  std::atomic<std::size_t> unsent_{0};
  std::atomic<bool> closed_{false};
  std::atomic<bool> ended_{false};
};

void connection::read() {
  parser_.emplace();
  parser_->body_limit(shared_.options.max_body_bytes);
  parser_->header_limit(static_cast<std::uint32_t>(shared_.options.max_header_bytes));
  stream_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(shared_.options.idle_timeout));
  http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, std::size_t) {
    if (error) return self->read_done(error);
    const bool waits = beast::iequals(self->parser_->get()[http::field::expect], "100-continue");
    if (waits) {
      self->outgoing_.push_front("HTTP/1.1 100 Continue\r\n\r\n");
      self->flush();
    }
    http::async_read(self->stream_, self->buffer_, *self->parser_,
                     [self](beast::error_code e, std::size_t) { self->read_done(e); });
  });
}

void connection::read_done(beast::error_code error) {
  if (error == http::error::end_of_stream) return gone();
  if (error == http::error::body_limit) {
    return refuse(http::status::payload_too_large,
                  "the body exceeds " + std::to_string(shared_.options.max_body_bytes) + " bytes");
  }
  if (error == http::error::header_limit) return refuse(http::status::request_header_fields_too_large, "headers too large");
  if (error == beast::error::timeout) return gone();
  if (error && error.category() == http::make_error_code(http::error::bad_method).category()) {
    return refuse(http::status::bad_request, "malformed HTTP: " + error.message());
  }
  if (error) return gone();
  dispatch();
}

void connection::refuse(http::status status, std::string_view why) {
  keep_alive_ = false;
  answer_ = std::make_shared<answer>(shared_from_this(), false, false, true);
  answer_->respond(static_cast<unsigned>(status), {{"Content-Type", "application/json"}}, error_json(why));
}

void connection::dispatch() {
  stream_.expires_never();
  auto message = parser_->release();
  http_request request;
  request.method = std::string{message.method_string()};
  const std::string target{message.target()};
  const auto mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(std::string{field.name_string()}, std::string{field.value()});
  }
  request.body = std::move(message.body());
  keep_alive_ = message.keep_alive();
  answer_ = std::make_shared<answer>(shared_from_this(), message.method() == http::verb::head, keep_alive_,
                                     message.version() >= 11);
  if (message.version() < 11) keep_alive_ = false;
  if (buffer_.size() == 0) watch();
  shared_.handler(std::move(request), answer_);
}

void connection::watch() {
  watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](beast::error_code error) {
    self->watching_ = false;
    if (error || !self->answer_) return;
    // Readable: either the next request of a pipelining client, which waits, or the end of the connection.
    char byte;
    beast::error_code peek;
    const auto n = self->stream_.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peek);
    if (peek == asio::error::would_block) return self->watch();
    if (peek || n == 0) self->gone();
  });
}

void connection::push(std::string bytes, bool last) {
  if (closed_) return;
  outgoing_.push_back(std::move(bytes));
  last_queued_ = last_queued_ || last;
  flush();
}

void connection::flush() {
  if (writing_ || closed_) return;
  if (outgoing_.empty()) {
    if (last_queued_) end();
    return;
  }
  writing_ = true;
  // What has gathered goes out at once: with many tokens a second that is one write instead of several.
  std::string batch;
  for (auto& piece : outgoing_) batch += piece;
  outgoing_.clear();
  auto bytes = std::make_shared<std::string>(std::move(batch));
  asio::async_write(stream_.socket(), asio::buffer(*bytes),
                    [self = shared_from_this(), bytes](beast::error_code error, std::size_t n) {
                      self->writing_ = false;
                      if (self->answer_) self->answer_->sent(n);
                      if (error) return self->gone();
                      self->flush();
                    });
}

void connection::end() {
  last_queued_ = false;
  answer_.reset();
  if (!keep_alive_) return gone();
  beast::error_code ignored;
  if (watching_) stream_.socket().cancel(ignored);
  read();
}

void connection::gone() {
  if (std::exchange(closed_, true)) return;
  if (answer_) std::exchange(answer_, nullptr)->lost();
  beast::error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.socket().close(ignored);
}

}  // namespace

class http_server::impl {
 public:
  impl(http_options options, http_handler handler) : context_(static_cast<int>(options.threads)), acceptor_(context_) {
    shared_.options = std::move(options);
    shared_.handler = std::move(handler);
  }

  result<void> listen() {
    beast::error_code error;
    const auto address = asio::ip::make_address(shared_.options.host, error);
    const auto refuse = [&] {
      return fail(ec::io_error, "cannot listen on " + shared_.options.host + ":" + std::to_string(shared_.options.port) +
                                    ": " + error.message());
    };
    if (error) return refuse();
    const tcp::endpoint at{address, shared_.options.port};
    acceptor_.open(at.protocol(), error);
    if (error) return refuse();
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    acceptor_.bind(at, error);
    if (error) return refuse();
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return refuse();
    port_ = acceptor_.local_endpoint().port();
    accept();
    for (unsigned i = 0; i < shared_.options.threads; ++i) threads_.emplace_back([this] { context_.run(); });
    return {};
  }

  void stop() {
    asio::post(context_, [this] {
      beast::error_code ignored;
      acceptor_.close(ignored);
    });
    {
      const std::lock_guard lock{shared_.mutex};
      for (auto& weak : shared_.all) {
        if (const auto c = weak.lock()) c->close();
      }
    }
    // The closes above are queued before this, so they run before the loop ends.
    asio::post(context_, [this] { context_.stop(); });
    for (auto& t : threads_) t.join();
    threads_.clear();
  }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const noexcept { return shared_.connections; }

 private:
  void accept() {
    acceptor_.async_accept(asio::make_strand(context_), [this](beast::error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!error) admit(std::move(socket));
      accept();
    });
  }

  void admit(tcp::socket socket) {
    beast::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (shared_.connections >= shared_.options.max_connections) {
      static constexpr std::string_view full =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
      asio::write(socket, asio::buffer(full), ignored);
      return;
    }
    auto made = std::make_shared<connection>(std::move(socket), shared_);
    {
      const std::lock_guard lock{shared_.mutex};
      if (shared_.all.size() > 2 * shared_.connections + 64) {
        std::erase_if(shared_.all, [](const auto& weak) { return weak.expired(); });
      }
      shared_.all.push_back(made);
    }
    made->run();
  }

  shared_state shared_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  std::vector<std::thread> threads_;
  std::uint16_t port_ = 0;
};

http_server::http_server(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
http_server::~http_server() { impl_->stop(); }

result<std::unique_ptr<http_server>> http_server::start(http_options options, http_handler handler) {
  auto made = std::make_unique<impl>(std::move(options), std::move(handler));
  if (auto listening = made->listen(); !listening) return fail(listening.error());
  return std::unique_ptr<http_server>(new http_server(std::move(made)));
}

std::uint16_t http_server::port() const noexcept { return impl_->port(); }
std::size_t http_server::connections() const noexcept { return impl_->connections(); }

}  // namespace mooncaf
