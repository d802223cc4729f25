#include "runtime/model/stop_matcher.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

namespace {

struct outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const outcome&) const = default;
};

outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  stop_matcher m(stops);
  outcome o;
  for (const auto& p : pieces) o.text += m.feed(p);
  if (!m.stopped()) o.text += m.finish();
  o.stopped = m.stopped();
  return o;
}

/// The definition, spelled out: the stop that ends first, of those the one that began first.
outcome reference(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end)
    for (std::size_t begin = 0; begin < end; ++begin)
      for (const auto& s : stops)
        if (!s.empty() && text.substr(begin, end - begin) == s) return {text.substr(0, begin), true};
  return {text, false};
}

}  // namespace

TEST_CASE("text without a stop string comes through unchanged and at once") {
  stop_matcher m;
  CHECK(m.feed("hello ") == "hello ");
  CHECK(m.feed("world") == "world");
  CHECK(m.finish().empty());
  CHECK_FALSE(m.stopped());
}

TEST_CASE("only what may still become a stop string waits") {
  const std::vector<std::string> stops{"\n\nUser:"};
  stop_matcher m(stops);
  CHECK(m.feed("Hi\n") == "Hi");
  CHECK(m.feed("there") == "\nthere");
  CHECK(m.feed("\n\nUs").empty());
  CHECK(m.feed("e").empty());
  CHECK(m.feed("d") == "\n\nUsed");
  CHECK(m.feed("\n\n\nUser:x") == "\n");
  CHECK(m.stopped());
  CHECK(m.feed("more").empty());
}

TEST_CASE("a stop string over piece borders ends the text just before itself") {
  CHECK(run({"STOP"}, {"ab", "S", "T", "OP", "cd"}) == outcome{"ab", true});
  CHECK(run({"aab"}, {"a", "a", "a", "b"}) == outcome{"a", true});
  CHECK(run({"abcd", "bc"}, {"xa", "b", "cd"}) == outcome{"xa", true});
  CHECK(run({"bc", "abc"}, {"xabc"}) == outcome{"x", true});
  CHECK(run({""}, {"abc"}) == outcome{"abc", false});
}

TEST_CASE("a stop string that is kept is the last that comes out") {
  const std::vector<std::string> stops{"STOP", "never"};
  stop_matcher m(stops, true);
  CHECK(m.feed("abST") == "ab");
  CHECK(m.feed("OPcd") == "STOP");
  CHECK(m.stopped());
  CHECK(m.feed("more").empty());
}

TEST_CASE("what is held back comes out when the request ends otherwise") {
  CHECK(run({"STOP"}, {"abST"}) == outcome{"abST", false});
}

TEST_CASE("pieces go out in whole UTF-8 characters") {
  stop_matcher m;
  CHECK(m.feed("\xF0\x9F").empty());
  CHECK(m.feed("\x98\x80!") == "\xF0\x9F\x98\x80!");
  const std::vector<std::string> stops{"\xC3\xA9t\xC3\xA9"};
  stop_matcher french(stops);
  CHECK(french.feed("un \xC3") == "un ");
  CHECK(french.feed("\xA9").empty());
  CHECK(french.feed("tat") == "\xC3\xA9tat");
  CHECK(french.feed("\xC3\xA9t\xC3\xA9").empty());
  CHECK(french.stopped());
}

TEST_CASE("text below the minimum length takes no part in a stop string") {
  const std::vector<std::string> stops{"ab"};
  stop_matcher m(stops);
  CHECK(m.feed("xaba", false) == "xaba");
  CHECK(m.feed("b") == "b");
  CHECK(m.feed("ab").empty());
  CHECK(m.stopped());
}

TEST_CASE("the cut into pieces never changes the outcome") {
  const std::uint32_t seed = 77;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto word = [&](std::size_t longest) {
    std::string s;
    for (auto n = random() % (longest + 1); n > 0; --n) s += static_cast<char>('a' + random() % 3);
    return s;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (auto n = random() % 4; n > 0; --n) stops.push_back(word(5));
    const auto text = word(40);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const auto n = std::min<std::size_t>(random() % 6, text.size() - at);
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    CAPTURE(round);
    CAPTURE(text);
    CHECK(run(stops, pieces) == reference(stops, text));
  }
}
