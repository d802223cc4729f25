// What the encryption of a link costs: the same traffic over a link without a secret and one with, in turns.
//   build/tests/actors/cluster/mooncaf_link_bench [rounds]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using pair = two_systems<caf::id_block::cluster_tests>;

namespace {

constexpr int pings = 3000;
constexpr int messages = 30'000;
constexpr int blobs = 200;

struct figures {
  std::vector<double> round_trip_us;
  std::vector<double> messages_per_s;
  std::vector<double> mib_per_s;
};

using ping_actor = caf::typed_actor<MOONCAF_RPC(std::string, count_atom, echo_actor)>;

/// Sends one ping after the other from inside an actor, as actors do; answers when the last is back.
class pinger final : public ping_actor::base {
 public:
  pinger(caf::actor_config& config, std::vector<double>* out) : ping_actor::base(config), out_(out) {}
  behavior_type make_behavior() override {
    return {[this](count_atom, const echo_actor& to) -> caf::result<std::string> {
      done_ = make_response_promise<std::string>();
      next(to, pings);
      return done_;
    }};
  }

 private:
  void next(const echo_actor& to, int left) {
    if (left == 0) {
      done_.deliver(std::string{});
      return;
    }
    const auto begin = clock_type::now();
    request(to, std::chrono::seconds(10), echo_atom_v, std::string(64, 'x'))
        .then([this, to, left, begin](const std::string&) {
          out_->push_back(to_seconds(clock_type::now() - begin) * 1e6);
          next(to, left - 1);
        });
  }

  std::vector<double>* out_;
  caf::typed_response_promise<std::string> done_;
};

double flood(linked_system<caf::id_block::cluster_tests>& from, const echo_actor& to, int count,
             std::size_t bytes) {
  const std::string payload(bytes, 'x');
  const auto begin = clock_type::now();
  for (int i = 1; i < count; ++i) from.self->send(to, count_atom_v, payload);
  from.ask<std::uint64_t>(to, count_atom_v, payload).value();
  return count / to_seconds(clock_type::now() - begin);
}

void measure(bool encrypted, figures& into) {
  pair systems{encrypted ? key_ring{"the secret of this cluster"} : key_ring{}};
  auto far = systems.reach(systems.a.keep(echo_actor{systems.a.sys.spawn<echo>()})).value();
  auto ping = systems.b.keep(ping_actor{systems.b.sys.spawn<pinger>(&into.round_trip_us)});
  systems.b.ask<std::string>(ping, count_atom_v, far).value();
  into.messages_per_s.push_back(flood(systems.b, far, messages, 64));
  into.mib_per_s.push_back(flood(systems.b, far, blobs, MiB));
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  figures of[2];
  for (int i = 0; i < rounds; ++i) {
    for (const bool encrypted : {false, true}) measure(encrypted, of[encrypted ? 1 : 0]);
  }
  std::printf("%-10s %14s %14s %18s %18s\n", "link", "64 B rt p50", "p99", "64 B one-way", "1 MiB one-way");
  for (const bool encrypted : {false, true}) {
    const auto& f = of[encrypted ? 1 : 0];
    std::printf("%-10s %11.0f us %11.0f us %14.0f /s %12.0f MiB/s\n", encrypted ? "encrypted" : "plain",
                quantile(f.round_trip_us, 0.5), quantile(f.round_trip_us, 0.99),
                quantile(f.messages_per_s, 0.5), quantile(f.mib_per_s, 0.5));
  }
  const auto ratio = [&](auto pick) { return pick(of[1]) / pick(of[0]); };
  std::printf("%-10s %14.2f %14.2f %18.2f %18.2f\n", "ratio",
              ratio([](const figures& f) { return quantile(f.round_trip_us, 0.5); }),
              ratio([](const figures& f) { return quantile(f.round_trip_us, 0.99); }),
              ratio([](const figures& f) { return quantile(f.messages_per_s, 0.5); }),
              ratio([](const figures& f) { return quantile(f.mib_per_s, 0.5); }));
}
