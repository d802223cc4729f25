#include "runtime/model/text_loss.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace mooncaf {

namespace {

double log_probability(std::span<const float> logits, std::int32_t token) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

}  // namespace

result<double> text_loss(forward_pass& runner, std::span<const std::int32_t> tokens, std::uint32_t chunk) {
  if (tokens.size() < 2)
    return fail(ec::invalid_argument, "a text of " + std::to_string(tokens.size()) +
                                          " tokens has nothing to predict: it takes two");
  const auto pieces = runner.layout().pieces();
  const auto count = static_cast<std::uint32_t>(runner.layout().blocks_for(tokens.size()));
  std::vector<std::byte> memory(pieces.bytes_for(count));
  std::vector<std::byte*> blocks;
  for (std::uint32_t i = 0; i < count; ++i) blocks.push_back(memory.data() + pieces.offset(i));
  double sum = 0;
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    const auto some = tokens.subspan(at, std::min<std::size_t>(chunk, tokens.size() - at));
    const auto row = [&](std::uint32_t i, std::span<float> logits) {
      if (at + i + 1 < tokens.size()) sum -= log_probability(logits, tokens[at + i + 1]);
    };
    const std::array items{batch_item{
        .tokens = some, .start = static_cast<std::uint32_t>(at), .blocks = blocks, .each_row = row}};
    if (const auto done = runner.forward(items, {}); !done) return fail(done.error());
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

}  // namespace mooncaf
