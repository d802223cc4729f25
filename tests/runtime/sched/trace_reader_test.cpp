#include "runtime/sched/trace_reader.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

namespace {

const std::string good =
    R"({"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]})";

std::string message(std::string_view text, trace_options options = {}) {
  options.name = "x.jsonl";
  const auto read = read_trace(text, options);
  return read ? "read " + std::to_string(read->size()) : read.error().detail;
}

}  // namespace

TEST_CASE("a trace is read as it stands") {
  const auto read = read_trace(
      good + "\n\n" + R"( {"hash_ids":[18446744073709551615] ,"input_length":1,"x":[1,{"a":"\"}"},null,-2e5],
)",
      {});
  CHECK(!read.has_value());
  const auto two = read_trace(
      good + "\r\n\n" +
          R"( {"hash_ids":[18446744073709551615] ,"input_length":1,"x":[1,{"a":"\"}"},null,-2e5],"output_length":0, "timestamp":12.75})",
      {});
  REQUIRE(two.has_value());
  REQUIRE(two->size() == 2);
  CHECK((*two)[0].timestamp_ms == 0);
  CHECK((*two)[0].input_tokens == 6758);
  CHECK((*two)[0].output_tokens == 500);
  CHECK((*two)[0].hash_ids.size() == 14);
  CHECK((*two)[0].hash_ids[13] == 13);
  CHECK((*two)[1].timestamp_ms == 12);
  CHECK((*two)[1].hash_ids[0] == ~std::uint64_t{0});
  CHECK((*two)[1].share == service_share{});
  const auto shares = read_trace(
      R"({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1], "tenant": 18446744073709551615, "share": 3})");
  REQUIRE(shares.has_value());
  CHECK(shares->front().share == service_share{~std::uint64_t{0}, 3});
}

TEST_CASE("a bad line is named with its number and the reason") {
  struct row {
    const char* text;
    const char* reason;
  };
  for (const row& r : {
           row{"[]", "not a JSON object"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1], "share": 0})",
               "share: '0' is not in [1, 1000000]"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1], "tenant": -1})",
               "tenant: '-1' is not in [0, 18446744073709551615]"},
           row{"hello", "not a JSON object"},
           row{"{", "a field's name expected at the end of the line"},
           row{"{}", "timestamp is missing"},
           row{R"({"timestamp": 0, "input_length": 5, "hash_ids": [1]})", "output_length is missing"},
           row{R"({"timestamp": 0, "output_length": 5, "hash_ids": [1]})", "input_length is missing"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 5})", "hash_ids is missing"},
           row{R"({"timestamp": -1, "input_length": 5, "output_length": 5, "hash_ids": [1]})",
               "timestamp: '-1' is out of range [0, 10^12] ms"},
           row{R"({"timestamp": 1e300, "input_length": 5, "output_length": 5, "hash_ids": [1]})",
               "timestamp: '1e300' is out of range"},
           row{R"({"timestamp": 1e999, "input_length": 5, "output_length": 5, "hash_ids": [1]})",
               "timestamp: '1e999' is no number"},
           row{R"({"timestamp": "0", "input_length": 5, "output_length": 5, "hash_ids": [1]})",
               "timestamp: a number expected at '\"0\", \"input_leng'"},
           row{R"({"timestamp": 0, "input_length": -5, "output_length": 5, "hash_ids": [1]})",
               "input_length: '-5' is not in [1, 1073741824]"},
           row{R"({"timestamp": 0, "input_length": 0, "output_length": 5, "hash_ids": []})",
               "input_length: '0' is not in [1, 1073741824]"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 99999999999, "hash_ids": [1]})",
               "output_length: '99999999999' is not in [0, 1073741824]"},
           row{R"({"timestamp": 0, "input_length": 5.5, "output_length": 1, "hash_ids": [1]})",
               "input_length: '5.5' is not in [1, 1073741824]"},
           row{R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})",
               "hash_ids has 1 entries, 513 tokens make 2 blocks of 512"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, -2]})",
               "hash_ids: '-2' is no whole number from 0 to 2^64 - 1"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, ]})",
               "hash_ids: a whole number expected at ']}'"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1 2]})",
               "hash_ids: ',' or ']' expected at '2]}'"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": 7})",
               "hash_ids: a list expected at '7}'"},
           row{R"({"timestamp": 0, "timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]})",
               "timestamp given twice"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]} x)",
               "text after the object: at 'x'"},
           row{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1])",
               "',' or '}' expected at the end of the line"},
           row{R"({"timestamp": 0 "input_length": 5})", "',' or '}' expected at '\"input_length\": '"},
           row{R"({"what": tru, "timestamp": 0})", "a value expected at ', \"timestamp\": 0'"},
       }) {
    CAPTURE(r.text);
    CHECK(message(r.text) == std::string{"x.jsonl:1: "} + r.reason);
    CHECK(message(good + "\n\n" + r.text) == std::string{"x.jsonl:3: "} + r.reason);
  }
}

TEST_CASE("compressed and unsorted traces are refused") {
  CHECK(message(std::string_view{"\x1f\x8b\x08\x00\x00", 5}) ==
        "x.jsonl:1: compressed with gzip; unpack it first");
  const std::string later = R"({"timestamp": 9, "input_length": 5, "output_length": 1, "hash_ids": [1]})";
  CHECK(message(later + "\n" + good) == "x.jsonl:2: timestamp 0 is before 9 of an earlier line");
  trace_options any_order;
  any_order.require_sorted = false;
  CHECK(message(later + "\n" + good, any_order) == "read 2");
}

TEST_CASE("deep nesting and endless lines end in an error") {
  CHECK(message(R"({"x": )" + std::string(100'000, '[')).starts_with("x.jsonl:1: a value expected"));
  CHECK(message(R"({"x": ")" + std::string(100'000, 'a')).starts_with("x.jsonl:1: a value expected"));
}

TEST_CASE("pieces of any size give the same records") {
  std::string text;
  for (int i = 0; i < 50; ++i) text += good + (i % 3 == 0 ? "\r\n" : "\n");
  text += good;  // no line end
  std::mt19937_64 random{7};
  for (int round = 0; round < 20; ++round) {
    std::size_t records = 0;
    trace_reader reader{{}, [&](trace_record&& r) {
                          CHECK(r.hash_ids.size() == 14);
                          ++records;
                        }};
    for (std::size_t at = 0; at < text.size();) {
      const auto n = 1 + random() % 300;
      REQUIRE(reader.feed(std::string_view{text}.substr(at, n)).has_value());
      at += n;
    }
    CHECK(reader.finish() == 51);
    CHECK(records == 51);
  }
}

TEST_CASE("mutated lines are read or refused, never worse") {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937_64 random{seed};
    auto text = good;
    for (auto n = 1 + random() % 4; n > 0; --n) {
      const auto at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, 1, "{}[]\",:-e0 \\"[random() % 12]);
      }
      if (text.empty()) text = "{";
    }
    CAPTURE(seed);
    const auto said = message(text);
    CHECK((said.starts_with("read ") || said.starts_with("x.jsonl:")));
  }
}
