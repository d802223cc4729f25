#include "actors/engines/kv_listener.hpp"

#include <zmq.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engines/news_order.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr long look_interval_ms = 200;  ///< for the word to stop
constexpr long replay_limit_ms = 2000;  ///< between two messages of a replay
constexpr int most_waiting = 100'000;   ///< messages, as many as vLLM keeps
constexpr std::uint64_t end_of_replay = UINT64_MAX;

struct closes_socket {
  void operator()(void* socket) const noexcept { zmq_close(socket); }
};
using socket_ptr = std::unique_ptr<void, closes_socket>;
struct ends_context {
  void operator()(void* context) const noexcept { zmq_ctx_term(context); }
};

using frames = std::vector<std::string>;

/// @returns nothing if none came in time.
std::optional<frames> receive(void* socket, long wait_ms) {
  zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, wait_ms) <= 0) return std::nullopt;
  frames out;
  for (bool more = true; more;) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    const auto size = zmq_msg_recv(&part, socket, 0);
    more = size >= 0 && zmq_msg_more(&part) != 0;
    if (size >= 0)
      out.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), static_cast<std::size_t>(size));
    zmq_msg_close(&part);
    if (size < 0) return std::nullopt;
  }
  return out;
}

std::uint64_t number_in(const std::string& bytes) {
  std::uint64_t out = 0;
  for (const char byte : bytes) out = out << 8 | static_cast<unsigned char>(byte);
  return out;
}

/// The numbered message at the end of some frames: its number, then its payload.
struct numbered {
  std::uint64_t number = 0;
  std::string_view payload;
};
std::optional<numbered> message_in(const frames& parts) {
  if (parts.size() < 2 || parts[parts.size() - 2].size() != 8) return std::nullopt;
  return numbered{number_in(parts[parts.size() - 2]), parts.back()};
}

result<socket_ptr> connect(void* context, int type, const std::string& to, const char* option) {
  socket_ptr made{zmq_socket(context, type)};
  const int now = 0;
  zmq_setsockopt(made.get(), ZMQ_LINGER, &now, sizeof now);
  zmq_setsockopt(made.get(), ZMQ_RCVHWM, &most_waiting, sizeof most_waiting);
  if (type == ZMQ_SUB) zmq_setsockopt(made.get(), ZMQ_SUBSCRIBE, "", 0);
  if (zmq_connect(made.get(), to.c_str()) != 0)
    return fail(ec::invalid_argument, std::string{option} + ": '" + to + "': " + zmq_strerror(zmq_errno()) +
                                          "; give tcp://HOST:PORT or ipc://FILE");
  return made;
}

}  // namespace

class kv_listener::listening {
 public:
  listening(kv_endpoints at, std::function<void(engine_news)> then)
      : at_(std::move(at)), then_(std::move(then)) {}
  ~listening() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }

  result<void> open() {
    auto news = connect(context_.get(), ZMQ_SUB, at_.news, "engine-events");
    if (!news) return fail(news.error());
    news_ = std::move(*news);
    // An address that is none is told now, not at the first gap.
    if (!at_.replay.empty())
      if (auto tried = connect(context_.get(), ZMQ_DEALER, at_.replay, "engine-replay"); !tried)
        return fail(tried.error());
    thread_ = std::thread{[this] { listen(); }};
    return {};
  }

 private:
  void listen() {
    if (!at_.replay.empty()) replay(true);
    while (!ends_) {
      if (const auto parts = receive(news_.get(), look_interval_ms)) arrived(*parts);
    }
  }

  void arrived(const frames& parts) {
    const auto message = message_in(parts);
    if (!message) return complain("a message has no number");
    const auto before = order_.expected();
    switch (order_.arrived(message->number)) {
      case news_verdict::known:
        return;
      case news_verdict::next:
        return tell(message->payload, false);
      case news_verdict::anew:
        log_info("engine",
                 {{"events", "it counts from its beginning again; what it held before is forgotten"}});
        return tell(message->payload, true);
      case news_verdict::gap:
        break;
    }
    if (!at_.replay.empty() && replay(false, before)) return;
    tell(message->payload, true);
  }

  /// Asks for all messages since `from`. @returns whether any came; what they do not have is forgotten.
  bool replay(bool first, std::uint64_t from = 0) {
    auto opened = connect(context_.get(), ZMQ_DEALER, at_.replay, "engine-replay");
    if (!opened) return false;
    std::array<unsigned char, 8> number{};
    for (std::size_t i = 0; i < number.size(); ++i)
      number[i] = static_cast<unsigned char>(from >> (8 * (7 - i)));
    zmq_send(opened->get(), "", 0, ZMQ_SNDMORE);
    zmq_send(opened->get(), number.data(), number.size(), 0);
    std::optional<std::uint64_t> last;
    while (!ends_) {
      const auto parts = receive(opened->get(), replay_limit_ms);
      const auto message = parts ? message_in(*parts) : std::nullopt;
      if (!message || message->number == end_of_replay) break;
      tell(message->payload, message->number != (last ? *last + 1 : from));
      last = message->number;
    }
    if (!last) return false;
    if (first) (void)order_.arrived(*last);
    else order_.replayed(*last);
    return true;
  }

  void tell(std::string_view payload, bool anew) {
    auto events = read_kv_news(std::as_bytes(std::span{payload.data(), payload.size()}));
    if (!events) {
      complain(events.error().detail);
      return then_({{}, true});
    }
    then_({std::move(*events), anew});
  }
  /// Once: such an engine would fill the log.
  void complain(const std::string& why) {
    if (!std::exchange(complained_, true))
      log_warn("engine", {{"events", at_.news}, {"problem", why}, {"effect", "what it holds is not known"}});
  }

  kv_endpoints at_;
  std::function<void(engine_news)> then_;
  std::unique_ptr<void, ends_context> context_{zmq_ctx_new()};
  socket_ptr news_;
  news_order order_;
  bool complained_ = false;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

kv_listener::kv_listener(std::unique_ptr<listening> state) : state_(std::move(state)) {}
kv_listener::~kv_listener() = default;

result<std::unique_ptr<kv_listener>> kv_listener::start(const kv_endpoints& at,
                                                        std::function<void(engine_news)> then) {
  auto state = std::make_unique<listening>(at, std::move(then));
  if (auto opened = state->open(); !opened) return fail(opened.error());
  return std::unique_ptr<kv_listener>{new kv_listener{std::move(state)}};
}

}  // namespace mooncaf
