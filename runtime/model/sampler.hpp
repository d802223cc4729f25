#pragma once
// Chooses the next token of one request from its logits.
//
// Order of operations, as in vLLM: log-probabilities from the raw logits; the grammar's mask; tokens that are
// kept out (minimum length, allowed_token_ids, bad_words); logit bias; repetition, frequency and presence
// penalties; then greedy choice, or temperature, min-p, top-k, top-p and one random draw. The draw for output
// position i is a pure function of (seed, i): a request that moves to another worker in mid-stream continues
// with the very tokens it would have had.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/token_choice.hpp"
#include "runtime/model/finish_after.hpp"
#include "runtime/model/sampling_params.hpp"
#include "runtime/model/token_constraint.hpp"

namespace mooncaf {

/// `id` with its log-probability under `logits` [vocab_size], and the `count` likeliest ids with theirs.
/// @pre `id` is below the vocabulary's size.
sampled_token describe_token(std::span<const float> logits, std::int32_t id, std::size_t count);

/// One per request; one thread at a time. After the first token, `next` allocates only what it returns in
/// `top`.
class sampler {
 public:
  /// @param params        copied; assumed inside the ranges stated in sampling_params.hpp.
  /// @param prompt        token ids of the prompt, counted by the repetition penalty.
  /// @param eos_ids       end-of-text ids, masked until `min_tokens`.
  /// @param vocab_size    logits per call; ids outside are ignored.
  /// @param generated     output tokens that exist already (the request moved here); sampling goes on after
  /// them.
  /// @param constraint    of `params.grammar`, at the beginning of the answer; null without one.
  sampler(const sampling_params& params, std::span<const std::int32_t> prompt,
          std::span<const std::int32_t> eos_ids, std::size_t vocab_size,
          std::span<const std::int32_t> generated = {},
          std::unique_ptr<token_constraint> constraint = nullptr);

  /// The token for the current position; does not advance. Overwrites `logits` with scratch values.
  /// Greedy ties go to the lowest id; NaN counts as minus infinity.
  /// @param logits  [vocab_size]
  sampled_token next(std::span<float> logits);

  /// Instructions by which a device chooses the token that `next` would, so that the logits stay on the
  /// device. Null where only `next` can choose: under a grammar and with `allowed_token_ids`, whose masks are
  /// as long as the vocabulary and made here, and beyond the limits of gpu/token_choice.hpp. Valid until the
  /// next call.
  token_choice* choice();
  /// The result of `next`, from a device's outcome of `choice`.
  sampled_token described(const chosen_token& chosen) const;

  /// Whether `prepare` has anything to do.
  bool has_mask_to_make() const { return constraint_ && !constraint_->ready(); }
  /// Makes the mask that `next` applies. May run beside the forward pass.
  void prepare() { constraint_->prepare(); }

  /// Records `id` as the output token of the current position and moves to the next one.
  void accept(std::int32_t id);

  std::uint32_t position() const noexcept { return position_; }  ///< output tokens accepted so far

 private:
  struct seen_token {
    std::int32_t id = -1;  ///< -1: empty slot
    bool in_prompt = false;
    std::uint32_t output_count = 0;
  };

  bool has_penalties() const noexcept;
  seen_token& slot_of(std::int32_t id);
  void grow_seen();
  template <class Out>
  void each_kept_out(const Out& out) const;
  draw_limits limits() const noexcept;
  void process(std::span<float> logits) const;
  std::int32_t choose(std::span<float> logits) const;
  void list_edits();

  sampling_params params_;
  std::vector<std::int32_t> masked_ids_;  ///< not allowed before `min_tokens`
  std::size_t vocab_size_;
  std::uint32_t position_ = 0;
  std::vector<seen_token> seen_;  ///< open addressing, power of two; empty without penalties
  std::size_t seen_count_ = 0;
  std::unique_ptr<token_constraint> constraint_;
  std::vector<std::int32_t> eos_ids_;   ///< with a constraint or `allowed_token_ids`
  std::vector<std::uint64_t> allowed_;  ///< bits; empty: all
  std::vector<std::int32_t> tail_;      ///< the latest tokens, as many as a bad word has before its last
  token_choice choice_;
  std::vector<logit_edit> edits_;  ///< of `choice_`
  std::vector<candidate> top_;     ///< of `choice_`
};

/// The uniform variate in [0, 1) for output position `position` of a request with `seed`.
double uniform_draw(std::uint64_t seed, std::uint64_t position) noexcept;

}  // namespace mooncaf
