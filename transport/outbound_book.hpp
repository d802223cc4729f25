#pragma once
// The transfers that this node has under way to one peer over one path. Shared memory, RDMA and TCP keep one
// for every peer: a path reports transfers begun, moved and answered; the book knows the deadlines, and that
// every transfer completes once.
//
//   submit ─► waiting ─► active ─┬─► given up ─┬─► settled ─► completion
//                │               └─────────────┘      │
//                └── cancel, deadline ────────────────┘

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/node_state.hpp"

namespace mooncaf {

template <class Job>
class outbound_book;

/// A book's record of one transfer. Each path derives its own job, which adds the pieces cut, told and
/// posted, and `std::size_t piece_count() const` for the figures.
class outbound_job {
 public:
  transfer what;

  /// It has begun, and how it ends is open.
  bool open() const noexcept { return at_ == stage::active; }
  /// It was cancelled or is late; the peer has yet to confirm that nothing of it lands any more.
  bool given_up() const noexcept { return at_ == stage::given_up; }
  /// Its outcome stands. It completes when nothing holds its memory any more.
  bool settled() const noexcept { return at_ >= stage::settled; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  template <class Job>
  friend class outbound_book;
  enum class stage : std::uint8_t { waiting, active, given_up, settled, completed };

  completion_handler on_done_;
  std::uint64_t bytes_ = 0;
  std::uint32_t holds_ = 0;
  stage at_ = stage::waiting;
  result<void> outcome_;                       // once given up or settled
  time_point confirm_by_ = time_point::max();  // once given up
};

/// The error of a transfer that its owner cancelled (`ec::cancelled`) or that is late (`ec::timed_out`).
error end_cause(ec why);

/// Compares the bytes of a read with the checksums that the owner of the bytes states.
/// @error `ec::corrupt` names the slice; counted as a checksum failure of the path.
result<void> check_stated_sums(node_state& node, transfer_path path, const transfer& what);

/// References to a job stay valid until the completions that it was taken with are gone.
/// @thread  not synchronised: the path's lock, or its thread
template <class Job>
class outbound_book {
  using jobs = std::unordered_map<transfer_id, Job>;

 public:
  /// Completions to be told now.
  class due {
   public:
    bool empty() const noexcept { return ended_.empty(); }
    /// Calls the submitters, who may submit the next transfer: to be called without a lock.
    void tell() const {
      for (const auto& e : ended_) e.job.mapped().on_done_(e.what);
    }

   private:
    friend class outbound_book;
    struct ended {
      typename jobs::node_type job;
      completion what;
    };
    std::vector<ended> ended_;
  };

  outbound_book(node_state& node, node_id peer, transfer_path path) : node_(node), peer_(peer), path_(path) {}

  /// Takes a transfer with an id that is not in the book. @returns it if it may begin at once; null: it
  /// waits.
  Job* submit(transfer what, completion_handler on_done) {
    if (idle()) progress_at_ = clock_type::now();
    const auto id = what.id;
    auto& job = jobs_[id];
    job.bytes_ = what.size_bytes();
    job.what = std::move(what);
    job.on_done_ = std::move(on_done);
    if (has_room()) return begin(job);
    waiting_.push_back(id);
    return nullptr;
  }
  /// Begins the transfer that has waited longest. @returns null if none waits, or too many are at work.
  Job* next() {
    while (!waiting_.empty() && has_room()) {
      const auto it = jobs_.find(waiting_.front());
      waiting_.pop_front();
      if (it != jobs_.end() && it->second.at_ == stage::waiting) return begin(it->second);
    }
    return nullptr;
  }
  /// @returns null for a transfer that has not begun, or has completed.
  Job* find(transfer_id id) {
    const auto it = jobs_.find(id);
    return it == jobs_.end() || it->second.at_ == stage::waiting ? nullptr : &it->second;
  }
  /// Calls `act(job)` for each transfer that has begun; it must not end one.
  template <class Act>
  void each(const Act& act) {
    for (auto& [id, job] : jobs_)
      if (job.at_ != stage::waiting) act(job);
  }
  bool idle() const noexcept { return jobs_.empty(); }

  /// This node's memory is being read or written for the job: until the `release` it does not complete.
  void hold(Job& job) { ++job.holds_; }
  void release(Job& job) {
    if (--job.holds_ == 0 && job.at_ == stage::settled) complete(job, true);
  }

  /// Decides how a transfer ends; only the first outcome counts.
  void settle(Job& job, result<void> outcome) {
    if (job.settled()) return;
    job.outcome_ = std::move(outcome);
    job.at_ = stage::settled;
    if (job.holds_ == 0) complete(job, true);
  }
  /// An open job shall end as `why`, but the peer may still be writing: it ends with `confirm`, with another
  /// outcome that the peer tells, or with the link.
  void give_up(Job& job, error why, time_point confirm_by = time_point::max()) {
    job.outcome_ = fail(std::move(why));
    job.confirm_by_ = confirm_by;
    job.at_ = stage::given_up;
  }
  /// Nothing of a transfer that was given up lands any more.
  void confirm(Job& job) { settle(job, job.outcome_); }

  /// @returns a job for the path to end. One that waits has completed; any other is over.
  Job* cancel(transfer_id id) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return nullptr;
    auto& job = it->second;
    if (job.at_ == stage::waiting) end_waiting(job, end_cause(ec::cancelled));
    return job.open() ? &job : nullptr;
  }
  /// The same for all that are past their deadlines.
  std::vector<transfer_id> late(time_point now) {
    std::vector<transfer_id> begun, waiting;
    for (const auto& [id, job] : jobs_) {
      if (now <= job.what.deadline) continue;
      if (job.at_ == stage::waiting) waiting.push_back(id);
      else if (job.open()) begun.push_back(id);
    }
    for (const auto id : waiting) end_waiting(jobs_.at(id), end_cause(ec::timed_out));
    return begun;
  }
  /// Whether a peer owes us the word that a transfer is over, and is late with it.
  bool unconfirmed(time_point now) const {
    for (const auto& [id, job] : jobs_)
      if (job.given_up() && now > job.confirm_by_) return true;
    return false;
  }
  /// Whether work is under way and `progress`, a count of the path's, has stood still for longer than
  /// `patience`. To be asked again and again.
  bool stalled(time_point now, std::uint64_t progress, duration patience) {
    if (idle() || progress != seen_progress_) progress_at_ = now;
    seen_progress_ = progress;
    return now - progress_at_ > patience;
  }

  /// The link is over, and the path looks at no memory any more: every transfer completes, as `why` unless
  /// its end was decided before.
  /// @param fenced  says of a job that has begun whether nothing of it can land any more.
  template <class Fenced>
  void end(const error& why, const Fenced& fenced) {
    waiting_.clear();
    while (!jobs_.empty()) {
      auto& job = jobs_.begin()->second;
      const bool harmless = job.at_ == stage::waiting || fenced(std::as_const(job));
      if (job.at_ < stage::given_up) job.outcome_ = fail(why);
      complete(job, harmless);
    }
  }

  /// Takes the completions to be told now.
  due take() { return std::exchange(due_, {}); }

 private:
  using stage = outbound_job::stage;

  bool has_room() const noexcept { return active_ < node_.options.max_transfers_per_peer; }
  Job* begin(Job& job) {
    job.at_ = stage::active;
    ++active_;
    return &job;
  }
  void end_waiting(Job& job, error why) {
    job.outcome_ = fail(std::move(why));
    complete(job, true);
  }
  void complete(Job& job, bool fenced) {
    if (job.at_ != stage::waiting) --active_;
    job.at_ = stage::completed;
    if (const std::size_t n = job.piece_count(); n > 0)
      node_.stats.update(peer_, path_, [n](path_stats& s) { s.slices += n; });
    completion told{.id = job.what.id, .outcome = std::move(job.outcome_), .path = path_, .fenced = fenced};
    if (told.outcome) told.bytes = job.bytes_;
    auto node = jobs_.extract(told.id);
    due_.ended_.push_back({std::move(node), std::move(told)});
  }

  node_state& node_;
  const node_id peer_;
  const transfer_path path_;
  jobs jobs_;
  std::deque<transfer_id> waiting_;  // ids that have begun or completed meanwhile are passed over
  std::size_t active_ = 0;           // jobs that have begun
  due due_;
  std::uint64_t seen_progress_ = 0;
  time_point progress_at_{};
};

}  // namespace mooncaf
