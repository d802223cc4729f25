#pragma once
// A device that computes nothing: it takes as long as a profile says, and answers with tokens that depend on
// the tokens before them alone. Everything around it (actors, blocks, transfers, disks, HTTP) is real.

#include <array>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/turnstile.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_role.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

/// The vocabulary of modelled models, `dummy_vocab(modelled_vocab)`: bytes and markers, words that answers
/// are made of, and words that end a prompt to say how long its answer is.
inline constexpr std::uint32_t modelled_vocab = 2560;
inline constexpr std::int32_t first_answer_word = 259, first_length_word = 512;
/// The longest answer that a length word can ask for.
inline constexpr std::uint32_t longest_told_answer = modelled_vocab - first_length_word;

/// KV of a modelled model: 8 bytes a token in two layers, whatever the profile's model has.
kv_layout modelled_layout(const profile& p) noexcept;
/// Identity of all that decides KV contents and tokens. Nodes with different profiles cannot share KV.
hash128 modelled_fingerprint(const profile& p);

/// The state after the tokens so far; a token's KV holds it.
struct token_state {
  std::array<std::uint16_t, 2> hash{0x6D6F, 0x6F6E};  ///< one per layer: a layer's KV needs no later layer
  std::uint16_t left = 0;  ///< tokens of the answer that are still to come; 0: not known

  token_state after(std::int32_t token) const noexcept;
  /// The token that follows: a word, or the end if the answer is as long as it was to be.
  std::int32_t next() const noexcept;
  friend bool operator==(const token_state&, const token_state&) = default;
};

/// How a modelled device waits. @thread  Called on the thread of `forward`.
struct pacing {
  std::function<time_point()> now;
  std::function<void(time_point)> wait_until;
  /// The machine's own clock, with waits that cost no processor time.
  static pacing real();
};

struct modelled_options {
  profile hardware;
  worker_role role = worker_role::prefill;
  double time_scale = 1;  ///< a second here stands for so many of the profile's; > 0
  /// Machines that share the layers (a pipeline group), as `prefill_instance` plays them; prefill only.
  std::uint32_t stages = 1;
};

/// The KV of a token is its state: a pass reads the state before its first token out of the blocks, so its
/// answer shows which bytes it was given, and layers that do not belong together end it with `ec::corrupt`. A
/// layer's KV is written, and reported done, when the share of the step's time that is its own has passed.
///
/// Steps that follow each other without a pause are timed from the end of the one before, not from when the
/// caller came round to the next: a profile's times have a server's own work in them, which does not shrink
/// here with the time scale.
class modelled_pass final : public forward_pass {
 public:
  explicit modelled_pass(const modelled_options& options, pacing pace = pacing::real());

  result<void> forward(std::span<const batch_item> items, std::span<float> logits,
                       const layer_done_fn& done = {}, const std::atomic<bool>* cancel = nullptr,
                       const before_layer_fn& before = {}) override;
  const kv_layout& layout() const noexcept override { return layout_; }
  std::size_t vocab_size() const noexcept override { return modelled_vocab; }
  std::uint32_t stages() const noexcept override { return options_.stages; }
  void when_free(std::function<void()> tell) override { free_told_ = std::move(tell); }

 private:
  /// A pass under way.
  struct pass {
    std::span<const batch_item> items;
    time_point began, first_free, ends;     ///< by the profile, on our clock
    std::array<std::uint64_t, 2> places{};  ///< at each layer
    bool told = false;                      ///< that the first stage is free
    std::vector<token_state> before;        ///< by item: the state before its first token
  };
  result<void> check(std::span<const batch_item> items, std::span<float> logits) const;
  duration length_of(std::span<const batch_item> items);
  pass enter(std::span<const batch_item> items);
  void tell_free(pass& p) const;
  result<void> run(pass& p, const layer_done_fn& done, const std::atomic<bool>* cancel,
                   const before_layer_fn& before);
  void leave(const pass& p, bool whole);
  /// Until `until`, and tells on the way that the first stage is free.
  result<void> wait(pass& p, time_point until, const std::atomic<bool>* cancel) const;
  result<void> run_layer(pass& p, std::uint32_t layer) const;
  void show(const pass& p, std::span<float> logits) const;

  modelled_options options_;
  pacing pace_;
  cost_model costs_;
  std::optional<device_tier> tier_;
  kv_layout layout_;
  std::function<void()> free_told_;
  std::array<turnstile, 2> layers_;  ///< a pass reads what the one before it wrote, layer by layer
  std::mutex mutex_;                 ///< of what stands below, and of `tier_`
  time_point free_{};                ///< when the first stage was free of the latest step, by the profile
  time_point last_end_{};            ///< … when that step ends
};

}  // namespace mooncaf::sim
