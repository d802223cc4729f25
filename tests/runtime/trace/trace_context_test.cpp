#include "runtime/trace/trace_context.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace mooncaf;

TEST_CASE("the header of W3C's specification is read, and its flag") {
  const auto kept = parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  REQUIRE(kept);
  CHECK(to_string(kept->trace) == "4bf92f3577b34da6a3ce929d0e0e4736");
  CHECK(hex_of(kept->span) == "00f067aa0ba902b7");
  CHECK(kept->sampled);
  CHECK(!parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")->sampled);
  // Flags to come do not matter, nor does what a later version has behind them.
  CHECK(!parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe")->sampled);
  CHECK(parse_traceparent("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more")->sampled);
  CHECK(parse_traceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")->sampled);
}

TEST_CASE("what the specification calls invalid begins a trace of its own") {
  for (const std::string_view wrong : {
           "",
           "00",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
           "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
           "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
           "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
       }) {
    CAPTURE(wrong);
    CHECK(!parse_traceparent(wrong));
  }
}

TEST_CASE("a header with any bytes changed is read as it stands, or refused") {
  const std::string good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  std::mt19937 random{1};
  for (int round = 0; round < 20'000; ++round) {
    auto text = good;
    for (auto changes = random() % 3 + 1; changes > 0; --changes)
      text[random() % text.size()] = "0123456789abcdef-gA\0"[random() % 20];
    text.resize(random() % 8 == 0 ? random() % text.size() : text.size());
    const auto read = parse_traceparent(text);
    if (!read) continue;
    CHECK(text.substr(3, 32) == to_string(read->trace));
    CHECK(text.substr(36, 16) == hex_of(read->span));
  }
}
