// How a directory that has just begun learns what there is: the part of `directory_core` that decides whose
// contents count, and when it knows all.
//
//   waiting ── the first segment of an earlier directory comes ──► gathering ── all of its companions ──►
//   serving
//      │                                                              │          are here, or it is late
//      └───────────────────────── nobody comes in time ───────────────┴──────────────────────────────────►  ▲
//
// Segments and figures are told at any time; questions about objects wait for `serving`. So nobody sees a
// part of what there is, and no removal is answered that a segment on its way back would undo.

#include <algorithm>
#include <utility>

#include "storage/objects/directory/directory_core.hpp"

namespace mooncaf {

namespace {
constexpr std::size_t kept_bytes_max = 16 * MiB;
}

/// Whether what a segment brings along counts. It does not if a directory that served without it came after
/// the one that it knew, or if the others know that it was given up.
bool directory_core::admit(const store_wire::former_life& former) {
  if (serving_) return false;
  for (const auto f : former.fenced) fence(f);
  std::vector<std::uint32_t> older;
  for (const auto& [segment, served_by] : came_back_) {
    if (served_by > former.served_by) return false;
    if (served_by < former.served_by) older.push_back(segment);
  }
  for (const auto segment : older) fence(segment);
  const auto is_fenced = [&](std::uint32_t s) {
    return std::find(fenced_.begin(), fenced_.end(), s) != fenced_.end();
  };
  if (is_fenced(former.segment)) return false;
  for (const auto m : former.members)
    if (!is_fenced(m)) expected_.insert(m);
  return true;
}

void directory_core::serve_when_complete(time_point now) {
  const auto missing = [&](std::uint32_t s) { return holders_.count(s) == 0; };
  const bool disk_came = std::any_of(disks_.begin(), disks_.end(), [&](const auto& d) {
    return awaited_disks_.count(d.second.number) != 0;
  });
  const bool disks_here =
      std::all_of(awaited_disks_.begin(), awaited_disks_.end(), [&](std::uint64_t number) {
        return std::any_of(disks_.begin(), disks_.end(),
                           [&](const auto& d) { return d.second.number == number && !d.second.announcing; });
      });
  const bool nobody = came_back_.empty() && !disk_came;
  const bool all_here = !nobody && disks_here && std::none_of(expected_.begin(), expected_.end(), missing) &&
                        announcing_.empty();
  const bool late = nobody ? now >= until_.first : now >= until_.others;
  if (!all_here && !late) return;
  const auto given_up = std::exchange(expected_, {});
  for (const auto segment : given_up)
    if (missing(segment)) fence(segment);
  for (const auto segment : std::exchange(announcing_, {})) fence(segment);
  serving_ = true;
  awaited_disks_.clear();
  table_.end_recovery(now);
  came_back_.clear();
  for (const auto& [segment, holder] : holders_)
    write_entry(holder, store_wire::entry::serving, segment,
                [&](byte_writer& out) { out.put(incarnation_); });
  for (auto& [id, s] : sessions_) {
    for (const auto& question : std::exchange(s.kept, {})) {
      std::vector<std::byte> answer;
      s.nonsense = s.nonsense || !answer_now(id, question.header, question.payload, now, answer);
      s.ready.insert(s.ready.end(), answer.begin(), answer.end());
    }
    has_output(id, s);
  }
}

bool directory_core::keep(session& from, const store_wire::header& question,
                          std::span<const std::byte> payload) {
  from.kept.push_back({question, {payload.begin(), payload.end()}});
  from.kept_bytes += payload.size();
  return from.kept_bytes <= kept_bytes_max;
}

}  // namespace mooncaf
