#include "storage/objects/table/disk_space.hpp"

#include <algorithm>

#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

namespace {
constexpr duration first_pause = std::chrono::seconds(1), longest_pause = std::chrono::seconds(60);
}  // namespace

// ---- SSDs -------------------------------------------------------------------------------------------------

void disk_space::mount(std::uint32_t id, mounted&& is) { disks_[id].is = std::move(is); }

std::uint32_t disk_space::named(std::string_view name) const {
  for (const auto& [id, d] : disks_)
    if (d.is.name == name) return id;
  return 0;
}

std::vector<std::uint32_t> disk_space::ids() const {
  std::vector<std::uint32_t> all;
  for (const auto& [id, d] : disks_) all.push_back(id);
  return all;
}

segment_view disk_space::view(std::uint32_t id, std::uint32_t owner) const {
  const auto& d = disks_.at(id);
  const auto own = owner < d.used_by.size() ? d.used_by[owner] : 0;
  return {id,
          d.is.name,
          d.is.host,
          d.is.bytes,
          d.is.bytes - (owner == 0 ? d.used : own),
          d.is.draining,
          storage_tier::ssd,
          0};
}

std::uint64_t disk_space::total_bytes() const {
  std::uint64_t n = 0;
  for (const auto& [id, d] : disks_) n += d.is.bytes;
  return n;
}

std::size_t disk_space::disk::objects() const {
  std::size_t n = 0;
  for (const auto& [owner, all] : leaves) n += all.size();
  return n;
}

void disk_space::count_into(object_counts& c) const {
  for (const auto& [id, d] : disks_) {
    c.disk_total_bytes += d.is.bytes;
    c.disk_bytes += d.used;
    c.disk_objects += d.objects();
  }
}

// ---- contents ---------------------------------------------------------------------------------------------

std::uint64_t disk_space::free_bytes(std::uint32_t id) const {
  const auto& d = disks_.at(id);
  return d.is.bytes - d.used;
}

void disk_space::charge(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes) {
  disks_.at(id).used += bytes;
  quotas_.more(owner, &tenant_use::disk_bytes, bytes);
}

void disk_space::uncharge(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes) {
  disks_.at(id).used -= bytes;
  quotas_.less(owner, &tenant_use::disk_bytes, bytes);
}

void disk_space::put(stored_object& o, const disk_part& part) {
  charge(part.segment, o.owner, part.size);
  auto& d = disks_.at(part.segment);
  if (d.used_by.size() <= o.owner) d.used_by.resize(o.owner + 1);
  d.used_by[o.owner] += part.size;
  d.leaves[o.owner].insert({o.on_disk.rank_, &o});
}

void disk_space::take_off(const stored_object& o, const disk_part& part) {
  auto& d = disks_.at(part.segment);
  d.leaves[o.owner].erase({o.on_disk.rank_, const_cast<stored_object*>(&o)});
  uncharge(part.segment, o.owner, part.size);
  d.used_by[o.owner] -= part.size;
}

void disk_space::rank_first(stored_object& o, std::uint32_t depth) {
  o.on_disk.rank_ = {o.order.counted(), ~depth, o.version};
}

void disk_space::rank_again(stored_object& o) {
  const rank now{o.order.counted(), std::get<1>(o.on_disk.rank_), o.version};
  for (const auto& part : o.disks) {
    auto& in = disks_.at(part.segment).leaves[o.owner];
    in.erase({o.on_disk.rank_, &o});
    in.insert({now, &o});
  }
  o.on_disk.rank_ = now;
}

// ---- writing ----------------------------------------------------------------------------------------------

bool disk_space::may_save(std::uint32_t id, std::uint64_t bytes, time_point now) const {
  const auto& d = disks_.at(id);
  return d.open && !d.is.draining && d.paused_until <= now && bytes <= d.is.bytes;
}

bool disk_space::has_time_for(std::uint32_t id, std::uint64_t bytes, std::uint64_t memory_bytes) const {
  const auto most = std::min(saving_max, memory_bytes / saving_part);
  return disks_.at(id).under_way + bytes <= std::max(most, bytes);
}

void disk_space::begin_save(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes) {
  charge(id, owner, bytes);
  disks_.at(id).under_way += bytes;
}

void disk_space::end_save(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes) {
  disks_.at(id).under_way -= bytes;
  uncharge(id, owner, bytes);
}

void disk_space::note_writing(std::uint32_t id, bool good, time_point now) {
  auto& d = disks_.at(id);
  if (!good && d.paused_until > now)
    return;  // a job that was under way when the disk refused the first one
             // tells nothing new
  d.pause = good ? duration{} : std::clamp(2 * d.pause, first_pause, longest_pause);
  d.paused_until = good ? time_point{} : now + d.pause;
}

// ---- leaving ----------------------------------------------------------------------------------------------

std::optional<disk_space::walk::found> disk_space::walk::next() {
  std::erase_if(cursors_, [](const cursor& c) { return c.at == c.end; });
  const auto oldest = std::min_element(cursors_.begin(), cursors_.end(), [](const auto& a, const auto& b) {
    return a.at->first < b.at->first;
  });
  if (oldest == cursors_.end()) return std::nullopt;
  const found one{oldest->at->second, oldest->disk};
  for (auto& c : cursors_)  // parts of it may be on several
    if (c.at != c.end && c.at->second == one.object && (&c == &*oldest || one.object->disks.size() > 1))
      ++c.at;
  return one;
}

disk_space::walk disk_space::walk_tenant(std::uint32_t owner) {
  walk w;
  for (auto& [id, d] : disks_) {
    auto& in = d.leaves[owner];
    w.cursors_.push_back({id, in.begin(), in.end()});
  }
  return w;
}

disk_space::walk disk_space::walk_disk(std::uint32_t id) {
  walk w;
  for (auto& [owner, in] : disks_.at(id).leaves) w.cursors_.push_back({id, in.begin(), in.end()});
  return w;
}

bool disk_space::agrees_with(const std::map<std::uint32_t, std::uint64_t>& used,
                             const std::map<std::uint32_t, std::size_t>& objects) const {
  const auto of = [](const auto& all, std::uint32_t id) {
    const auto found = all.find(id);
    return found == all.end() ? 0 : found->second;
  };
  for (const auto& [id, d] : disks_)
    if (d.used != of(used, id) || d.objects() != of(objects, id) || d.used > d.is.bytes) return false;
  return true;
}

bool disk_space::is_ranked(const stored_object& o, std::uint32_t id) const {
  const auto& leaves = disks_.at(id).leaves;
  const auto in = leaves.find(o.owner);
  return in != leaves.end() && in->second.count({o.on_disk.rank_, const_cast<stored_object*>(&o)}) != 0;
}

}  // namespace mooncaf
