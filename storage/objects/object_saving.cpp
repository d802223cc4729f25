// What goes from memory to SSD, and what leaves memory for it: a part of `object_table`.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// Bytes that one SSD has been told to save and has not saved yet: more would only wait there. And at most
/// this part of the memory beside it, since what is being saved makes way for nobody before it is.
constexpr std::uint64_t saving_max = 256 * MiB, saving_part = 4;
/// A disk that refuses writes is left alone for so long, doubled each time.
constexpr duration first_pause = std::chrono::seconds(1), longest_pause = std::chrono::seconds(60);
}  // namespace

/// What makes room by leaving memory: at once where it is on SSD, else as soon as it is there.
object_table::way object_table::let_go(entry& e, time_point now, bool lossy) {
  auto& o = e.second;
  if (!o.disks.empty()) {
    leave_memory(e, now);
    return way::made;
  }
  for (const auto& parts : savable(o)) {
    bool wanted = !lossy && o.size <= owners_[o.owner].limit.disk_bytes, under_way = false;
    for (const auto& [id, bytes] : by_disk(parts)) {
      const auto& s = segments_.at(id);
      const auto& d = *s.ssd;
      wanted = wanted && d.policy.write != write_policy::write_through_selective && d.open && !s.draining &&
               d.paused_until <= now && bytes <= d.bytes;
      under_way = under_way || d.under_way > 0;
    }
    if (!wanted) continue;
    if (save(e, true, now)) return way::coming;
    if (under_way || owners_[o.owner].to_disk.pending) return way::late;
  }
  count(o.owner, &object_counts::evictions);
  count(o.owner, &object_counts::evicted_bytes, o.size);
  erase(e, now, now, true);
  return way::made;
}

/// @pre Nobody reads it in memory, and it is on SSD.
void object_table::leave_memory(entry& e, time_point now) {
  auto& o = e.second;
  for (const auto& part : o.memory) give_back(part, now, now);
  o.memory.clear();
  count(o.owner, &object_counts::demoted);
  count_alone(o);
  if (!o.transient) o.hits = 0;  // else it has not earned its place yet
  o.transient = o.revocable = false;
  order_.stand(o.place, eviction_order::standing::held);
}

void object_table::save_by_policy(entry& e, time_point now) {
  const auto& o = e.second;
  if (o.memory.empty() || !o.disks.empty() || !o.work.empty() || o.ticket != 0) return;
  const auto beside = segments_.find(segments_.at(o.memory.front().segment).disk_beside);
  if (beside == segments_.end()) return;
  const auto& policy = beside->second.ssd->policy;
  if (writes_on_commit(policy.write) || writes_on_use(policy.write, o.hits, policy.save_hits))
    static_cast<void>(save(e, false, now));
}

/// Replicas of which all lies beside SSDs, each as it would lie there: stripes that follow each other in one
/// segment are one part, since its lender reaches no other memory.
std::vector<std::vector<object_table::disk_run>> object_table::savable(const object& o) const {
  std::vector<std::vector<disk_run>> all;
  const std::span<const held> memory{o.memory};
  for (std::size_t i = 0; i < memory.size();) {
    const auto& first = memory[i];
    std::vector<disk_run> parts;
    bool beside_ssds = true;
    while (i < memory.size() && memory[i].one_with(first)) {
      const auto begin = i;
      const auto in = memory[i].segment;
      disk_run run{
          {segments_.at(in).disk_beside, 0, memory[i].at, 0, static_cast<std::uint32_t>(parts.size())}, {}};
      for (; i < memory.size() && memory[i].one_with(first) && memory[i].segment == in; ++i)
        run.part.size += memory[i].size;
      run.from = memory.subspan(begin, i - begin);
      beside_ssds = beside_ssds && segments_.count(run.part.segment) != 0;
      parts.push_back(run);
    }
    if (beside_ssds) all.push_back(std::move(parts));
  }
  return all;
}

/// How much of it each SSD gets.
std::map<std::uint32_t, std::uint64_t> object_table::by_disk(std::span<const disk_run> parts) {
  std::map<std::uint32_t, std::uint64_t> bytes;
  for (const auto& run : parts) bytes[run.part.segment] += run.part.size;
  return bytes;
}

/// On all of them or on none.
bool object_table::take_disk_room(std::uint32_t owner, const std::map<std::uint32_t, std::uint64_t>& bytes,
                                  time_point now) {
  const auto take = [&](const auto& one, bool more) {
    auto& d = *segments_.at(one.first).ssd;
    charge_disk(d, owner, one.second, more);
    more ? d.under_way += one.second : d.under_way -= one.second;
  };
  for (auto at = bytes.begin(); at != bytes.end(); ++at) {
    if (make_disk_room(*segments_.at(at->first).ssd, owner, at->second, now)) {
      take(*at, true);
      continue;
    }
    for (auto taken = bytes.begin(); taken != at; ++taken) take(*taken, false);
    return false;
  }
  return true;
}

/// @param leaving  it leaves memory when it is saved. @returns whether it is on its way.
bool object_table::save(entry& e, bool leaving, time_point now) {
  auto& o = e.second;
  for (auto& parts : savable(o)) {
    const auto bytes = by_disk(parts);
    const auto takes = [&](const auto& one) {
      const auto& s = segments_.at(one.first);
      const auto& d = *s.ssd;
      const auto most = std::min(saving_max, segments_.at(d.beside).usable_bytes() / saving_part);
      return d.open && !s.draining && d.paused_until <= now && one.second <= d.bytes &&
             d.under_way + one.second <= std::max(most, one.second);
    };
    if (!std::all_of(bytes.begin(), bytes.end(), takes) || !take_disk_room(o.owner, bytes, now)) continue;
    std::uint64_t going = 0;
    for (const auto& part : o.memory) going += part.bytes;
    if (leaving) set_going(o, going);
    order_.stand(o.place, eviction_order::standing::held);
    const auto replica = std::exchange(next_ticket_, next_ticket_ + parts.size());
    for (auto& [part, from] : parts) {
      part.ticket = replica + part.number;
      o.work.push_back(part);
      disk_work_[{part.segment, part.ticket}] = {&e};
      if (journal_)
        journal_->save(part.segment, record_on_disk(o, part, now), e.first,
                       o.in ? std::string_view{o.in->first} : std::string_view{}, places(from));
    }
    return true;
  }
  return false;
}

segment_record object_table::record_on_disk(const object& o, const disk_part& part, time_point now) const {
  auto r = record_of(o, {}, now);
  r.ticket = part.ticket;
  r.copy = part.number;
  r.at = part.at;
  r.size = part.size;
  return r;
}

/// @param bytes  that leave memory as soon as it is saved; zero: it stays.
void object_table::set_going(object& o, std::uint64_t bytes) {
  auto& who = owners_[o.owner];
  touch(o.owner);
  leaving_bytes_ += bytes - o.going;
  who.leaving_bytes += bytes - o.going;
  who.leaving += bytes != 0;
  who.leaving -= o.going != 0;
  o.going = bytes;
}

/// One that refuses to write is left alone for a while.
void object_table::note_writing(disk_state& d, bool good, time_point now) {
  if (!good && d.paused_until > now) return;  // what it had been told before it refused says nothing new
  d.pause = good ? duration{} : std::clamp(2 * d.pause, first_pause, longest_pause);
  d.paused_until = good ? time_point{} : now + d.pause;
}

/// All of it is there, or some of it will not be.
void object_table::end_save(entry& e, bool good, time_point now) {
  auto& o = e.second;
  const bool leaving = o.going > 0;
  const auto parts = o.work;
  end_work(e, !good, now);  // gives the room back; taken anew below
  count(o.owner, good ? &object_counts::saved : &object_counts::save_failures);
  if (good) {
    count(o.owner, &object_counts::saved_bytes, o.size);
    forget_alone(e.first);
    put_on_disk(e, parts);
  }
  if (o.leased || hold_with_group(e, now)) return;
  if (good && leaving) leave_memory(e, now);
  else offer(e, now);
}

}  // namespace mooncaf
