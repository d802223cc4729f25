#pragma once
// Between the values of the rooms below and the messages that carry them.

#include <bit>
#include <span>

#include "actors/messages.hpp"
#include "runtime/model/sampler.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf {

inline token_msg to_message(const sampled_token& token) {
  token_msg out;
  out.id = token.id;
  out.logprob_bits = std::bit_cast<std::uint32_t>(token.logprob);
  out.top.reserve(token.top.size());
  for (const auto& [id, logprob] : token.top) out.top.emplace_back(id, std::bit_cast<std::uint32_t>(logprob));
  return out;
}

inline sampled_token from_message(const token_msg& token) {
  sampled_token out;
  out.id = token.id;
  out.logprob = std::bit_cast<float>(token.logprob_bits);
  out.top.reserve(token.top.size());
  for (const auto& [id, bits] : token.top) out.top.emplace_back(id, std::bit_cast<float>(bits));
  return out;
}

constexpr finish_kind to_message(finish_reason reason) noexcept {
  switch (reason) {
    case finish_reason::none:
      return finish_kind::none;
    case finish_reason::stop:
      return finish_kind::stop;
    case finish_reason::length:
      return finish_kind::length;
  }
  return finish_kind::none;
}

/// Calibration passes as they travel, for the estimators.
inline std::vector<timing_point> as_timing_points(std::span<const std::array<std::int64_t, 3>> samples) {
  std::vector<timing_point> out;
  out.reserve(samples.size());
  for (const auto& s : samples) {
    out.push_back({static_cast<double>(s[0]), static_cast<double>(s[1]), static_cast<double>(s[2]) * 1e-9});
  }
  return out;
}

/// The commit of full block `index` of a job, which lies in `slots[index]`.
inline commit_item name_block(const generate_job& job, std::span<const slot_index> slots, std::uint32_t index,
                              std::uint64_t checksum) {
  return {slots[index], job.keys[index], index == 0 ? job.root : job.keys[index - 1], index, checksum};
}

}  // namespace mooncaf
