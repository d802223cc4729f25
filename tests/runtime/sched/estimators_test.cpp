#include "runtime/sched/estimators.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "runtime/sched/transfer_board.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// F25's own form for LLaMA3-70B on 8 x 312 TFLOP/s: layers·(4·n²·d + 22·n·d²), plus a constant.
double seconds_70b(double n, double p) {
  const double d = 8192, flops = 80 * (4 * ((n + p) * (n + p) - p * p) * d / 2 + 22 * n * d * d);
  return 0.02 + flops / (8 * 312e12 * 0.5);
}

std::vector<timing_point> calibration(double (*seconds)(double, double), double noise = 0,
                                      std::uint64_t seed = 1) {
  std::mt19937_64 random{seed};
  std::normal_distribution<double> spread{1, noise};
  std::vector<timing_point> points;
  for (const double n : {256, 1024, 4096, 16384}) {
    for (const double p : {0.0, 8192.0, 65536.0})
      points.push_back({n, p, seconds(n, p) * (noise > 0 ? spread(random) : 1)});
  }
  return points;
}

double error_of(const prefill_model& model, double n, double p, double expected) {
  return std::abs(to_seconds(model.estimate(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(p))) /
                      expected -
                  1);
}

}  // namespace

TEST_CASE("a prefill model finds the form that made its samples, and holds beyond them") {
  const prefill_model model{calibration(seconds_70b)};
  for (const double n : {64, 512, 32768, 131072}) {
    for (const double p : {0.0, 1024.0, 120000.0}) {
      CAPTURE(n);
      CAPTURE(p);
      CHECK(error_of(model, n, p, seconds_70b(n, p)) < 1e-3);
    }
  }
}

TEST_CASE("noisy samples still give no negative time") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const prefill_model model{calibration(seconds_70b, 0.3, seed)};
    duration before{};
    for (std::uint64_t n = 1; n < 1'000'000; n *= 3) {
      const auto t = model.estimate(n, 0);
      CHECK(t >= before);  // more work never takes less time
      CHECK(model.estimate(n, 1000) >= t);
      before = t;
    }
  }
}

TEST_CASE("samples that cannot be are left out") {
  auto points = calibration(seconds_70b);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  points.push_back({100, 0, nan});
  points.push_back({nan, 0, 1});
  points.push_back({100, 0, -5});
  points.push_back({100, 0, 0});
  points.push_back({100, 0, std::numeric_limits<double>::infinity()});
  CHECK(error_of(prefill_model{points}, 2048, 0, seconds_70b(2048, 0)) < 1e-3);
  CHECK(prefill_model{}.estimate(1000, 0) == prefill_model{std::span{points}.last(5)}.estimate(1000, 0));
}

TEST_CASE("estimates stay in range for any input") {
  const prefill_model model{calibration(seconds_70b)};
  const auto most = std::numeric_limits<std::uint64_t>::max();
  CHECK(model.estimate(most, most) == 100'000s);
  CHECK(decode_model{}.estimate(most, most) == 100'000s);
  CHECK(bounded_duration(-1) == 0s);
  CHECK(bounded_duration(std::numeric_limits<double>::quiet_NaN()) == 100'000s);
}

TEST_CASE("what is measured moves a model, slowly and within bounds") {
  prefill_model model{calibration(seconds_70b)};
  const auto calibrated = model.estimate(4096, 0);
  model.observe(4096, 0, 100 * calibrated);
  CHECK(to_seconds(model.estimate(4096, 0)) < 1.2 * to_seconds(calibrated));
  for (int i = 0; i < 200; ++i) model.observe(4096, 0, 2 * calibrated);
  CHECK(to_seconds(model.estimate(4096, 0)) == doctest::Approx(2 * to_seconds(calibrated)).epsilon(0.02));
  for (int i = 0; i < 1000; ++i) model.observe(4096, 0, 1000 * calibrated);
  CHECK(to_seconds(model.estimate(4096, 0)) <= 100.1 * to_seconds(calibrated));
  for (int i = 0; i < 1000; ++i) model.observe(4096, 0, 0s);
  CHECK(to_seconds(model.estimate(4096, 0)) <= 100.1 * to_seconds(calibrated));
}

TEST_CASE("a decode model splits a step into constant, batch and context") {
  std::vector<timing_point> points;
  for (const double batch : {1, 4, 16, 64}) {
    for (const double context : {512, 8192}) {
      points.push_back({batch, batch * context, 0.025 + 1e-4 * batch + 2e-8 * batch * context});
    }
  }
  const decode_model model{points};
  CHECK(to_seconds(model.estimate(32, 32 * 4096)) ==
        doctest::Approx(0.025 + 0.0032 + 2e-8 * 32 * 4096).epsilon(1e-3));
  CHECK(model.agrees_with(model));
  CHECK(!model.agrees_with(decode_model{}));
}

TEST_CASE("calibrations of the same device agree, of another do not") {
  const prefill_model model{calibration(seconds_70b)};
  CHECK(model.agrees_with(prefill_model{calibration(seconds_70b, 0.01, 3)}));
  CHECK(!model.agrees_with(
      prefill_model{calibration([](double n, double p) { return 2 * seconds_70b(n, p); })}));
}

TEST_CASE("a sender's promises delay what comes after them and pass by themselves") {
  transfer_board board{{1e9, 1ms, 1e9}};
  const time_point now{100s};
  CHECK(board.wait(3, now) == 0s);
  board.charge(3, 4, 2'000'000'000, now);
  CHECK(board.wait(3, now) == 2s);
  CHECK(board.wait(4, now) == 0s);
  board.charge(3, 5, 1'000'000'000, now + 500ms);
  CHECK(board.wait(3, now + 1s) == 2s);
  CHECK(board.wait(3, now + 10s) == 0s);
  CHECK(board.sent_by(3).estimate(1'000'000'000, board.wait(3, now)) == 3s + 1ms + 1s);
  board.forget(3);
  CHECK(board.wait(3, now) == 0s);
}

TEST_CASE("a hand-over waits for what both ends of its link promised before, and only for that") {
  transfer_board board{{1e9, 1ms, 1e9}};
  const time_point now{100s};
  // 1 GB beside a second of computing; 3 GB of which two were there before.
  const hand_over computed{1, 9, now + 5s, now + 6s, 0, 1'000'000'000};
  const hand_over mostly_reused{2, 9, now + 5s, now + 6s, 2'000'000'000, 1'000'000'000};
  CHECK(board.wait(computed) == 0s);
  CHECK(board.wait(mostly_reused) == 2s);
  board.promise(mostly_reused, now);
  CHECK(to_seconds(board.wait(computed)) == doctest::Approx(2.25).epsilon(0.01));
  // Another receiver is free, and this one is by then; another sender's prompt goes first.
  CHECK(board.wait(hand_over{1, 8, now + 5s, now + 6s, 0, 1'000'000'000}) == 0s);
  CHECK(board.wait(hand_over{1, 9, now + 9s, now + 10s, 0, 1'000'000'000}) == 0s);
  CHECK(board.wait(hand_over{1, 9, now + 1s, now + 2s, 0, 1'000'000'000}) == 0s);
  CHECK(to_seconds(board.wait(hand_over{2, 8, now + 5s, now + 6s, 0, 1'000'000'000})) ==
        doctest::Approx(2.25).epsilon(0.01));
  // A fetch from that sender waits for it, too, as soon as it is sent.
  CHECK(board.wait(2, now) == 0s);
  CHECK(to_seconds(board.wait(2, now + 5s)) == doctest::Approx(2.25).epsilon(0.01));
  board.withdraw(mostly_reused, now);
  CHECK(board.wait(computed) == 0s);
  // What is not withdrawn passes by itself.
  board.promise(mostly_reused, now);
  board.charge(2, 9, 1, now + 60s);
  CHECK(board.wait(2, now + 61s) == 0s);
}

TEST_CASE(
    "a prompt that is done before its time has sent what was due, and only the rest is on its way then") {
  transfer_board board{{1e9, 1ms, 1e9}};
  const time_point now{100s};
  // 2 GB that are there and 2 GB that two seconds of computing make; the first token comes half a second
  // early.
  hand_over early{1, 9, now, now + 2s, 2'000'000'000, 2'000'000'000};
  board.promise(early, now);
  board.hasten(early, now + 1500ms);
  // 2.25 GB were due at once, 1.5 GB in the second and a half since: 3.75 of 4 GB, of which the link
  // moved 1.5.
  CHECK(to_seconds(board.wait(1, now + 1500ms)) == doctest::Approx(2.5).epsilon(0.02));
  CHECK(early.end == now + 1500ms);
  board.hasten(early, now + 1700ms);
  CHECK(to_seconds(board.wait(1, now + 1700ms)) == doctest::Approx(2.3).epsilon(0.02));
}

TEST_CASE("who hands nothing over waits for nobody's link") {
  transfer_board board{{1e9, 1ms, 1e9}};
  CHECK(board.wait(hand_over{}) == 0s);
  board.charge(0, 1, 2'000'000'000, time_point{100s});
  CHECK(board.wait(hand_over{}) == 0s);
}

TEST_CASE("links and disks cost what was measured, at first what was assumed") {
  transfer_board board{{1e9, 1ms, 1e8}};
  CHECK(board.link(1, 2).bytes_per_s == 1e9);
  board.link_measured(1, 2, 2e9, 3ms);
  board.link_measured(1, 2, 0, 3ms);
  CHECK(board.link(2, 1).bytes_per_s == 2e9);
  CHECK(board.link(1, 2).latency == 3ms);
  CHECK(board.link(1, 9).bytes_per_s == 2e9);  // as its other links
  CHECK(board.link(9, 1).bytes_per_s == 1e9);
  for (node_index peer = 10; peer < 100; ++peer) board.link_measured(1, peer, 4e9, 1ms);
  CHECK(board.measured_with(1).size() == transfer_board::most_pairs);
  CHECK(board.link(1, 99).bytes_per_s == 4e9);
  CHECK(board.link(1, 2).bytes_per_s == doctest::Approx(4e9).epsilon(0.01));  // too long ago
  board.disk_measured(2, 5e8);
  CHECK(board.read(2, 500'000'000) == 1s);
  CHECK(board.read(1, 500'000'000) == 5s);
  CHECK(board.link(2, 1).ssd_bytes_per_s == 5e8);
  board.forget(2);
  CHECK(board.link(2, 1).bytes_per_s == 1e9);
  CHECK(board.read(2, 500'000'000) == 5s);
}
