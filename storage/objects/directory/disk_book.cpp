#include "storage/objects/directory/disk_book.hpp"

#include <algorithm>

#include "runtime/base/hash.hpp"
#include "storage/objects/terms/key_scope.hpp"

namespace mooncaf {

namespace {
std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }
}  // namespace

const disk_book::disk_state* disk_book::find(std::uint64_t number) const {
  for (const auto& [segment, d] : disks_)
    if (d.number == number) return &d;
  return nullptr;
}

bool disk_book::is_complete(std::uint64_t number) const {
  const auto* const d = find(number);
  return d && !d->announcing;
}

bool disk_book::mount(std::uint32_t segment, std::uint64_t number, std::uint64_t store, bool continued) {
  const bool noted = store == notes_->store() && notes_->knows(number), known = noted || continued;
  // Notes that cannot be written to their file stay in memory, and the next directory does not know the SSD.
  if (!noted) static_cast<void>(notes_->adopt(number));
  if (known) notes_->leave(number);  // until it has announced all
  disks_[segment] = {number, known, !noted, false, {}};
  return known;
}

void disk_book::lose(std::uint32_t segment) {
  const auto gone = disks_.extract(segment);
  const auto& d = gone.mapped();
  notes_->leave(d.number);
  for (const auto& [frame, key] : d.unacknowledged) notes_->note(d.number, key);
}

void disk_book::distrust(std::uint32_t segment) {
  const auto [number, by_life] = std::pair{disks_.at(segment).number, disks_.at(segment).continued};
  lose(segment);
  if (by_life) notes_->drop(number);
}

bool disk_book::is_stale(std::uint32_t segment, std::string_view key) const {
  const auto number = disks_.at(segment).number;
  if (notes_->noted(number, hash_of(key))) return true;
  const auto tenant = split_name(key).tenant;
  return !tenant.empty() && notes_->noted(number, hash_of(all_of(tenant)));
}

void disk_book::announced(std::uint32_t segment) {
  auto& d = disks_.at(segment);
  d.announcing = false;
  d.to_clear = true;
  notes_->is_back(d.number);
}

void disk_book::erased(std::uint32_t segment, std::uint64_t frame, std::string_view key) {
  disks_.at(segment).unacknowledged.emplace_back(frame, hash_of(key));
}

void disk_book::acknowledged(std::uint32_t segment, std::uint64_t frame) {
  auto& d = disks_.at(segment);
  while (!d.unacknowledged.empty() && d.unacknowledged.front().first <= frame) d.unacknowledged.pop_front();
  if (d.to_clear && d.unacknowledged.empty()) notes_->clear(d.number);
  d.to_clear = d.to_clear && !d.unacknowledged.empty();
}

void disk_book::changed(std::string_view key) {
  const auto hash = hash_of(key);
  notes_->note(hash);
  for (const auto& [segment, d] : disks_)
    if (std::any_of(d.unacknowledged.begin(), d.unacknowledged.end(),
                    [&](const auto& u) { return u.second == hash; }))
      notes_->note(d.number, hash);
}

}  // namespace mooncaf
