#include "transport/node_state.hpp"

#include <utility>

namespace mooncaf {

result<void> check_bounds(const slice& s, std::uint64_t length, const char* whose) {
  if (s.length <= length && s.offset <= length - s.length) return {};
  return fail(ec::invalid_argument, std::string{whose} + " slice [" + std::to_string(s.offset) + ", +" +
                                        std::to_string(s.length) + ") is outside region " +
                                        to_string(s.region) + " of " + std::to_string(length) + " bytes");
}

// ---- regions ----

void region_table::add(std::shared_ptr<local_region> region) {
  std::unique_lock lock{mutex_};
  const auto id = region->desc.id;
  regions_[id] = std::move(region);
}

std::shared_ptr<local_region> region_table::remove(region_id id) {
  std::unique_lock lock{mutex_};
  const auto it = regions_.find(id);
  if (it == regions_.end()) return nullptr;
  auto region = std::move(it->second);
  regions_.erase(it);
  return region;
}

std::shared_ptr<local_region> region_table::find(region_id id) const {
  std::shared_lock lock{mutex_};
  const auto it = regions_.find(id);
  return it == regions_.end() ? nullptr : it->second;
}

std::vector<region_desc> region_table::all() const {
  std::shared_lock lock{mutex_};
  std::vector<region_desc> out;
  out.reserve(regions_.size());
  for (const auto& [id, region] : regions_) out.push_back(region->desc);
  return out;
}

result<region_table::place> region_table::locate(const slice& s, const std::uint64_t* access_key) const {
  const bool for_peer = access_key != nullptr;
  std::shared_lock lock{mutex_};
  const auto it = regions_.find(s.region);
  if (it == regions_.end())
    return fail(ec::not_found,
                (for_peer ? "the peer has no region " : "no local region ") + to_string(s.region));
  const auto& region = *it->second;
  if (for_peer && region.desc.access_key != *access_key)
    return fail(ec::invalid_argument, "wrong access key for region " + to_string(s.region) + " of the peer");
  if (const auto ok = check_bounds(s, region.desc.length, for_peer ? "remote" : "local"); !ok)
    return fail(ok.error());
  return place{region.base + s.offset, region.desc.kind};
}

result<region_table::place> region_table::locate(const slice& s) const { return locate(s, nullptr); }

result<region_table::place> region_table::locate(const slice& s, std::uint64_t access_key) const {
  return locate(s, &access_key);
}

namespace {

result<std::byte*> for_processor(const result<region_table::place>& found, region_id region) {
  if (!found) return fail(found.error());
  if (found->kind == memory_kind::host) return found->at;
  return fail(ec::unsupported, "region " + to_string(region) + " is device memory, which only NICs reach");
}

}  // namespace

result<std::byte*> region_table::resolve(const slice& s) const { return for_processor(locate(s), s.region); }

result<std::byte*> region_table::resolve(const slice& s, std::uint64_t access_key) const {
  return for_processor(locate(s, access_key), s.region);
}

// ---- peers ----

std::shared_ptr<const peer_info> peer_table::find(node_id node) const {
  std::lock_guard lock{mutex_};
  const auto it = peers_.find(node);
  return it == peers_.end() ? nullptr : it->second;
}

void peer_table::put(peer_info info) {
  std::lock_guard lock{mutex_};
  const auto node = info.address.node;
  bans_.erase(node);
  peers_[node] = std::make_shared<const peer_info>(std::move(info));
}

void peer_table::erase(node_id node) {
  std::lock_guard lock{mutex_};
  peers_.erase(node);
}

void peer_table::ban(node_id node, const std::set<std::uint64_t>& incarnations) {
  std::lock_guard lock{mutex_};
  auto& b = bans_[node];
  if (incarnations.empty()) b.all = true;
  b.incarnations.insert(incarnations.begin(), incarnations.end());
}

bool peer_table::admits(node_id node, std::uint64_t incarnation) const {
  std::lock_guard lock{mutex_};
  const auto it = bans_.find(node);
  return it == bans_.end() || (!it->second.all && !it->second.incarnations.contains(incarnation));
}

void peer_table::count_fence(node_id node) {
  std::lock_guard lock{mutex_};
  ++fences_[node];
}

std::uint64_t peer_table::fences_of(node_id node) const {
  std::lock_guard lock{mutex_};
  const auto it = fences_.find(node);
  return it == fences_.end() ? 0 : it->second;
}

// ---- landings ----

landing_log::entry& landing_log::entry_of(node_id node, std::uint64_t incarnation) {
  auto& e = nodes_[node];
  if (e.incarnation != incarnation) {
    e = {};
    e.incarnation = incarnation;
  }
  return e;
}

landing_log::page& landing_log::page_of(node_id node, std::uint64_t incarnation, transfer_id id) {
  auto& e = entry_of(node, incarnation);
  const auto [it, fresh] = e.pages.try_emplace(id.value / page::ids);
  if (fresh) e.order.push_back(it->first);
  return it->second;
}

landing_log::state landing_log::claim(node_id node, std::uint64_t incarnation, transfer_id id) {
  std::lock_guard lock{mutex_};
  auto& p = page_of(node, incarnation, id);
  auto& s = state_in(p, id);
  if (s != state::fresh) return s;
  s = state::claimed;
  ++p.claimed;
  return state::fresh;
}

void landing_log::release(node_id node, std::uint64_t incarnation, transfer_id id) {
  std::lock_guard lock{mutex_};
  auto& p = page_of(node, incarnation, id);
  auto& s = state_in(p, id);
  if (s != state::claimed) return;
  s = state::fresh;
  --p.claimed;
}

bool landing_log::finish(node_id node, std::uint64_t incarnation, transfer_id id, bool landed) {
  constexpr std::size_t remembered = 65536;
  std::lock_guard lock{mutex_};
  auto& p = page_of(node, incarnation, id);
  auto& s = state_in(p, id);
  if (s == state::landed || s == state::failed) return false;
  if (s == state::claimed) --p.claimed;
  s = landed ? state::landed : state::failed;
  ++p.finished;
  auto& e = entry_of(node, incarnation);
  ++e.finished;
  for (const page* oldest = &e.pages.at(e.order.front());
       oldest->claimed == 0 && e.finished - oldest->finished >= remembered;
       oldest = &e.pages.at(e.order.front())) {
    e.finished -= oldest->finished;
    e.pages.erase(e.order.front());
    e.order.pop_front();
  }
  return true;
}

landing_log::state landing_log::look(node_id node, std::uint64_t incarnation, transfer_id id) const {
  std::lock_guard lock{mutex_};
  const auto n = nodes_.find(node);
  if (n == nodes_.end() || n->second.incarnation != incarnation) return state::fresh;
  const auto it = n->second.pages.find(id.value / page::ids);
  return it == n->second.pages.end() ? state::fresh : it->second.states[id.value % page::ids];
}

// ---- figures and callbacks ----

std::vector<path_stats> stats_table::all() const {
  std::lock_guard lock{mutex_};
  std::vector<path_stats> out;
  for (const auto& [key, line] : lines_) out.push_back(line);
  return out;
}

void node_state::deliver(std::function<void()> callback) const {
  if (executor) executor(std::move(callback));
  else callback();
}

void node_state::announce(landing l, transfer_path path) {
  stats.update(l.from, path, [&](path_stats& s) {
    ++s.landings;
    if (l.verified) s.bytes_landed += l.bytes;
    else ++s.checksum_failures;
  });
  if (on_landing) deliver([this, l] { on_landing(l); });
}

fault node_state::next_fault(transfer_path path, transfer_id id, std::uint32_t slice_index) const {
  return options.faults ? options.faults->before_slice(path, id, slice_index) : fault{};
}

}  // namespace mooncaf
