// How a transfer goes from path to path until it completes, once.

#include <algorithm>
#include <optional>

#include "transport/data_plane_impl.hpp"

namespace mooncaf {

// ---- transfers ----

std::vector<transport*> data_plane::impl::paths_to(node_id peer) {
  if (peer == node.options.node) return {local.get()};
  std::vector<transport*> paths;
  const auto now = clock_type::now();
  std::lock_guard lock{mutex};
  const auto avoided = [&](transfer_path p) {
    const auto it = avoided_until.find({peer, p});
    return it != avoided_until.end() && now < it->second;
  };
  const bool has_tcp = tcp && tcp->capabilities(peer).usable;
  const bool has_rdma = rdma && rdma->capabilities(peer).usable && !(has_tcp && avoided(transfer_path::rdma));
  if (shm && shm->capabilities(peer).usable && !((has_tcp || has_rdma) && avoided(transfer_path::shm)))
    paths.push_back(shm.get());
  if (has_rdma) paths.insert(paths.end(), 2, rdma.get());
  // Twice: a connection that breaks is made anew once.
  if (has_tcp) paths.insert(paths.end(), 2, tcp.get());
  return paths;
}

// Checks every slice against the description of its region before any path sees the transfer, so that paths
// need not agree on its faults.
result<data_plane::impl::device_use> data_plane::impl::check(const transfer& t) const {
  if (!t.id) return fail(ec::invalid_argument, "a transfer needs an id");
  if (t.op != transfer_op::write && t.op != transfer_op::read)
    return fail(ec::invalid_argument, "a transfer writes or reads");
  const bool to_self = t.peer == node.options.node;
  const auto info = to_self ? nullptr : node.peers.find(t.peer);
  if (!to_self && !info) return fail(ec::not_found, "no peer " + to_string(t.peer));
  device_use use;
  for (const auto& pair : t.slices) {
    if (pair.local.length != pair.remote.length)
      return fail(ec::invalid_argument,
                  "the two slices of a pair differ in length: " + std::to_string(pair.local.length) +
                      " and " + std::to_string(pair.remote.length));
    const auto local_at = node.regions.locate(pair.local);
    if (!local_at) return fail(local_at.error());
    if (local_at->kind == memory_kind::device) {
      if (pair.expected_checksum)
        return fail(ec::invalid_argument,
                    "what is read into device memory cannot be checked against a checksum");
      use.add(node.options.node, pair.local.region, true);
    }
    if (to_self) {
      const auto at = node.regions.locate(pair.remote);
      if (!at) return fail(at.error());
      if (at->kind == memory_kind::device) use.add(t.peer, pair.remote.region, false);
      continue;
    }
    const auto region = info->regions.find(pair.remote.region);
    if (region == info->regions.end())
      return fail(ec::not_found,
                  "node " + to_string(t.peer) + " has no region " + to_string(pair.remote.region));
    if (const auto ok = check_bounds(pair.remote, region->second.length, "remote"); !ok)
      return fail(ok.error());
    if (region->second.kind == memory_kind::device) use.add(t.peer, pair.remote.region, false);
  }
  return use;
}

// Leaves the paths that can address device memory, this transfer's in particular.
result<void> data_plane::impl::keep_device_paths(node_id peer, const device_use& use,
                                                 std::vector<transport*>& paths) const {
  std::string why;
  std::erase_if(paths, [&](const transport* p) {
    if (!p->capabilities(peer).device_memory) return true;
    return std::any_of(use.local.begin(), use.local.end(), [&](region_id id) {
      const auto ok = p->reaches(id);
      if (!ok) why = ok.error().detail;
      return !ok;
    });
  });
  if (!paths.empty()) return {};
  const auto info = node.peers.find(peer);
  if (peer == node.options.node) why = "copies within a node are the device's own business";
  else if (!rdma) why = why_no_rdma();
  else if (!info || info->address.rdma_rails.empty()) why = "node " + to_string(peer) + " offers none";
  else if (why.empty()) why = "no rail of this node is up";
  return fail(ec::unsupported, use.first + " is device memory, which only RDMA reaches: " + why);
}

// Counts a use of each local region. Called with the lock, so that no region is unregistered between its
// check and its use.
result<std::vector<std::shared_ptr<local_region>>> data_plane::impl::use_regions(const transfer& t) const {
  std::vector<std::shared_ptr<local_region>> used;
  region_id last;
  const auto use = [&](region_id id) -> bool {
    if (!used.empty() && id == last) return true;
    auto r = node.regions.find(id);
    if (!r) return false;
    last = id;
    used.push_back(std::move(r));
    return true;
  };
  for (const auto& pair : t.slices)
    if (!use(pair.local.region))
      return fail(ec::not_found, "no local region " + to_string(pair.local.region));
  for (const auto& r : used) ++r->uses;
  return used;
}

void data_plane::impl::refuse(const transfer& what, completion_handler& on_done, error why) {
  node.deliver([on_done = std::move(on_done),
                c = completion{.id = what.id, .outcome = fail(std::move(why))}] { on_done(c); });
}

// Writes that are known to have landed complete at once; others begin with the best path. Limits and names of
// orders are checked under one lock, so that two threads cannot submit one id.
void data_plane::impl::submit(transfer what, completion_handler on_done) {
  const auto on_device = check(what);
  if (!on_device) return refuse(what, on_done, on_device.error());
  const auto peer = node.peers.find(what.peer);
  const auto seen_by = [&](const landing_log& log) {
    return log.look(what.peer, peer ? peer->address.incarnation : 0, what.id) == landing_log::state::landed;
  };
  what.repeated = what.op == transfer_op::write && seen_by(tried);
  if (what.op == transfer_op::write && seen_by(delivered)) {
    node.deliver([on_done = std::move(on_done), id = what.id] { on_done({.id = id, .outcome = {}}); });
    return;
  }
  auto paths = paths_to(what.peer);
  if (!on_device->first.empty())
    if (const auto ok = keep_device_paths(what.peer, *on_device, paths); !ok)
      return refuse(what, on_done, ok.error());
  if (paths.empty())
    return refuse(what, on_done, {ec::unavailable, "no path to node " + to_string(what.peer)});
  auto o = std::make_shared<order>();
  o->submitted = clock_type::now();
  o->paths = std::move(paths);
  std::optional<error> no;
  {
    std::lock_guard lock{mutex};
    if (stopping) no = error{ec::cancelled, "the data plane stops"};
    else if (orders.size() >= node.options.max_transfers)
      no = error{ec::overloaded, std::to_string(orders.size()) + " transfers are under way"};
    else if (orders.contains(what.id))
      no = error{ec::already_exists, "transfer " + to_string(what.id) + " is under way"};
    else if (auto uses = use_regions(what); !uses) no = uses.error();
    else {
      o->uses = std::move(*uses);
      orders[what.id] = o;
    }
  }
  if (no) return refuse(what, on_done, *no);
  o->what = std::move(what);
  o->on_done = std::move(on_done);
  attempt(o);
}

void data_plane::impl::attempt(const std::shared_ptr<order>& o) {
  transport* t = nullptr;
  {
    std::lock_guard lock{mutex};
    t = o->paths.front();
    o->paths.erase(o->paths.begin());
    o->current = t;
  }
  t->submit(o->what, [this, o](const completion& c) { attempt_ended(o, c); });
  bool cancelled = false;
  {
    // A cancel that came before the path knew of the transfer found nothing there, so it is repeated here.
    std::lock_guard lock{mutex};
    cancelled = o->cancelled && o->current == t;
  }
  if (cancelled) t->cancel(o->what.id);
}

void data_plane::impl::attempt_ended(const std::shared_ptr<order>& o, completion c) {
  bool again = false;
  const auto now = clock_type::now();
  const auto code = c.outcome ? ec::none : c.outcome.error().code;
  const bool link_unusable =
      code == ec::unavailable || code == ec::unauthenticated || code == ec::incompatible;
  {
    std::lock_guard lock{mutex};
    o->current = nullptr;
    o->unfenced |= !c.fenced;
    if (link_unusable) avoided_until[{o->what.peer, c.path}] = now + node.options.retry_after;
    // Late bytes of an unfenced attempt must not meet the next one's; over TCP the receiver tells them apart.
    again = !c.outcome && (c.fenced || c.path == transfer_path::tcp) && is_path_failure(code) &&
            !o->paths.empty() && !o->cancelled && !stopping && now < o->what.deadline &&
            node.peers.find(o->what.peer);
  }
  if (!c.outcome) node.stats.update(o->what.peer, c.path, [](path_stats& s) { ++s.failures; });
  if (!again) return finish(o, std::move(c));
  node.stats.update(o->what.peer, o->paths.front()->path(), [](path_stats& s) { ++s.retries; });
  o->what.repeated = true;
  attempt(o);
}

void data_plane::impl::finish(const std::shared_ptr<order>& o, completion c) {
  c.id = o->what.id;
  c.seconds = to_seconds(clock_type::now() - o->submitted);
  // A peer that took a later attempt has dropped the links of the earlier ones.
  c.fenced = c.outcome.has_value() || !o->unfenced;
  count(*o, c);
  if (o->what.op == transfer_op::write) {
    const auto peer = node.peers.find(o->what.peer);
    (c.outcome ? delivered : tried).finish(o->what.peer, peer ? peer->address.incarnation : 0, c.id, true);
  }
  {
    std::lock_guard lock{mutex};
    for (const auto& r : o->uses) --r->uses;
    orders.erase(c.id);
  }
  node.deliver([on_done = std::move(o->on_done), c = std::move(c)] { on_done(c); });
}

void data_plane::impl::count(const order& o, const completion& c) {
  if (!c.outcome) return;
  node.stats.update(o.what.peer, c.path, [&](path_stats& s) {
    ++s.transfers;
    (o.what.op == transfer_op::write ? s.bytes_written : s.bytes_read) += c.bytes;
    s.latency.add(c.seconds);
  });
}

void data_plane::submit(transfer what, completion_handler on_done) {
  impl_->submit(std::move(what), std::move(on_done));
}

void data_plane::cancel(transfer_id id) {
  transport* t = nullptr;
  {
    std::lock_guard lock{impl_->mutex};
    const auto it = impl_->orders.find(id);
    if (it == impl_->orders.end()) return;
    it->second->cancelled = true;
    t = it->second->current;
  }
  if (t) t->cancel(id);
}

}  // namespace mooncaf
