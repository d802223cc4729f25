#include "runtime/compute/pipeline_pass.hpp"

#include <exception>
#include <string>
#include <utility>

namespace mooncaf {

namespace {

/// What a stage computes of the items: only the last one has anything to tell of them.
std::vector<batch_item> shares_of(std::span<const batch_item> items, bool last) {
  std::vector<batch_item> out;
  out.reserve(items.size());
  for (const auto& item : items) {
    auto& share = out.emplace_back(item);
    // Of blocks that lie in several memories none makes a checksum, and none stays.
    share.may_stay = false;
    share.written_from = nullptr;
    share.checksums = {};
    share.reader = nullptr;
    share.arrival = nullptr;
    if (last) continue;
    share.want_logits = false;
    share.choose = nullptr;
    share.chosen = nullptr;
    share.each_row = {};
    share.each_hidden = {};
  }
  return out;
}

}  // namespace

result<std::unique_ptr<pipeline_pass>> pipeline_pass::make(std::vector<std::unique_ptr<pass_stage>> stages,
                                                           const pipeline_shape& shape) {
  std::unique_ptr<pipeline_pass> made{new pipeline_pass(shape)};
  std::uint32_t next = 0;
  for (auto& one : stages) {
    const auto has = one->layers();
    auto own = shape.layout;
    own.n_layers = has.count;
    if (has.first != next || has.count == 0 || one->layout() != own)
      return fail(ec::invalid_argument,
                  "stage " + std::to_string(made->stages_.size()) + " of a pipeline group has layers " +
                      std::to_string(has.first) + " to " + std::to_string(has.end()) + " with KV of " +
                      to_string(one->layout()) + "; the group has " + to_string(shape.layout));
    next = has.end();
    made->stages_.push_back({.pass = std::move(one)});
  }
  if (next != shape.layout.n_layers || shape.layout.pages == page_order::page_first)
    return fail(ec::invalid_argument, "a pipeline group of " + std::to_string(stages.size()) +
                                          " stages has " + std::to_string(next) + " layers; its KV is " +
                                          to_string(shape.layout));
  return made;
}

// The place at the next stage is taken before this one is left, so that passes keep their order.
result<void> pipeline_pass::forward(std::span<const batch_item> items, std::span<float> logits,
                                    const layer_done_fn& done, const std::atomic<bool>* cancel,
                                    const before_layer_fn& before) {
  std::size_t tokens = 0;
  for (const auto& item : items) tokens += item.tokens.size();
  auto rows = rows_.lend(tokens * shape_.dim);
  result<void> outcome;
  std::exception_ptr thrown;
  auto place = stages_.front().line->place();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    stages_[i].line->enter(place);
    stage_work work{.logits = {}, .done = done, .cancel = cancel, .before = before};
    if (i != 0) work.from = rows.all();
    if (i + 1 != stages_.size()) work.to = rows.all();
    else work.logits = logits;
    // A pass that has failed goes through the other stages without computing.
    if (outcome && !thrown) try {
        outcome = run(i, std::move(work), items);
      } catch (...) {
        thrown = std::current_exception();
      }
    if (i + 1 != stages_.size()) place = stages_[i + 1].line->place();
    stages_[i].line->leave();
    if (i == 0 && free_) free_();
  }
  if (thrown) std::rethrow_exception(thrown);
  return outcome;
}

/// A stage's part of the pass, on its part of the blocks.
result<void> pipeline_pass::run(std::size_t index, stage_work work, std::span<const batch_item> items) const {
  const auto& own = *stages_[index].pass;
  auto shares = shares_of(items, index + 1 == stages_.size());
  std::vector<std::byte*> blocks;
  for (const auto& item : items)
    for (auto* block : item.blocks)
      blocks.push_back(block + shape_.layout.page().offset(own.layers().first, 0, 0));
  auto rest = std::span<std::byte* const>{blocks};
  for (auto& share : shares) {
    share.blocks = rest.first(share.blocks.size());
    rest = rest.subspan(share.blocks.size());
  }
  work.items = shares;
  return stages_[index].pass->run(work);
}

}  // namespace mooncaf
