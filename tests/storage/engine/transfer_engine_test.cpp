#include "storage/engine/transfer_engine.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "transport/net/socket.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

const std::string secret = "a secret of these tests alone";

std::unique_ptr<transfer_engine> start(const std::string& key = secret) {
  transfer_engine_options options;
  options.secret = key;
  options.arena_bytes = 4 * MiB;
  auto made = transfer_engine::start(std::move(options));
  REQUIRE_MESSAGE(made.has_value(), (made ? "" : to_string(made.error())));
  return std::move(*made);
}

std::string name_of(const transfer_engine& e) { return "127.0.0.1:" + std::to_string(e.port()); }

std::uint64_t at(std::vector<std::uint8_t>& memory, std::size_t offset = 0) {
  return reinterpret_cast<std::uint64_t>(memory.data() + offset);
}

std::vector<std::uint8_t> numbers(std::size_t n, unsigned first) {
  std::vector<std::uint8_t> all(n);
  std::iota(all.begin(), all.end(), static_cast<std::uint8_t>(first));
  return all;
}

}  // namespace

TEST_CASE("bytes go to and come from a peer's address, whoever offers the memory here") {
  auto theirs = numbers(300'000, 0), mine = numbers(300'000, 7);  // stay for as long as they are offered
  const auto one = start(), two = start();
  REQUIRE(two->offer(at(theirs), theirs.size()));
  SUBCASE("memory that is offered") { REQUIRE(one->offer(at(mine), mine.size())); }
  SUBCASE("memory that is not") {}
  const std::vector<engine_piece> there{{at(mine), at(theirs, 1000), 200'000},
                                        {at(mine, 250'000), at(theirs), 500}};
  REQUIRE(one->move(transfer_op::write, name_of(*two), there, 30s));
  CHECK(std::equal(theirs.begin() + 1000, theirs.begin() + 201'000, mine.begin()));
  CHECK(std::equal(theirs.begin(), theirs.begin() + 500, mine.begin() + 250'000));
  std::vector<std::uint8_t> back(1000);
  const auto number = one->begin(transfer_op::read, name_of(*two), {{at(back), at(theirs, 5000), 1000}}, 30s);
  REQUIRE(number);
  CHECK(one->ended(*number, true) == transfer_engine::state::done);
  CHECK(one->ended(*number, true) == transfer_engine::state::unknown);
  CHECK(std::equal(back.begin(), back.end(), theirs.begin() + 5000));
}

TEST_CASE("what a peer did not offer, or has taken back, is touched by nobody") {
  const auto one = start(), two = start();
  auto theirs = numbers(4096, 0), mine = numbers(4096, 7);
  const auto write = [&](std::uint64_t remote) {
    return one->move(transfer_op::write, name_of(*two), {{at(mine), remote, 100}}, 30s);
  };
  CHECK(write(at(theirs)).error() == ec::not_found);
  REQUIRE(two->offer(at(theirs), 2048));
  CHECK(two->offer(at(theirs, 2000), 100).error() == ec::already_exists);
  CHECK(write(at(theirs)));  // it is asked again
  CHECK(write(at(theirs, 2000)).error() == ec::not_found);
  REQUIRE(two->take_back(at(theirs)));
  CHECK(two->take_back(at(theirs)).error() == ec::not_found);
  CHECK_FALSE(write(at(theirs)));
  CHECK(std::equal(theirs.begin() + 100, theirs.end(), numbers(4096, 0).begin() + 100));
}

TEST_CASE("managed buffers are alone in their place, and are used again") {
  const auto one = start();
  const auto a = one->allocate(1 * MiB), b = one->allocate(1 * MiB), large = one->allocate(16 * MiB);
  REQUIRE((a && b && large));
  CHECK((*a + 1 * MiB <= *b || *b + 1 * MiB <= *a));
  REQUIRE(one->release(*a));
  CHECK(one->release(*a).error() == ec::not_found);
  CHECK(one->allocate(1 * MiB).value() == *a);
}

TEST_CASE("words arrive in order, strangers and nonsense are shown out") {
  const auto one = start(), two = start(), stranger = start("another secret than theirs");
  for (int i = 0; i < 5; ++i) REQUIRE(one->notify(name_of(*two), {"n", std::to_string(i)}));
  const auto words = two->take_words();
  REQUIRE(words.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(words[i].text == std::to_string(i));
  CHECK(stranger->probe(name_of(*two)).error() == ec::unauthenticated);
  CHECK(stranger->notify(name_of(*two), {"n", "m"}).error() == ec::unauthenticated);
  CHECK(one->probe("nonsense").error() == ec::invalid_argument);
  const auto raw = connect_tcp(*resolve_tcp("127.0.0.1", two->port()));
  REQUIRE(raw);
  const std::string nonsense(1000, 'x');
  ::send(raw->get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  CHECK(one->probe(name_of(*two)));
  CHECK(two->take_words().empty());
}

TEST_CASE("many threads move bytes at once, and their peer goes in the middle of it") {
  auto theirs = numbers(64 * 1024, 0);
  const auto one = start();
  auto two = start();
  REQUIRE(two->offer(at(theirs), theirs.size()));
  const auto target = name_of(*two);
  std::atomic<int> done{0}, failed{0};
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < 4; ++i)
    workers.emplace_back([&, i] {
      auto mine = numbers(8192, i);
      for (int n = 0; failed == 0 && n < 100'000; ++n) {
        if (one->move(transfer_op::write, target, {{at(mine), at(theirs, i * 8192), 8192}}, 5s)) ++done;
        else ++failed;
      }
    });
  while (done < 50) std::this_thread::yield();
  two.reset();
  for (auto& w : workers) w.join();
  CHECK(failed > 0);
  for (unsigned i = 0; i < 4; ++i) CHECK(theirs[i * 8192] == i);
}
