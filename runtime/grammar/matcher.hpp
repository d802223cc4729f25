#pragma once
// Where one answer stands in its grammar.

#include <memory>
#include <vector>

#include "runtime/grammar/pushdown.hpp"
#include "runtime/model/token_constraint.hpp"

namespace mooncaf {

/// One per request. @thread One at a time; the pushdown is shared.
class matcher final : public token_constraint {
 public:
  matcher(std::shared_ptr<pushdown> rules, std::shared_ptr<const tokenizer> text);

  bool ready() const override;
  void prepare() override;
  std::span<const std::uint64_t> allowed() override;
  void accept(std::int32_t id) override;

 private:
  const std::shared_ptr<pushdown> rules_;
  const std::shared_ptr<const tokenizer> text_;
  std::vector<std::int32_t> answer_;
  pushdown::position at_;
  std::shared_ptr<const token_mask> mask_;  ///< for `at_`; null: not asked for yet
};

}  // namespace mooncaf
