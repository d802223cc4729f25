#include "actors/engines/engine_client.hpp"

#include <netinet/tcp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <future>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

namespace mooncaf {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr auto connect_limit = std::chrono::seconds(5);
constexpr std::size_t longest_refusal = 64 * 1024;
constexpr std::uint64_t longest_answer = 64 << 20;  ///< but of a stream

/// A host that is gone says nothing: its silence is noticed within some 20 seconds.
void notice_silence(tcp::socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.native_handle(), level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

/// Whether another engine may take what this one refused.
bool passes_elsewhere(unsigned status) {
  return status == 401 || status == 403 || status == 429 || status >= 500;
}

}  // namespace

/// One request and its answer. Its handlers hold it until the last has run.
class engine_client::call : public std::enable_shared_from_this<call> {
 public:
  using request = http::request<http::string_body>;
  struct reader {
    std::function<void(unsigned status, std::string bytes)> body;
    std::function<void(error why)> done;
  };

  call(asio::io_context& io, host_port at, request asked, std::optional<duration> limit, reader to)
      : at_(std::move(at)),
        asked_(std::move(asked)),
        limit_(limit),
        to_(std::move(to)),
        names_(io),
        stream_(io) {
    parser_.body_limit(limit_ ? longest_answer : UINT64_MAX);
  }

  void begin() {
    names_.async_resolve(
        at_.host, std::to_string(at_.port),
        [self = shared_from_this()](beast::error_code failed, const tcp::resolver::results_type& found) {
          if (failed) return self->end(ec::peer_lost, failed);
          self->connect(found);
        });
  }
  /// Nothing is told any more.
  void drop() {
    to_ = {};
    names_.cancel();
    stream_.close();
  }

 private:
  void connect(const tcp::resolver::results_type& found) {
    stream_.expires_after(connect_limit);
    stream_.async_connect(found, [self = shared_from_this()](beast::error_code failed, const tcp::endpoint&) {
      if (failed) return self->end(failed == beast::error::timeout ? ec::timed_out : ec::peer_lost, failed);
      notice_silence(self->stream_.socket());
      self->send();
    });
  }
  void send() {
    if (limit_) stream_.expires_after(*limit_);
    else stream_.expires_never();
    http::async_write(stream_, asked_, [self = shared_from_this()](beast::error_code failed, std::size_t) {
      if (failed) return self->broke(failed);
      http::async_read_header(self->stream_, self->buffer_, self->parser_,
                              [self](beast::error_code unread, std::size_t) { self->took(unread); });
    });
  }
  void took(beast::error_code failed) {
    if (failed) return broke(failed);
    if (auto& bytes = parser_.get().body(); !bytes.empty() && to_.body)
      to_.body(parser_.get().result_int(), std::exchange(bytes, {}));
    if (parser_.is_done()) return end(ec::none, {});
    http::async_read_some(
        stream_, buffer_, parser_,
        [self = shared_from_this()](beast::error_code unread, std::size_t) { self->took(unread); });
  }
  void broke(beast::error_code failed) {
    end(failed == beast::error::timeout ? ec::timed_out : ec::unavailable, failed);
  }
  void end(ec code, beast::error_code failed) {
    error why{code, code == ec::none ? std::string{} : "engine " + to_string(at_) + ": " + failed.message()};
    stream_.close();
    if (const auto done = std::exchange(to_, {}).done) done(std::move(why));
  }

  host_port at_;
  request asked_;
  std::optional<duration> limit_;
  reader to_;
  tcp::resolver names_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
};

struct engine_client::io {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
  std::unordered_map<std::uint64_t, std::shared_ptr<call>> streams;  ///< @thread  the client's
  std::thread thread{[this] { context.run(); }};

  ~io() {
    context.stop();
    thread.join();
  }
};

engine_client::engine_client(host_port at, std::string key)
    : at_(std::move(at)), key_(std::move(key)), io_(std::make_unique<io>()) {}

engine_client::~engine_client() = default;

namespace {

http::request<http::string_body> question(http::verb verb, const std::string& path, const host_port& at,
                                          const std::string& key, std::string body) {
  http::request<http::string_body> out{verb, path, 11};
  out.set(http::field::host, to_string(at));
  out.set(http::field::user_agent, "mooncaf");
  if (!key.empty()) out.set(http::field::authorization, "Bearer " + key);
  if (verb == http::verb::post) out.set(http::field::content_type, "application/json");
  out.keep_alive(false);
  out.body() = std::move(body);
  out.prepare_payload();
  return out;
}

/// Pieces of a stream that is right, or the reason of a refusal.
class stream_reader {
 public:
  stream_reader(engine_make make, engine_client::listener to) : to_(std::move(to)), reader_(make) {}

  /// @returns false if the stream is of no use any more.
  bool take(unsigned status, const std::string& bytes) {
    status_ = status;
    if (status != 200) {
      refusal_ += bytes.substr(0, longest_refusal - std::min(longest_refusal, refusal_.size()));
      return true;
    }
    auto piece = reader_.take(bytes);
    if (!piece) {
      to_.ended(piece.error(), true);
      return false;
    }
    over_ = over_ || piece->over;
    to_.heard(std::move(*piece));
    return true;
  }
  void done(error why) {
    if (why.code == ec::none && status_ == 200 && over_) return to_.ended({}, true);
    if (why.code != ec::none) return to_.ended(std::move(why), true);
    if (status_ == 200) return to_.ended({ec::unavailable, "the engine's answer broke off"}, true);
    const bool elsewhere = passes_elsewhere(status_);
    to_.ended({elsewhere ? ec::unavailable : ec::invalid_argument,
               "the engine answers " + std::to_string(status_) + ": " + refusal_in(refusal_)},
              elsewhere);
  }

 private:
  engine_client::listener to_;
  completion_reader reader_;
  unsigned status_ = 200;
  bool over_ = false;
  std::string refusal_;
};

}  // namespace

void engine_client::complete(std::uint64_t name, engine_make make, std::string body, listener to) {
  asio::post(io_->context, [this, name, make, body = std::move(body), to = std::move(to)]() mutable {
    const auto stream = std::make_shared<stream_reader>(make, std::move(to));
    call::reader parts;
    parts.body = [this, name, stream](unsigned status, const std::string& bytes) {
      if (!stream->take(status, bytes)) hang_up(name);
    };
    parts.done = [this, name, stream](error why) {
      io_->streams.erase(name);
      stream->done(std::move(why));
    };
    auto asked = question(http::verb::post, std::string{prompts_path(make)}, at_, key_, std::move(body));
    const auto made =
        std::make_shared<call>(io_->context, at_, std::move(asked), std::nullopt, std::move(parts));
    io_->streams[name] = made;
    made->begin();
  });
}

void engine_client::hang_up(std::uint64_t name) {
  asio::post(io_->context, [this, name] {
    if (const auto found = io_->streams.extract(name)) found.mapped()->drop();
  });
}

void engine_client::get(std::string path, duration limit, std::function<void(result<std::string>)> then) {
  asio::post(io_->context, [this, path = std::move(path), limit, then = std::move(then)] {
    struct whole {
      unsigned status = 0;
      std::string body;
    };
    const auto answer = std::make_shared<whole>();
    call::reader parts;
    parts.body = [answer](unsigned status, const std::string& bytes) {
      answer->status = status;
      answer->body += bytes;
    };
    parts.done = [answer, then, path](error why) {
      if (why.code != ec::none) return then(fail(std::move(why)));
      if (answer->status != 200 && answer->status != 0)
        return then(fail(passes_elsewhere(answer->status) ? ec::unavailable : ec::invalid_argument,
                         "GET " + path + ": the engine answers " + std::to_string(answer->status) + ": " +
                             refusal_in(answer->body)));
      then(std::move(answer->body));
    };
    std::make_shared<call>(io_->context, at_, question(http::verb::get, path, at_, key_, {}), limit,
                           std::move(parts))
        ->begin();
  });
}

result<std::string> engine_client::get(const std::string& path, duration limit) {
  std::promise<result<std::string>> promise;
  auto answer = promise.get_future();
  get(path, limit, [&](result<std::string> got) { promise.set_value(std::move(got)); });
  return answer.get();
}

}  // namespace mooncaf
