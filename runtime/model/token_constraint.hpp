#pragma once
// Which tokens may come next: the sampler's view of a grammar.

#include <cstdint>
#include <span>

namespace mooncaf {

/// Where one answer stands in the form that it must have. @thread One at a time.
class token_constraint {
 public:
  virtual ~token_constraint() = default;
  /// Whether `allowed` has nothing to compute.
  virtual bool ready() const = 0;
  /// Computes the result of `allowed`. May run beside a forward pass.
  virtual void prepare() = 0;
  /// Bit i % 64 of word i / 64: whether token i may come now; at least one is set. Valid until `accept`.
  virtual std::span<const std::uint64_t> allowed() = 0;
  /// `id` is the answer's next token.
  virtual void accept(std::int32_t id) = 0;
};

}  // namespace mooncaf
