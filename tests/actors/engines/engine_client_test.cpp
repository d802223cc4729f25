// Calls to an engine over real sockets: streams, refusals, and servers that break off, hang or are not there.

#include "actors/engines/engine_client.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// Answers each connection with what it is given, in parts, and shows what was asked.
class scripted_server {
 public:
  explicit scripted_server(std::vector<std::string> parts, bool hangs = false)
      : parts_(std::move(parts)), hangs_(hangs) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(socket_, 16) == 0);
    socklen_t size = sizeof at;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~scripted_server() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  host_port at() const { return {"127.0.0.1", port_}; }
  /// Once the client of the first connection has gone.
  bool hung_up(duration limit) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, limit, [&] { return gone_ > 0; });
  }
  std::string asked() {
    const std::scoped_lock lock{mutex_};
    return asked_;
  }

 private:
  void serve() {
    for (;;) {
      const auto peer = ::accept(socket_, nullptr, nullptr);
      if (peer < 0) return;
      std::string question;
      char bytes[4096];
      // These tests' questions fit one segment each.
      if (const auto got = ::recv(peer, bytes, sizeof bytes, 0); got > 0)
        question.assign(bytes, static_cast<std::size_t>(got));
      {
        const std::scoped_lock lock{mutex_};
        asked_ = question;
      }
      for (const auto& part : parts_) (void)!::send(peer, part.data(), part.size(), MSG_NOSIGNAL);
      if (hangs_) {
        while (::recv(peer, bytes, sizeof bytes, 0) > 0) {
        }
        const std::scoped_lock lock{mutex_};
        ++gone_;
        changed_.notify_all();
      }
      ::close(peer);
    }
  }

  std::vector<std::string> parts_;
  bool hangs_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string asked_;
  int gone_ = 0;
  std::thread thread_;
};

/// What became of a stream.
class outcome {
 public:
  engine_client::listener listener() {
    return {[this](completion_piece piece) {
              const std::scoped_lock lock{mutex_};
              for (const auto& token : piece.tokens) ids_.push_back(token.id);
              changed_.notify_all();
            },
            [this](error why, bool retriable) {
              const std::scoped_lock lock{mutex_};
              why_ = std::move(why);
              retriable_ = retriable;
              ++ends_;
              changed_.notify_all();
            }};
  }
  template <class Condition>
  bool wait(Condition until) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 10s, until);
  }
  void wait_for_end() {
    REQUIRE(wait([&] { return ends_ > 0; }));
  }

  std::vector<std::int32_t> ids_;
  error why_;
  bool retriable_ = false;
  int ends_ = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

std::string stream_of(std::string events) {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" +
         std::move(events);
}
std::string refusal(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " No\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}
std::string token(int id) { return "data: {\"choices\":[{\"token_ids\":[" + std::to_string(id) + "]}]}\n\n"; }

}  // namespace

TEST_CASE("a stream is heard as it comes, and its end is told") {
  scripted_server server{{stream_of(token(1)), token(2), "data: [DO", "NE]\n\n"}};
  engine_client client{server.at(), "a key"};
  outcome seen;
  client.complete(1, engine_make::vllm, "{}", seen.listener());
  seen.wait_for_end();
  CHECK(seen.ids_ == std::vector{1, 2});
  CHECK(seen.why_.code == ec::none);
  const auto asked = server.asked();
  CHECK(asked.starts_with("POST /v1/completions HTTP/1.1\r\n"));
  CHECK(asked.find("Authorization: Bearer a key\r\n") != std::string::npos);
  CHECK(asked.ends_with("\r\n\r\n{}"));
}

TEST_CASE("SGLang is asked at its own path, and its events are heard") {
  const auto event = [](const char* ids, int so_far) {
    return std::string{"data: {\"output_ids\":"} + ids +
           ",\"meta_info\":{\"completion_tokens\":" + std::to_string(so_far) + "}}\n\n";
  };
  scripted_server server{{stream_of(event("[1]", 1)), event("[1,2]", 2), "data: [DONE]\n\n"}};
  engine_client client{server.at(), ""};
  outcome seen;
  client.complete(1, engine_make::sglang, "{}", seen.listener());
  seen.wait_for_end();
  CHECK(seen.ids_ == std::vector{1, 2});
  CHECK(seen.why_.code == ec::none);
  CHECK(server.asked().starts_with("POST /generate HTTP/1.1\r\n"));
}

TEST_CASE("chunks of HTTP are taken apart") {
  const auto chunk = [](const std::string& text) {
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    return size + text + "\r\n";
  };
  scripted_server server{{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                          chunk(token(7).substr(0, 9)), chunk(token(7).substr(9) + token(8)),
                          chunk("data: [DONE]\n"), "0\r\n\r\n"}};
  engine_client client{server.at(), ""};
  outcome seen;
  client.complete(1, engine_make::vllm, "{}", seen.listener());
  seen.wait_for_end();
  CHECK(seen.ids_ == std::vector{7, 8});
  CHECK(seen.why_.code == ec::none);
}

TEST_CASE("how an engine refuses tells whether another may do better") {
  const auto end_of = [](std::vector<std::string> parts) {
    scripted_server server{std::move(parts)};
    engine_client client{server.at(), ""};
    outcome seen;
    client.complete(1, engine_make::vllm, "{}", seen.listener());
    seen.wait_for_end();
    return std::tuple{seen.why_.code, seen.retriable_, seen.why_.detail};
  };
  CHECK(end_of({refusal(400, R"({"error":{"message":"too long"}})")}) ==
        std::tuple{ec::invalid_argument, false, std::string{"the engine answers 400: too long"}});
  CHECK(end_of({refusal(503, "busy")}) ==
        std::tuple{ec::unavailable, true, std::string{"the engine answers 503: busy"}});
  CHECK(std::get<1>(end_of({refusal(401, "key")})));
  CHECK(std::get<2>(end_of({stream_of(token(1))})) == "the engine's answer broke off");
  CHECK(std::get<0>(end_of({"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + token(1)})) ==
        ec::unavailable);
  CHECK(std::get<0>(end_of({"nonsense"})) == ec::unavailable);
  CHECK(std::get<0>(end_of({stream_of("data: {\n")})) == ec::corrupt);
}

TEST_CASE("an engine that is not there is told at once") {
  host_port at;
  {
    scripted_server gone{{}};
    at = gone.at();
  }
  engine_client client{at, ""};
  outcome seen;
  client.complete(1, engine_make::vllm, "{}", seen.listener());
  seen.wait_for_end();
  CHECK(seen.why_.code == ec::peer_lost);
  CHECK(client.get("/health", 5s).error().code == ec::peer_lost);
}

TEST_CASE("a call that is hung up tells nothing more, and the engine sees it go") {
  scripted_server server{{stream_of(token(1))}, true};
  engine_client client{server.at(), ""};
  outcome seen;
  client.complete(1, engine_make::vllm, "{}", seen.listener());
  REQUIRE(seen.wait([&] { return !seen.ids_.empty(); }));
  client.hang_up(1);
  CHECK(server.hung_up(10s));
  CHECK(seen.ends_ == 0);
}

TEST_CASE("a question that is not answered in time ends") {
  scripted_server server{{}, true};
  engine_client client{server.at(), ""};
  CHECK(client.get("/health", 100ms).error().code == ec::timed_out);
}

TEST_CASE("a client goes while streams are under way, and nothing is told afterwards") {
  scripted_server server{{stream_of(token(1))}, true};
  outcome seen;
  {
    engine_client client{server.at(), ""};
    client.complete(1, engine_make::vllm, "{}", seen.listener());
    REQUIRE(seen.wait([&] { return !seen.ids_.empty(); }));
  }
  CHECK(seen.ends_ == 0);
}

TEST_CASE("the body of a question is what the engine says") {
  scripted_server server{{refusal(200, "fine")}};
  engine_client client{server.at(), ""};
  CHECK(client.get("/health", 5s) == std::string{"fine"});
  CHECK(server.asked().starts_with("GET /health HTTP/1.1\r\n"));
}
