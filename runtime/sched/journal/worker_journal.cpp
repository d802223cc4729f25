#include "runtime/sched/journal/worker_journal.hpp"

#include <utility>

#include "runtime/sched/journal/encoder.hpp"

namespace mooncaf::journal {

namespace {

template <class In>
auto decide(const In& in, encoder* to) {
  auto outcome = in.call();
  if (to != nullptr) to->record(in, outcome);
  return outcome;
}

}  // namespace

worker_journal::worker_journal(sink out, const origin& from) {
  if (out) encoder_ = std::make_unique<encoder>(std::move(out), from);
}

worker_journal::~worker_journal() = default;
worker_journal::worker_journal(worker_journal&&) noexcept = default;
worker_journal& worker_journal::operator=(worker_journal&&) noexcept = default;

load_plan worker_journal::run(const weigh_load& in) { return decide(in, encoder_.get()); }

std::optional<rejection> worker_journal::run(const check_join& in) { return decide(in, encoder_.get()); }

void worker_journal::run(const load_ended& in) {
  if (encoder_) encoder_->record(in);
}

void worker_journal::run(const prompt_computed& in) {
  if (encoder_) encoder_->record(in);
}

void worker_journal::run(const answer_ended& in) {
  if (encoder_) encoder_->record(in);
}

void worker_journal::flush() {
  if (encoder_) encoder_->flush();
  if (encoder_ && !encoder_->open()) encoder_.reset();
}

void worker_journal::close() { encoder_.reset(); }

}  // namespace mooncaf::journal
