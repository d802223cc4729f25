#include "runtime/grammar/matcher.hpp"

#include <utility>

namespace mooncaf {

matcher::matcher(std::shared_ptr<pushdown> rules, std::shared_ptr<const tokenizer> text)
    : rules_(std::move(rules)), text_(std::move(text)) {
  rules_->advance(at_, answer_, 0, *text_);
}

bool matcher::ready() const { return mask_ || rules_->known_mask(at_); }

void matcher::prepare() {
  if (!mask_) mask_ = rules_->mask(at_, answer_, *text_);
}

std::span<const std::uint64_t> matcher::allowed() {
  prepare();
  return *mask_;
}

void matcher::accept(std::int32_t id) {
  answer_.push_back(id);
  mask_.reset();
  rules_->advance(at_, answer_, answer_.size() - 1, *text_);
}

}  // namespace mooncaf
