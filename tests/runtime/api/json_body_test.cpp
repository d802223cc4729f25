// What a body may cost: bounded in depth and number, linear in its bytes, and unknown fields cost no memory.

#include "runtime/api/json_body.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <ctime>

#include "runtime/api/openai.hpp"

using namespace mooncaf;

namespace {

std::string many(const std::string& one, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i ? "," : "") + one;
  return out;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string body_complaint(const std::string& body) {
  const auto parsed = parse_body(body, body_endpoint::completions);
  return parsed ? "" : parsed.error().detail;
}

}  // namespace

TEST_CASE("no shape of body takes more than linear time") {
  // Each took minutes when ends of objects looked at all their siblings; now milliseconds. The bound leaves
  // room for sanitizers and a loaded machine.
  constexpr int count = 200000;
  std::string keys;
  for (int i = 0; i < count; ++i) keys += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":{}";
  const std::string prompt = R"({"prompt":"p",)";
  for (const auto& body :
       {prompt + "\"x\":[" + many("{}", count) + "]}", prompt + "\"x\":{" + keys + "}}",
        prompt + "\"logit_bias\":[" + many("{}", count) + "]}", prompt + "\"logit_bias\":{" + keys + "}}",
        prompt + keys + "}", prompt + "\"stop\":[" + many("[{}]", count) + "]}"}) {
    const double began = cpu_seconds();
    parse_completion(body);
    CHECK_MESSAGE(cpu_seconds() - began < 10, body.substr(0, 60));
  }
  const double began = cpu_seconds();
  const auto chat = parse_chat("{\"messages\":[" + many(R"({"role":"user","content":""})", count) + "]}");
  REQUIRE(chat.has_value());
  CHECK(chat->messages.size() == count);
  CHECK(cpu_seconds() - began < 10);
}

TEST_CASE("depth and number of values are bounded, also where nobody reads them") {
  for (const std::string field : {"stop", "x"}) {
    std::string opened, closed;
    for (int i = 0; i < 62; ++i) (opened += "["), (closed += "]");
    CHECK(body_complaint("{\"" + field + "\":" + opened + "[1]" + closed + "}").empty());
    CHECK(body_complaint("{\"" + field + "\":" + opened + "[[1]]" + closed + "}") ==
          "body: nested too deeply");
    CHECK(body_complaint("{\"" + field + "\":[" + many("1", 999'999) + "]}").empty());
    CHECK(body_complaint("{\"" + field + "\":[" + many("1", 1'000'000) + "]}") ==
          "body: holds more than 1000000 values");
    CHECK(body_complaint("{\"" + field + "\":[" + many("{}", 1'000'000) + "]}") ==
          "body: holds more than 1000000 values");
  }
}

TEST_CASE("fields that the table knows are kept as they are, others are not, and of two the last counts") {
  const auto parsed =
      parse_body(R"({"x":{"prompt":"no"},"prompt":["a",{"b":[1,{"c":null}]}],"y":[{}],"stop":1,
      "z":{"deep":{"er":[]}},"stop":{"k":[true,1.5,-2,"s"]},"echo":false,"last":[[]]})",
                 body_endpoint::completions);
  REQUIRE(parsed.has_value());
  CHECK(*parsed ==
        body_json::parse(
            R"({"prompt":["a",{"b":[1,{"c":null}]}],"stop":{"k":[true,1.5,-2,"s"]},"echo":false})"));
}
