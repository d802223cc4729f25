#include "runtime/sim/derived_profile.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace mooncaf::sim {

namespace {

constexpr double kept_free = 0.1;      ///< of a device's memory: activations, graphs, the engine itself
constexpr double bytes_16 = 2;         ///< activations, the output layer
constexpr std::uint32_t block = 512;   ///< tokens, as in the traces
constexpr std::uint32_t chunk = 8192;  ///< tokens of a prefill step
constexpr std::uint32_t most_sequences = 256;
constexpr std::uint32_t most_devices = 8;  ///< that one machine's links join
constexpr double network_latency_s = 10e-6;
constexpr double ssd_bytes_per_s = 6e9;  ///< one NVMe disk
/// Times that a layer's numbers go through memory between products: whole on every device, and the MLP's, of
/// which a device has its share.
constexpr double whole_passes = 8, shared_passes = 3;
constexpr double eager = 2;           ///< times the kernels of prefill take, which no graph holds
constexpr double sequence_s = 15e-6;  ///< to schedule and sample for one more
/// Grouped products of experts reach this share of one large product's speed.
constexpr double grouped = 0.55;
/// Kernels of a layer: four products, attention (two), norms with their fused work (two); routing, gathering
/// and the second pair of products of experts; the projections of latent attention.
constexpr double kernels_of_layer = 8, more_for_experts = 5, more_for_latent = 4;

double bytes_of(number_format f) {
  switch (f) {
    case number_format::bf16:
      return 2;
    case number_format::fp8:
      return 1;
    case number_format::fp4:
      return 0.5625;  // with a scale for every 16
    case number_format::int4:
      return 0.625;  // with scale and least for every 32
  }
  return 2;
}

/// Embedding and output layer stay in 16 bits in the published 8- and 4-bit files, but not in GGUF's.
double output_bytes_of(number_format f) { return f == number_format::int4 ? bytes_of(f) : bytes_16; }

/// Operations a second of matrix products, and 0 where the device cannot. 4-bit integers are multiplied as
/// 8-bit ones on a CPU, and widened to 16 bits elsewhere.
double products_per_s(const accelerator& a, number_format f) {
  switch (f) {
    case number_format::fp8:
      return a.flops_8 * a.matmul_8;
    case number_format::fp4:
      return a.flops_4 * a.matmul_4;
    case number_format::int4:
      return std::max(a.flops_16 * a.matmul_16, a.name == "zen4" ? a.flops_8 * a.matmul_8 : 0);
    case number_format::bf16:
      break;
  }
  return a.flops_16 * a.matmul_16;
}

double attention_weights(const language_model& m) {
  const double h = m.hidden, heads = m.heads;
  if (m.latent == 0) return 2 * h * heads * m.head_dim + 2 * h * m.kv_heads * m.head_dim;
  return h * m.query_rank + m.query_rank * heads * (m.nope_dim + m.rope) + h * (m.latent + m.rope) +
         m.latent * heads * (m.nope_dim + m.value_dim) + heads * m.value_dim * h;
}
double expert_weights(const language_model& m) { return 3.0 * m.hidden * m.expert_ffn; }
/// Layers without experts, and layers with experts.
double dense_layers(const language_model& m) { return m.experts == 0 ? m.layers : m.dense_layers; }
double expert_layers(const language_model& m) { return m.layers - dense_layers(m); }
/// Of all layers, without the experts that are chosen.
double shared_weights(const language_model& m) {
  return m.layers * attention_weights(m) + dense_layers(m) * 3.0 * m.hidden * m.ffn +
         expert_layers(m) * m.hidden * (3.0 * m.shared_ffn + m.experts);
}
double output_weights(const language_model& m) { return static_cast<double>(m.vocab) * m.hidden; }

}  // namespace

double step_model::parameters() const noexcept {
  const auto& m = d_.model;
  return shared_weights(m) + expert_layers(m) * m.experts * expert_weights(m) + 2 * output_weights(m);
}

double step_model::weight_bytes() const noexcept {
  const auto vocabulary = 2 * output_weights(d_.model);
  const auto rest = parameters() - vocabulary;
  return rest * bytes_of(d_.weights) + vocabulary * output_bytes_of(d_.weights);
}

std::uint64_t step_model::kv_bytes_per_token() const noexcept {
  const auto& m = d_.model;
  const auto numbers = m.latent > 0 ? m.latent + m.rope : 2 * m.kv_heads * m.head_dim;
  return std::uint64_t{m.layers} * numbers * d_.kv_bytes;
}

std::uint64_t step_model::kv_tokens() const noexcept {
  const auto& m = d_.model;
  // Latent KV has no heads to be shared out: every device has all of it.
  const double shared_by = m.latent > 0 ? 1 : std::min(d_.devices, m.kv_heads);
  const double room = d_.device.memory_bytes * (1 - kept_free) - weight_bytes() / d_.devices;
  return room <= 0 ? 0
                   : static_cast<std::uint64_t>(room * shared_by / static_cast<double>(kv_bytes_per_token()));
}

/// Matrix products of a step: all layers, and the output layer for as many tokens as need it.
double step_model::products_s(double tokens, double outputs) const noexcept {
  const auto& m = d_.model;
  const double read_per_s = d_.device.memory_bytes_per_s * d_.device.memory_share * d_.devices;
  const double chosen = expert_layers(m) * m.experts_used * expert_weights(m);
  double read = shared_weights(m);
  if (m.experts > 0) {
    // Tokens choose their experts apart from each other.
    const double untouched =
        std::pow(1 - static_cast<double>(m.experts_used) / static_cast<double>(m.experts), tokens);
    read += expert_layers(m) * m.experts * (1 - untouched) * expert_weights(m);
  }
  const double reached = products_per_s(d_.device, d_.weights) * d_.devices;
  const double compute = 2 * tokens / reached * (shared_weights(m) + chosen / grouped);
  const double output_bytes = output_weights(m) * output_bytes_of(d_.weights);
  const double output = std::max(
      2 * output_weights(m) * outputs / (products_per_s(d_.device, number_format::bf16) * d_.devices),
      output_bytes / read_per_s);
  return std::max(compute, read * bytes_of(d_.weights) / read_per_s) + output + passes_s(tokens);
}

/// Seconds in which norms, activations and residuals read and write a step's own numbers.
double step_model::passes_s(double tokens) const noexcept {
  const auto& m = d_.model;
  const double dense = dense_layers(m) * m.ffn;
  const double experts = expert_layers(m) * (m.experts_used * m.expert_ffn + m.shared_ffn);
  const double numbers = whole_passes * m.layers * m.hidden + shared_passes * (dense + experts) / d_.devices;
  return tokens * numbers * bytes_16 / (d_.device.memory_bytes_per_s * d_.device.memory_share);
}

/// Two all-reduces of a layer's activations.
double step_model::sums_s(double tokens) const noexcept {
  if (d_.devices == 1) return 0;
  const double share = 2.0 * (d_.devices - 1) / d_.devices;
  const double bytes = tokens * d_.model.hidden * bytes_16;
  return 2 * d_.model.layers * (d_.device.link_latency_s + share * bytes / d_.device.link_bytes_per_s);
}

double step_model::kernels_s(double times) const noexcept {
  const auto& m = d_.model;
  const double each =
      kernels_of_layer + (m.experts > 0 ? more_for_experts : 0) + (m.latent > 0 ? more_for_latent : 0);
  return d_.device.step_s + m.layers * each * d_.device.kernel_s * times;
}

double step_model::prefill_s(double tokens, double past) const noexcept {
  const auto& m = d_.model;
  // Of every pair of tokens, in every head: a product with a key and one with a value. Latent KV is expanded
  // first.
  const double each = m.latent > 0 ? m.nope_dim + m.rope + m.value_dim : 2.0 * m.head_dim;
  const double pairs = tokens * past + tokens * tokens / 2;
  const double attention =
      2 * each * m.heads * m.layers * pairs / (d_.device.flops_16 * d_.device.attention_share * d_.devices);
  return kernels_s(eager) + products_s(tokens, 1) + attention + sums_s(tokens);
}

double step_model::decode_s(double batch, double context) const noexcept {
  const auto& m = d_.model;
  const double shared_by = m.latent > 0 ? 1 : std::min(d_.devices, m.kv_heads);
  const double read = context * static_cast<double>(kv_bytes_per_token()) /
                      (d_.device.memory_bytes_per_s * d_.device.kv_share * shared_by);
  // Latent KV is read once for all heads, so computing with it may take longer than reading it.
  const double each = m.latent > 0 ? 2.0 * m.latent + m.rope : 2.0 * m.head_dim;
  const double compute =
      2 * each * m.heads * m.layers * context / (d_.device.flops_16 * d_.device.attention_share * d_.devices);
  return kernels_s() + products_s(batch, batch) + std::max(read, compute) + sums_s(batch) +
         batch * sequence_s;
}

namespace {

/// The entry of a table that the text begins with, the longest one; the text goes on behind it.
template <class Entry>
const Entry* take(std::span<const Entry> table, std::string_view& text) {
  const Entry* best = nullptr;
  for (const auto& e : table) {
    if (text.starts_with(e.name) && (best == nullptr || e.name.size() > best->name.size())) best = &e;
  }
  if (best != nullptr) text.remove_prefix(best->name.size());
  return best;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

/// "xN", 1 if it is not there; 0 if it is no number of devices.
std::uint32_t take_devices(std::string_view& text) {
  if (!take_word(text, "x")) return 1;
  std::uint32_t n = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (failed != std::errc{} || n > most_devices) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return n;
}

constexpr std::array formats{std::pair{std::string_view{"-fp8"}, number_format::fp8},
                             std::pair{std::string_view{"-fp4"}, number_format::fp4},
                             std::pair{std::string_view{"-int4"}, number_format::int4}};

}  // namespace

std::string deployments_known() {
  const auto names = [](const auto& table) {
    std::string all;
    for (const auto& e : table) all += (all.empty() ? "" : "|") + std::string{e.name};
    return all;
  };
  return names(accelerators()) + "[xN]-" + names(language_models()) + "[-fp8|-fp4|-int4][-kv8]";
}

bool names_a_device(std::string_view name) {
  const auto* device = take(accelerators(), name);
  return device != nullptr && (name.starts_with("-") || name.starts_with("x"));
}

std::string machine_of(std::string_view name) {
  return names_a_device(name) ? std::string{name.substr(0, name.find('-'))} : std::string{};
}

result<deployment> parse_deployment(std::string_view name) {
  const auto unknown = [&](const std::string& why) {
    return fail(ec::not_found, "no profile '" + std::string{name} + "': " + why +
                                   "; computed ones are called " + deployments_known());
  };
  auto rest = name;
  deployment d;
  const auto* device = take(accelerators(), rest);
  if (device == nullptr) return unknown("no such device");
  d.device = *device;
  d.devices = take_devices(rest);
  if (d.devices == 0) return unknown("a machine has 1 to " + std::to_string(most_devices) + " devices");
  if (!take_word(rest, "-")) return unknown("no model behind the device");
  const auto* model = take(language_models(), rest);
  if (model == nullptr) return unknown("no such model");
  d.model = *model;
  for (const auto& [word, format] : formats) {
    if (take_word(rest, word)) d.weights = format;
  }
  if (take_word(rest, "-kv8")) d.kv_bytes = 1;
  if (!rest.empty()) return unknown("'" + std::string{rest} + "' is not understood");
  return d;
}

result<profile> derive_profile(const deployment& d, std::string_view name) {
  if (products_per_s(d.device, d.weights) <= 0) {
    return fail(ec::unsupported,
                std::string{name} + ": " + std::string{d.device.name} + " does not multiply in that format");
  }
  const step_model steps{d};
  profile p;
  p.name = name;
  p.model = d.model.name;
  p.layers = d.model.layers;
  p.kv_bytes_per_token = steps.kv_bytes_per_token();
  p.block_tokens = block;
  p.chunk_tokens = chunk;
  p.device_kv_tokens = steps.kv_tokens();
  if (p.device_kv_tokens < block) {
    return fail(ec::out_of_space, std::string{name} + ": " +
                                      std::to_string(static_cast<int>(steps.weight_bytes() * 1e-9)) +
                                      " GB of weights, " + std::to_string(d.devices) + " x " +
                                      std::to_string(static_cast<int>(d.device.memory_bytes * 1e-9)) +
                                      " GB of memory: take more devices, or fewer bits");
  }
  std::vector<timing_point> passes, batches;
  for (const double tokens : {128.0, 512.0, 2048.0, 8192.0}) {
    for (const double past : {0.0, 8192.0, 65536.0})
      passes.push_back({tokens, past, steps.prefill_s(tokens, past)});
  }
  for (const double batch : {1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0}) {
    for (const double each : {512.0, 2048.0, 8192.0}) {
      if (batch > 1 && batch * each > static_cast<double>(p.device_kv_tokens)) continue;
      batches.push_back({batch, batch * each, steps.decode_s(batch, batch * each)});
    }
  }
  p.costs = fit_costs(passes, batches);
  // A chunk reads the KV of its cached prefix once.
  p.costs.prefill_cached_token_s = static_cast<double>(p.kv_bytes_per_token) /
                                   (d.device.memory_bytes_per_s * d.device.kv_share * d.devices);
  p.max_batch = most_sequences;
  p.nic_bytes_per_s = d.device.nic_bytes_per_s * d.devices;
  p.network_latency_s = network_latency_s;
  p.ssd_bytes_per_s = ssd_bytes_per_s;
  p.dram_tokens =
      static_cast<std::uint64_t>(d.device.host_bytes * d.devices / static_cast<double>(p.kv_bytes_per_token));
  return p;
}

}  // namespace mooncaf::sim
