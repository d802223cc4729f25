// What an engine answers comes from another program: streams are read the same however they are cut, and nothing of it, nor
// of what an engine says of itself, does more than be refused.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "runtime/engines/completion_reader.hpp"
#include "runtime/engines/engine_facts.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

struct whole {
  std::vector<std::int32_t> ids;
  finish_reason finish = finish_reason::none;
  bool over = false, refused = false;
};

whole read(std::string_view text, std::size_t piece, engine_make make) {
  completion_reader reader{make};
  whole out;
  while (!text.empty()) {
    const auto some = reader.take(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
    if (!some) {
      out.refused = true;
      return out;
    }
    for (const auto& token : some->tokens) out.ids.push_back(token.id);
    if (some->finish != finish_reason::none) out.finish = some->finish;
    out.over = out.over || some->over;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  const auto make = data[0] < 128 ? engine_make::vllm : engine_make::sglang;
  const auto at_once = read(text, text.size() + 1, make), cut = read(text, 1 + data[0] % 16, make);
  require(at_once.refused == cut.refused);
  if (!cut.refused)
    require(at_once.ids == cut.ids && at_once.finish == cut.finish && at_once.over == cut.over);
  for (const auto id : cut.ids) require(id >= 0);
  require(refusal_in(text).size() <= 300);
  (void)read_models(text, "");
  (void)read_models(text, "m");
  (void)cache_tokens_in(text);
  (void)requests_in(text);
  return 0;
}
