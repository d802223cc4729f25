#pragma once
// Profiles computed from a device's abilities and a model's needs: operations, bytes, measured efficiencies.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/sim/catalogue.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

/// A model on a machine of one or more devices that work together on every layer (tensor parallel).
struct deployment {
  accelerator device;
  std::uint32_t devices = 1;
  language_model model;
  number_format weights = number_format::bf16;
  std::uint32_t kv_bytes = 2;  ///< of a number of KV: 2 or 1
};

/// How long a step takes: the longer of computing and reading weights, then attention, sums over the devices'
/// links, kernels, and the pause between two steps.
/// @thread  Immutable.
class step_model {
 public:
  explicit step_model(deployment d) : d_(d) {}

  /// `tokens` of a prompt behind `past` others.
  double prefill_s(double tokens, double past) const noexcept;
  /// A token for each of `batch` sequences, which have `context` tokens together.
  double decode_s(double batch, double context) const noexcept;

  double parameters() const noexcept;  ///< all of the model's
  double weight_bytes() const noexcept;
  std::uint64_t kv_bytes_per_token() const noexcept;
  /// Tokens of KV that fit the devices beside the weights; 0: not even the weights do.
  std::uint64_t kv_tokens() const noexcept;

 private:
  double products_s(double tokens, double outputs) const noexcept;
  double sums_s(double tokens) const noexcept;
  double passes_s(double tokens) const noexcept;
  double kernels_s(double times = 1) const noexcept;

  deployment d_;
};

/// The name begins with that of a device.
bool names_a_device(std::string_view name);
/// "DEVICE[xN]-MODEL[-fp8|-fp4|-int4][-kv8]", as in h100x4-llama3-70b-fp8.
/// @error `ec::not_found` with the known names.
result<deployment> parse_deployment(std::string_view name);
/// The profile: `step_model` at usual steps, and costs that explain it best (`fit_costs`).
/// @error `ec::unsupported` if the device lacks the format; `ec::out_of_space` if the model does not fit.
result<profile> derive_profile(const deployment& d, std::string_view name);
/// Of "h100x4-llama3-70b-fp8": "h100x4", as in a price list. Empty if no device begins it.
std::string machine_of(std::string_view name);
/// The names that `parse_deployment` takes, in a line.
std::string deployments_known();

}  // namespace mooncaf::sim
