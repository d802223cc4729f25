#pragma once
// A worker's own decisions, made and written down; `mooncaf replay` makes them again.
//
//   prefill_core, decode_core ──► worker_journal ──► encoder ──► frames ──► file (actors/process/journal_file.hpp)

#include <memory>
#include <optional>

#include "runtime/sched/journal/origin.hpp"
#include "runtime/sched/journal/sink.hpp"
#include "runtime/sched/journal/worker_inputs.hpp"

namespace mooncaf::journal {

class encoder;

/// @thread  Owned by the worker's core; not synchronised.
class worker_journal {
 public:
  /// @param out  empty: it decides, and writes nothing.
  explicit worker_journal(sink out, const origin& from = this_program());
  ~worker_journal();
  worker_journal(worker_journal&&) noexcept;
  worker_journal& operator=(worker_journal&&) noexcept;

  /// Makes the decision.
  load_plan run(const weigh_load& in);
  std::optional<rejection> run(const check_join& in);
  /// Takes note of a fact.
  void run(const load_ended& in);
  void run(const prompt_computed& in);
  void run(const answer_ended& in);

  /// Hands over the records so far; to be called now and then.
  void flush();
  /// Nothing more is written.
  void close();

 private:
  std::unique_ptr<encoder> encoder_;  ///< null: nothing is written
};

}  // namespace mooncaf::journal
