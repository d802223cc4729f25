#include "actors/http/http_connection.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace mooncaf {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

namespace {

constexpr auto linger_limit = std::chrono::seconds(5);
constexpr std::size_t drain_bytes = 64u << 10;

std::string error_json(std::string_view message) {
  return "{\"error\":{\"message\":\"" + std::string{message} +
         "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
}

}  // namespace

class http_connection::answer final : public http_responder {
 public:
  answer(std::shared_ptr<http_connection> owner, bool head_only, bool keep_alive, bool http11)
      : owner_(std::move(owner)), head_only_(head_only), keep_alive_(keep_alive), chunked_(http11) {}

  void respond(unsigned status, http_headers headers, std::string body) override {
    std::string text = head(status, headers, body.size());
    if (!head_only_) text += body;
    send(std::move(text), true);
  }

  void begin_stream(unsigned status, http_headers headers) override {
    for (const auto& [key, value] : headers) {
      if (beast::iequals(key, "Content-Type") && value.starts_with("text/event-stream")) events_ = true;
    }
    send(head(status, headers, std::nullopt), false);
  }

  bool write(std::string piece) override {
    if (piece.empty() || head_only_) return !closed_;
    if (chunked_) {
      char size[24];
      std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
      piece = size + piece + "\r\n";
    }
    if (unsent_ + piece.size() > owner_->shared_->options.max_unsent_bytes) {
      owner_->close();  // and so `lost`, which tells whoever makes the answer
      return false;
    }
    send(std::move(piece), false);
    return !closed_;
  }

  void finish() override { send(chunked_ && !head_only_ ? "0\r\n\r\n" : "", true); }

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

  /// What a waiting client overlooks; empty if there is no such thing.
  std::string_view probe(bool begun) const {
    if (ended_ || !chunked_) return {};
    if (!begun) return "HTTP/1.1 100 Continue\r\n\r\n";
    return events_ && !head_only_ ? "3\r\n:\n\n\r\n" : "";
  }

  void owe(std::size_t bytes) { unsent_ += bytes; }
  void sent(std::size_t bytes) { unsent_ -= bytes; }
  bool ended() const { return ended_; }
  /// The client was told that the connection ends with this answer, though it did not ask for that.
  bool closes() const { return closes_; }

 private:
  std::string head(unsigned status, const http_headers& headers, std::optional<std::size_t> length) {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " " +
                       std::string{http::obsolete_reason(static_cast<http::status>(status))} + "\r\n";
    bool told = false;  // of what HEAD asks for, which is not sent
    for (const auto& [key, value] : headers) {
      text += key + ": " + value + "\r\n";
      told = told || (head_only_ && beast::iequals(key, "Content-Length"));
    }
    if (!length && chunked_) text += "Transfer-Encoding: chunked\r\n";
    if (length && status != 204 && !told) text += "Content-Length: " + std::to_string(*length) + "\r\n";
    closes_ = keep_alive_ && owner_->shared_->draining;
    const bool stays = keep_alive_ && !closes_ && (length || chunked_);
    text += stays ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
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

  const std::shared_ptr<http_connection> owner_;
  const bool head_only_;
  const bool keep_alive_;
  const bool chunked_;
  std::mutex mutex_;
  std::function<void()> gone_;
  std::atomic<std::size_t> unsent_{0};
  std::atomic<bool> closed_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> events_{false};  ///< server-sent events
  std::atomic<bool> closes_{false};
};

http_connection::http_connection(tcp::socket socket, std::shared_ptr<http_shared> shared)
    : shared_(std::move(shared)), stream_(std::move(socket), shared_->tls ? &*shared_->tls : nullptr) {
  ++shared_->connections;
}

http_connection::~http_connection() {
  if (!closed_) --shared_->connections;
}

void http_connection::run() {
  asio::dispatch(stream_.get_executor(),
                 [self = shared_from_this()] { self->greet([self] { self->read(); }); });
}

void http_connection::turn_away(unsigned status, std::string_view why, http_headers headers) {
  asio::dispatch(stream_.get_executor(),
                 [self = shared_from_this(), status, why = std::string{why}, headers = std::move(headers)] {
                   self->greet([self, status, why, headers] { self->refuse(status, why, headers); });
                 });
}

void http_connection::close() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->gone(); });
}

void http_connection::expire_in(duration limit) { stream_.expires_after(limit); }

void http_connection::greet(std::function<void()> next) {
  if (closed_ || !stream_.encrypted()) return next();
  expire_in(shared_->options.idle_timeout);
  stream_.async_handshake([self = shared_from_this(), next = std::move(next)](error_code error) {
    if (error) return self->gone();
    next();
  });
}

void http_connection::read() {
  if (closed_) return;
  parser_.emplace();
  parser_->body_limit(shared_->options.max_body_bytes);
  parser_->header_limit(static_cast<std::uint32_t>(shared_->options.max_header_bytes));
  if (input_ended_) return read_rest();
  expire_in(shared_->options.idle_timeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->read_body(error); });
}

void http_connection::read_rest() {
  error_code error;
  parser_->eager(true);
  const auto taken = parser_->put(buffer_.data(), error);
  buffer_.consume(taken);
  if (error == http::error::need_more || (!error && !parser_->is_done())) return gone();
  read_done(error);
}

void http_connection::read_body(error_code error) {
  if (error) return read_done(error);
  if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    outgoing_.push_back("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code e, std::size_t) { self->read_done(e); });
}

void http_connection::read_done(error_code error) {
  if (closed_) return;
  if (!error) return dispatch();
  if (error == http::error::body_limit) {
    return refuse(413, "the body exceeds " + std::to_string(shared_->options.max_body_bytes) + " bytes");
  }
  if (error == http::error::bad_version && speaks_http2()) return decline_http2();
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(431, "the headers exceed " + std::to_string(shared_->options.max_header_bytes) + " bytes");
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != http::make_error_code(http::error::bad_method).category()) {
    return gone();
  }
  refuse(400, "malformed HTTP: " + error.message());
}

bool http_connection::speaks_http2() const {
  constexpr std::string_view preface = "PRI * HTTP/2.0\r\n";
  const auto come = buffer_.data();
  return std::string_view{static_cast<const char*>(come.data()), come.size()}.starts_with(preface);
}

void http_connection::decline_http2() {
  constexpr std::string_view why = "this server speaks HTTP/1.1 alone";
  // An empty SETTINGS, which HTTP/2 wants first, and GOAWAY: no stream was looked at, HTTP_1_1_REQUIRED.
  std::string frames("\0\0\0\4\0\0\0\0\0", 9);
  frames += {'\0', '\0', static_cast<char>(8 + why.size())};
  frames += std::string("\7\0\0\0\0\0\0\0\0\0\0\0\0\x0D", 14);
  frames += why;
  keep_alive_ = false;
  refused_ = true;
  answer_ = std::make_shared<answer>(shared_from_this(), false, false, true);
  answer_->owe(frames.size());
  push(std::move(frames), true);
}

void http_connection::refuse(unsigned status, std::string_view why, http_headers headers) {
  keep_alive_ = false;
  refused_ = true;
  answer_ = std::make_shared<answer>(shared_from_this(), false, false, true);
  headers.emplace_back("Content-Type", "application/json");
  answer_->respond(status, std::move(headers), error_json(why));
}

void http_connection::dispatch() {
  stream_.expires_never();
  auto message = parser_->release();
  parser_.reset();
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
  keep_alive_ = message.keep_alive() && message.version() >= 11;
  answer_ = std::make_shared<answer>(shared_from_this(), message.method() == http::verb::head, keep_alive_,
                                     message.version() >= 11);
  begun_ = false;
  answering_ = true;
  {
    const std::lock_guard lock{shared_->mutex};
    ++shared_->answering;
  }
  if (!input_ended_) watch();
  const auto out = answer_;  // which the handler may end
  shared_->handler(std::move(request), out);
  if (input_ended_ && !out->ended()) probe();
}

void http_connection::watch() {
  // A client that floods is read no further, so its leaving shows only when its answer cannot be written.
  if (buffer_.size() >= shared_->options.max_header_bytes) return;
  watching_ = true;
  stream_.async_wait_for_bytes(
      buffer_.prepare(4096),
      [self = shared_from_this()](error_code e, std::size_t n) { self->watched(e, n); });
}

void http_connection::watched(error_code error, std::size_t bytes) {
  watching_ = false;
  if (closed_) return;
  buffer_.commit(bytes);
  // To be remembered: a second read of the end would wait for an event that does not come again.
  input_ended_ = error == asio::error::eof;
  if (read_next_) {
    read_next_ = false;
    return read();
  }
  if (!error) return watch();
  if (input_ended_ && answer_) return probe();
  if (error != asio::error::operation_aborted) gone();
}

void http_connection::probe() {
  if (!answer_ || answer_->ended()) return;  // writing the rest tells, too
  if (const auto text = answer_->probe(begun_); !text.empty()) {
    answer_->owe(text.size());
    outgoing_.emplace_back(text);
    flush();
  }
  if (!std::exchange(reset_awaited_, true)) {
    stream_.socket().async_wait(tcp::socket::wait_error, [self = shared_from_this()](error_code error) {
      if (!error) self->gone();
    });
  }
  if (!next_probe_) next_probe_.emplace(stream_.get_executor());
  next_probe_->expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(shared_->options.probe_interval));
  next_probe_->async_wait([self = shared_from_this(), asked = answer_](error_code error) {
    if (!error && !self->closed_ && self->answer_ == asked) self->probe();
  });
}

void http_connection::settle() {
  if (!std::exchange(answering_, false)) return;
  const std::lock_guard lock{shared_->mutex};
  if (--shared_->answering == 0) shared_->settled.notify_all();
}

void http_connection::push(std::string bytes, bool last) {
  if (closed_) return;
  begun_ = true;
  outgoing_.push_back(std::move(bytes));
  last_queued_ = last_queued_ || last;
  flush();
}

void http_connection::flush() {
  if (writing_ || closed_) return;
  if (outgoing_.empty()) {
    if (last_queued_) end();
    return;
  }
  writing_ = true;
  // All gathered pieces go out at once: with many tokens a second that is one write instead of several.
  std::string batch;
  for (auto& piece : outgoing_) batch += piece;
  outgoing_.clear();
  // A client that reads nothing for so long holds memory in vain. Only the write's timer: no read is under
  // way here, except before an interim answer, whose read has its own already.
  if (answer_) expire_in(shared_->options.idle_timeout);
  const auto bytes = std::make_shared<std::string>(std::move(batch));
  asio::async_write(stream_, asio::buffer(*bytes),
                    [self = shared_from_this(), bytes, counted = answer_](error_code error, std::size_t n) {
                      self->writing_ = false;
                      if (counted) {
                        counted->sent(n);
                        if (!self->closed_) self->stream_.expires_never();
                      }
                      if (error) return self->gone();
                      self->flush();
                    });
}

void http_connection::end() {
  last_queued_ = false;
  // A request may be on its way that the client sent before it read that this was the last answer.
  const bool lingers = refused_ || answer_->closes();
  answer_.reset();
  settle();
  if (lingers) return linger();
  if (!keep_alive_) return gone();
  if (!watching_) return read();
  // Its handler may be queued with bytes already, so the next read waits for it.
  read_next_ = true;
  error_code ignored;
  stream_.socket().cancel(ignored);
}

void http_connection::linger() {
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  expire_in(linger_limit);
  drain();
}

void http_connection::drain() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(drain_bytes),
                          [self = shared_from_this()](error_code error, std::size_t) {
                            if (error || self->closed_) return self->gone();
                            self->drain();
                          });
}

void http_connection::gone() {
  if (std::exchange(closed_, true)) return;
  --shared_->connections;
  if (answer_) std::exchange(answer_, nullptr)->lost();
  settle();
  if (next_probe_) next_probe_->cancel();
  stream_.close();
}

}  // namespace mooncaf
