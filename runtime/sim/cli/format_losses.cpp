#include "runtime/sim/cli/format_losses.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/model/model_runner.hpp"
#include "runtime/model/text_loss.hpp"

namespace mooncaf::sim {

namespace {

constexpr std::uint32_t block_tokens = 64;  // which no result depends on

std::string rounded(double nats) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", nats);
  return text;
}

double cost_of(std::span<const format_loss> losses, const format_loss& of) {
  return of.nats - losses.front().nats;
}

}  // namespace

result<std::vector<format_loss>> format_losses(const std::shared_ptr<const model>& net, device& hardware,
                                               std::span<const std::int32_t> text, std::uint32_t chunk_tokens,
                                               const console& io) {
  std::vector<format_loss> out;
  auto formats = all_values<kv_dtype>();
  std::stable_partition(formats.begin(), formats.end(), [](kv_dtype f) { return f == kv_dtype::f32; });
  for (const auto format : formats) {
    if (io.interactive)
      io.err << "\rreading the text with KV in " << to_string(format) << "   " << std::flush;
    auto runner =
        model_runner::make(net, hardware, {chunk_tokens, chunk_tokens, net->layout(block_tokens, format), 1});
    if (!runner) return fail(runner.error());
    const auto nats = text_loss(**runner, text, chunk_tokens);
    if (!nats) return fail(nats.error());
    out.push_back({format, *nats});
  }
  if (io.interactive) io.err << "\r" << std::string(48, ' ') << "\r" << std::flush;
  return out;
}

std::string to_text(std::span<const format_loss> losses) {
  std::string out;
  for (const auto& l : losses) {
    const auto cost = cost_of(losses, l);
    out += (out.empty() ? "" : ", ") + std::string{to_string(l.format)} + " " + rounded(l.nats);
    if (&l != &losses.front()) out += " (" + std::string{cost < 0 ? "" : "+"} + rounded(cost) + ")";
  }
  return out;
}

result<void> within(std::span<const format_loss> losses, kv_dtype chosen, double nats) {
  const auto it = std::ranges::find(losses, chosen, &format_loss::format);
  if (cost_of(losses, *it) <= nats) return {};
  std::string others;
  for (const auto& l : losses.subspan(1)) {
    if (cost_of(losses, l) <= nats) others += (others.empty() ? "" : ", ") + std::string{to_string(l.format)};
  }
  return fail(ec::invalid_argument,
              "kv-dtype: " + std::string{to_string(chosen)} + " costs " + rounded(cost_of(losses, *it)) +
                  " nats a token of the text, kv-accuracy allows " + rounded(nats) + "; " +
                  (others.empty() ? "only f32 costs less" : "within it: " + others) +
                  " (nats: " + to_text(losses) + ")");
}

}  // namespace mooncaf::sim
