// News over ZeroMQ, from a publisher as vLLM has one: numbers, gaps, replays and new beginnings.

#include "actors/engines/kv_listener.hpp"

#include <doctest/doctest.h>
#include <zmq.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

/// A message that says that block `number` is held.
std::string payload(std::uint64_t number) {
  const json event{{"type", "BlockStored"},
                   {"block_hashes", {number}},
                   {"parent_block_hash", nullptr},
                   {"token_ids", {number % 1000}},
                   {"block_size", 1}};
  const auto bytes = json::to_msgpack(json::array({1.0, json::array({event}), 0}));
  return {bytes.begin(), bytes.end()};
}

std::array<unsigned char, 8> number_bytes(std::uint64_t number) {
  std::array<unsigned char, 8> out{};
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<unsigned char>(number >> (8 * (7 - i)));
  return out;
}

/// Publishes, and replays what it is told to remember.
class publisher {
 public:
  explicit publisher(const std::string& folder)
      : news_("ipc://" + folder + "/news"), replay_("ipc://" + folder + "/replay") {
    socket_ = zmq_socket(context_, ZMQ_PUB);
    REQUIRE(zmq_bind(socket_, news_.c_str()) == 0);
    router_ = zmq_socket(context_, ZMQ_ROUTER);
    REQUIRE(zmq_bind(router_, replay_.c_str()) == 0);
    thread_ = std::thread{[this] { answer(); }};
  }
  ~publisher() {
    over_ = true;
    thread_.join();
    zmq_close(socket_);
    zmq_close(router_);
    zmq_ctx_term(context_);
  }

  void publish(std::uint64_t number, const std::string& what) {
    const auto bytes = number_bytes(number);
    zmq_send(socket_, "kv", 2, ZMQ_SNDMORE);
    zmq_send(socket_, bytes.data(), bytes.size(), ZMQ_SNDMORE);
    zmq_send(socket_, what.data(), what.size(), 0);
  }
  void publish(std::uint64_t number) { publish(number, payload(number)); }
  void remember(std::uint64_t first, std::uint64_t last) {
    const std::scoped_lock lock{mutex_};
    first_ = first, last_ = last;
  }
  kv_endpoints at(bool replays) const { return {news_, replays ? replay_ : ""}; }

 private:
  void answer() {
    while (!over_) {
      zmq_pollitem_t item{router_, 0, ZMQ_POLLIN, 0};
      if (zmq_poll(&item, 1, 20) <= 0) continue;
      std::array<char, 64> who{};
      const auto size = zmq_recv(router_, who.data(), who.size(), 0);
      std::array<unsigned char, 8> from{};
      zmq_recv(router_, nullptr, 0, 0);
      zmq_recv(router_, from.data(), from.size(), 0);
      std::uint64_t begin = 0;
      for (const auto byte : from) begin = begin << 8 | byte;
      const std::scoped_lock lock{mutex_};
      const auto send = [&](std::uint64_t number, const std::string& what) {
        const auto bytes = number_bytes(number);
        zmq_send(router_, who.data(), static_cast<std::size_t>(size), ZMQ_SNDMORE);
        zmq_send(router_, "", 0, ZMQ_SNDMORE);
        zmq_send(router_, "kv", 2, ZMQ_SNDMORE);
        zmq_send(router_, bytes.data(), bytes.size(), ZMQ_SNDMORE);
        zmq_send(router_, what.data(), what.size(), 0);
      };
      for (auto n = std::max(begin, first_); n <= last_ && last_ != 0; ++n) send(n, payload(n));
      send(UINT64_MAX, "");
    }
  }

  void* context_ = zmq_ctx_new();
  void* socket_ = nullptr;
  void* router_ = nullptr;
  std::string news_, replay_;
  std::mutex mutex_;
  std::uint64_t first_ = 0, last_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// What was told: the numbers of blocks, and -1 where all before is void.
class told {
 public:
  std::function<void(engine_news)> listener() {
    return [this](const engine_news& news) {
      const std::scoped_lock lock{mutex_};
      if (news.anew) all_.push_back(-1);
      for (const auto& event : news.events) all_.push_back(static_cast<std::int64_t>(event.blocks.at(0).low));
      changed_.notify_all();
    };
  }
  /// What has come once `last` did.
  std::vector<std::int64_t> up_to(std::int64_t last) {
    std::unique_lock lock{mutex_};
    CHECK(changed_.wait_for(lock, 10s, [&] { return !all_.empty() && all_.back() == last; }));
    return all_;
  }
  /// Whether something has come, now or within a moment.
  bool any() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 20ms, [&] { return !all_.empty(); });
  }
  void clear() {
    const std::scoped_lock lock{mutex_};
    all_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> all_;
};

/// Publishes from `number` on until the first is heard: a subscription takes a moment to arrive. @returns the last number.
std::uint64_t until_heard(publisher& engine, told& seen, std::uint64_t number) {
  do engine.publish(number++);
  while (!seen.any());
  seen.up_to(static_cast<std::int64_t>(number - 1));
  return number - 1;
}

using numbers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("news come in order; without replays a gap voids what was known") {
  const test::temp_dir folder;
  publisher engine{folder.path()};
  told seen;
  const auto listener = kv_listener::start(engine.at(false), seen.listener());
  REQUIRE(listener);
  const auto last = static_cast<std::int64_t>(until_heard(engine, seen, 100));
  seen.clear();
  engine.publish(last + 1);
  engine.publish(last + 2);
  engine.publish(last + 5);
  CHECK(seen.up_to(last + 5) == numbers{last + 1, last + 2, -1, last + 5});
  seen.clear();
  engine.publish(0);  // it began anew
  engine.publish(1);
  CHECK(seen.up_to(1) == numbers{-1, 0, 1});
}

TEST_CASE("with replays nothing is lost, and nothing is heard twice") {
  const test::temp_dir folder;
  publisher engine{folder.path()};
  engine.remember(3, 5);  // what it published before anybody listened; its first words are forgotten
  told seen;
  const auto listener = kv_listener::start(engine.at(true), seen.listener());
  REQUIRE(listener);
  CHECK(seen.up_to(5) == numbers{-1, 3, 4, 5});
  seen.clear();
  const auto last = static_cast<std::int64_t>(until_heard(engine, seen, 6));
  seen.clear();
  engine.remember(3, static_cast<std::uint64_t>(last) + 4);
  for (const auto ahead : {3, 4, 5}) engine.publish(last + ahead);
  CHECK(seen.up_to(last + 5) == numbers{last + 1, last + 2, last + 3, last + 4, last + 5});
}

TEST_CASE("a message that is none voids what was known, and the next one counts") {
  const test::temp_dir folder;
  publisher engine{folder.path()};
  told seen;
  const auto listener = kv_listener::start(engine.at(false), seen.listener());
  REQUIRE(listener);
  const auto last = static_cast<std::int64_t>(until_heard(engine, seen, 100));
  seen.clear();
  engine.publish(last + 1, "nonsense");
  engine.publish(last + 2);
  CHECK(seen.up_to(last + 2) == numbers{-1, last + 2});
}

TEST_CASE("an address that is none is refused with its option") {
  const auto refused = kv_listener::start({"nowhere", ""}, [](const engine_news&) {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().detail.starts_with("engine-events: 'nowhere'"));
  const test::temp_dir folder;
  const auto half =
      kv_listener::start({"ipc://" + folder.path() + "/x", "tcp://"}, [](const engine_news&) {});
  REQUIRE_FALSE(half);
  CHECK(half.error().detail.starts_with("engine-replay: 'tcp://'"));
}
