#pragma once
// Shared by core and queue when their calls are written down: the journal, and which call is under way.

#include <memory>
#include <utility>

#include "runtime/sched/journal/encoder.hpp"

namespace mooncaf::journal {

/// Without a journal a call costs a branch more.
/// @thread  Owned by the conductor; not synchronised.
class recorder {
 public:
  /// Begins a journal; to be called before anything else. @param out  gets the pieces of the file.
  void begin(const conductor_options& core, const admission_queue_options& queue, sink out) {
    journal_ = std::make_unique<encoder>(core, queue, std::move(out));
  }
  /// Hands over the records so far; to be called now and then.
  void flush() {
    if (journal_) journal_->flush();
    if (journal_ && !journal_->open()) journal_.reset();
  }
  /// Nothing more is recorded.
  void close() { journal_.reset(); }

  /// Makes a call of the core or the queue, and writes down its outcome. Calls that core and queue make of
  /// each other meanwhile are part of it.
  template <class In, class Target>
  outcome_of<In> run(In in, Target& target) {
    if (!journal_ || under_way_) return in.call(target);
    under_way_ = true;
    if constexpr (std::is_void_v<outcome_of<In>>) {
      in.call(target);
      journal_->record(in);
      under_way_ = false;
    } else {
      auto outcome = in.call(target);
      journal_->record(in, outcome);
      under_way_ = false;
      return outcome;
    }
  }

 private:
  std::unique_ptr<encoder> journal_;
  bool under_way_ = false;
};

}  // namespace mooncaf::journal
