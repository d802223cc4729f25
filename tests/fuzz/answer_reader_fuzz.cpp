// Models write anything: whatever an answer's text, reasoning and calls are taken out of it without a crash,
// in linear time, the same however the text was cut into pieces; and without a call or a mark nothing is
// lost. The first byte picks the form, the second how the text is cut.

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/reasoning/reasoning_reader.hpp"
#include "runtime/tools/tool_call_reader.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

struct whole {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const whole&) const = default;
};

/// As an answer is read: reasoning first, what is left may hold calls.
whole read(std::string_view text, std::uint8_t form, std::size_t piece) {
  reasoning_reader thought{static_cast<reasoning_form>(form % 3), static_cast<thought_state>(form / 2 % 3)};
  tool_call_reader calls{
      static_cast<tool_format>(form / 8 % 9),
      (form & 64) != 0,
      (form & 128) != 0,
      {{"f", R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})"}, {"g", ""}}};
  whole out;
  const auto take = [&](const answer_parts& parts) {
    out.content += parts.content;
    for (const auto& c : parts.calls) {
      if (!c.name.empty()) {
        require(c.index == out.calls.size() && (c.name == "f" || c.name == "g"));
        out.calls.emplace_back(c.name, "");
      }
      require(c.index + 1 == out.calls.size());
      out.calls.back().second += c.arguments;
    }
  };
  const auto heed = [&](const thought_parts& parts) {
    require(parts.reasoning.empty() || out.content.empty());
    out.reasoning += parts.reasoning;
    take(calls.feed(parts.rest));
  };
  for (std::size_t at = 0; at < text.size(); at += piece) heed(thought.feed(text.substr(at, piece)));
  heed(thought.finish());
  take(calls.finish());
  require(calls.calls() == out.calls.size());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 2, size - 2};
  const auto all = read(text, data[0], text.size() + 1);
  require(all == read(text, data[0], 1));
  require(all == read(text, data[0], 1 + data[1] % 16));
  if (text.find_first_of("<[{f`") == text.npos && data[0] / 2 % 3 != 1 && data[0] / 8 % 9 < 4 &&
      (data[0] & 64) == 0)  // of an answer that is held to calls the cut end is dropped
    require(all.content == text);
  return 0;
}
