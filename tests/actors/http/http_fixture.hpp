#pragma once
// A running HTTP server whose answers the test decides on, one request at a time.

#include <doctest/doctest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "actors/http/http_server.hpp"
#include "tests/actors/http/raw_client.hpp"

namespace mooncaf::testing {

inline constexpr auto patience = std::chrono::seconds(10);

/// Waits for what other threads bring about. @returns false after `patience`.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = clock_type::now() + patience;
  while (!condition()) {
    if (clock_type::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A flag that another thread raises, counting how often.
class signal_flag {
 public:
  void raise() {
    const std::lock_guard lock{mutex_};
    ++count_;
    changed_.notify_all();  // under the lock: the waiter may destroy this as soon as it has it
  }
  bool wait() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, patience, [this] { return count_ > 0; });
  }
  int count() const {
    const std::lock_guard lock{mutex_};
    return count_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

/// Collects requests for the test to answer.
class open_requests {
 public:
  struct one {
    http_request request;
    std::shared_ptr<http_responder> out;
  };

  http_handler handler() {
    return [this](http_request request, std::shared_ptr<http_responder> out) {
      const std::lock_guard lock{mutex_};
      waiting_.push_back({std::move(request), std::move(out)});
      arrived_.notify_all();
    };
  }

  one next() {
    std::unique_lock lock{mutex_};
    REQUIRE_MESSAGE(arrived_.wait_for(lock, patience, [this] { return !waiting_.empty(); }),
                    "no request arrived");
    auto out = std::move(waiting_.front());
    waiting_.pop_front();
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<one> waiting_;
};

/// Answers at once with what it was sent: "METHOD path query body".
inline http_handler echo_handler() {
  return [](http_request request, std::shared_ptr<http_responder> out) {
    out->respond(200, {{"Content-Type", "text/plain"}},
                 request.method + " " + request.path + " " + request.query + " " + request.body);
  };
}

inline std::unique_ptr<http_server> serve(http_handler handler, http_options options = {}) {
  auto started = http_server::start(std::move(options), std::move(handler));
  REQUIRE_MESSAGE(started.has_value(), (started ? "" : started.error().detail));
  return std::move(*started);
}

inline std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n";
}

inline std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

}  // namespace mooncaf::testing
