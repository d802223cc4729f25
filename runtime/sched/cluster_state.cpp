#include "runtime/sched/cluster_state.hpp"

#include <algorithm>

namespace mooncaf {

cluster_state::cluster_state(duration decode_span)
    : decode_span_(decode_span), decode_(decode_span), forecast_(decode_span), survival_(decode_span) {}

// ---- nodes and instances
// --------------------------------------------------------------------------------------------

void cluster_state::add_node(node_id id, node_index index, time_point now) {
  nodes_[id] = {index, now};
  if (by_index_.size() <= index) by_index_.resize(std::size_t{index} + 1);
  by_index_[index] = id;
}

std::optional<node_index> cluster_state::index_of(node_id id) const {
  const auto i = nodes_.find(id);
  if (i == nodes_.end()) return std::nullopt;
  return i->second.index;
}

void cluster_state::renumber(node_id id, node_index index) {
  const auto i = nodes_.find(id);
  if (i == nodes_.end()) return;
  by_index_[i->second.index] = node_id{};
  add_node(id, index, i->second.seen);
  std::vector<instance_slot> moved;
  for (const auto& [worker, s] : seats_) {
    if (s.role == worker_role::prefill && prefill_.desc(s.slot).node == id) moved.push_back(s.slot);
  }
  std::ranges::sort(moved);
  for (const auto slot : moved) prefill_.move_node(slot, index);
}

std::vector<request_id> cluster_state::remove_node(node_id id) {
  std::vector<request_id> lost;
  const auto i = nodes_.find(id);
  if (i == nodes_.end()) return lost;
  std::vector<worker_id> gone;  // in the order of ids: later steps must not depend on a hash table's
  for (const auto& [worker, s] : seats_) {
    const auto& desc = s.role == worker_role::prefill ? prefill_.desc(s.slot) : decode_.desc(s.slot);
    if (desc.node == id) gone.push_back(worker);
  }
  std::ranges::sort(gone);
  for (const auto worker : gone) {
    const auto more = remove_instance(worker);
    lost.insert(lost.end(), more.begin(), more.end());
  }
  const auto clients = charged_by(id);
  for (const auto request : clients) release(request, request_state::lost, {});
  lost.insert(lost.end(), clients.begin(), clients.end());
  by_index_[i->second.index] = node_id{};
  nodes_.erase(i);
  return lost;
}

void cluster_state::excuse(duration away, time_point now) {
  for (auto& [id, n] : nodes_) n.seen = std::min(n.seen + away, now);
}

void cluster_state::touch(node_id id, time_point now) {
  if (const auto i = nodes_.find(id); i != nodes_.end()) i->second.seen = std::max(i->second.seen, now);
}

std::vector<node_id> cluster_state::silent_since(time_point when) const {
  std::vector<node_id> silent;
  for (const auto& [id, n] : nodes_) {
    if (n.seen < when) silent.push_back(id);
  }
  std::ranges::sort(silent);
  return silent;
}

result<void> cluster_state::add_instance(const instance_desc& desc) {
  const auto n = nodes_.find(desc.node);
  if (n == nodes_.end()) {
    return fail(ec::not_found, "instance " + to_string(desc.id) + " names node " + to_string(desc.node) +
                                   ", which has not joined");
  }
  if (seats_.contains(desc.id)) return fail(ec::already_exists, "instance " + to_string(desc.id));
  const auto slot =
      desc.role == worker_role::prefill ? prefill_.add(desc, n->second.index) : decode_.add(desc);
  seats_.emplace(desc.id, seat{desc.role, slot});
  if (desc.role == worker_role::decode) decode_on_[desc.node].push_back(slot);
  return {};
}

result<void> cluster_state::set_state(worker_id worker, instance_state state) {
  const auto i = seats_.find(worker);
  if (i == seats_.end()) return fail(ec::not_found, "instance " + to_string(worker));
  if (i->second.role == worker_role::prefill) {
    prefill_.set_state(i->second.slot, state);
  } else {
    decode_.set_state(i->second.slot, state);
  }
  return {};
}

std::vector<request_id> cluster_state::charged_to(const seat& s) const {
  std::vector<request_id> found;
  for (const auto& [id, c] : charges_) {
    const bool here =
        s.role == worker_role::prefill ? c.in_prefill() && c.what.prefill == s.slot : c.what.decode == s.slot;
    if (here) found.push_back(id);
  }
  std::ranges::sort(found);  // whatever follows does not depend on the order in a hash table
  return found;
}

std::vector<request_id> cluster_state::charged_by(node_id gateway) const {
  std::vector<request_id> found;
  for (const auto& [id, c] : charges_) {
    if (c.what.gateway == gateway) found.push_back(id);
  }
  std::ranges::sort(found);
  return found;
}

std::vector<request_id> cluster_state::remove_instance(worker_id worker) {
  const auto i = seats_.find(worker);
  if (i == seats_.end()) return {};
  const auto s = i->second;
  auto lost = charged_to(s);
  for (const auto id : lost) release(id, request_state::lost, {});
  unseat(s);
  seats_.erase(i);
  return lost;
}

void cluster_state::unseat(const seat& s) {
  if (s.role == worker_role::decode) {
    const auto here = decode_on_.find(decode_.desc(s.slot).node);
    std::erase(here->second, s.slot);
    if (here->second.empty()) decode_on_.erase(here);
    return decode_.remove(s.slot);
  }
  // Requests that decode elsewhere by now must not name a slot that the next instance gets.
  for (auto& [id, c] : charges_) {
    if (c.what.prefill == s.slot) c.what.prefill = no_slot;
  }
  prefill_.remove(s.slot);
}

void cluster_state::report(worker_id worker, const instance_load& load, time_point now) {
  const auto i = seats_.find(worker);
  if (i == seats_.end()) return;
  if (i->second.role == worker_role::decode) {
    decode_.report(i->second.slot, load);
  } else {
    prefill_.heard_of(i->second.slot, now);
  }
}

// ---- requests
// -------------------------------------------------------------------------------------------------------

namespace {

decode_pool::needs needs_of(const cluster_state::placed& p) {
  return {p.context_tokens, std::max(p.memory_tokens, p.context_tokens)};
}

decode_survival::decoding decoding_of(const cluster_state::placed& p) {
  return {p.context_tokens, std::max(p.memory_tokens, p.context_tokens), p.answer, p.decode};
}

}  // namespace

template <class Visit>
void cluster_state::for_each_host(const placed& p, Visit&& visit) const {
  if (p.prefill == no_slot) return;
  const auto here = prefill_.desc(p.prefill).node;
  if (decode_.desc(p.decode).node == here) return;  // handed over in place: decode is charged for it
  for (const auto slot : decode_on(here)) visit(slot);
}

void cluster_state::charge(request_id id, const placed& p, time_point now) {
  release(id, request_state::lost, now);
  charge_record made;
  made.what = p;
  // A queue of hours says nothing about decoding then, and would only take buckets.
  made.what.prefill_end = std::min(p.prefill_end, now + 1000 * decode_span_);
  made.since = made.what.since = now;
  made.what.predicted = p.prefill_end - now;
  prefill_.charge(p.prefill, p.prefill_cost, now, p.urgent);
  decode_.charge(p.decode, needs_of(p));
  forecast_.add(made.what.prefill_end, p.context_tokens, p.memory_tokens);
  survival_.add(made.what.prefill_end, decoding_of(p));
  for_each_host(p, [&](instance_slot slot) { decode_.occupy(slot, p.context_tokens); });
  charges_.emplace(id, made);
}

bool cluster_state::prefill_started(request_id id) {
  const auto i = charges_.find(id);
  return i != charges_.end() && i->second.life.advance(request_state::prefilling);
}

std::optional<cluster_state::placed> cluster_state::first_token(request_id id, time_point now) {
  const auto i = charges_.find(id);
  if (i == charges_.end() || !i->second.life.advance(request_state::decoding)) return std::nullopt;
  auto& what = i->second.what;
  prefill_.completed(what.prefill, what.prefill_cost, now, what.urgent);
  decode_.arrived(what.decode, needs_of(what));
  for_each_host(what, [&](instance_slot slot) { decode_.vacate(slot, what.context_tokens); });
  forecast_.remove(what.prefill_end, what.context_tokens, what.memory_tokens);
  survival_.remove(what.prefill_end, decoding_of(what));
  what.prefill_end = now;
  forecast_.add(what.prefill_end, what.context_tokens, what.memory_tokens);
  survival_.add(what.prefill_end, decoding_of(what));
  auto done = what;
  what.kv = {};
  return done;
}

bool cluster_state::release(request_id id, request_state how, time_point now, std::uint32_t tokens) {
  const auto i = charges_.find(id);
  if (i == charges_.end()) return false;
  auto& c = i->second;
  const bool in_prefill = c.in_prefill();
  if (in_prefill) {
    prefill_.withdrawn(c.what.prefill, c.what.prefill_cost, now, c.what.urgent);
    for_each_host(c.what, [&](instance_slot slot) { decode_.vacate(slot, c.what.context_tokens); });
  }
  decode_.release(c.what.decode, needs_of(c.what), !in_prefill);
  forecast_.remove(c.what.prefill_end, c.what.context_tokens, c.what.memory_tokens);
  survival_.remove(c.what.prefill_end, decoding_of(c.what));
  if (!in_prefill && how == request_state::finished) {
    survival_.observe(c.what.prefill_end, c.what.answer, now, tokens);
    if (c.what.session != block_key{}) sessions_.remember(c.what.session, tokens);
    tenants_.remember(c.what.tenant, tokens);
  }
  // A request may be over before word came that it decoded.
  if (!c.life.advance(how)) c.life.advance(request_state::failed);
  charges_.erase(i);
  return true;
}

const cluster_state::placed* cluster_state::charged(request_id id) const {
  const auto i = charges_.find(id);
  return i == charges_.end() ? nullptr : &i->second.what;
}

std::vector<request_id> cluster_state::charged_before(time_point when) const {
  std::vector<request_id> old;
  for (const auto& [id, c] : charges_) {
    if (c.since < when) old.push_back(id);
  }
  std::ranges::sort(old);
  return old;
}

// ---- views
// ----------------------------------------------------------------------------------------------------------

std::span<const instance_slot> cluster_state::decode_on(node_id id) const {
  const auto i = decode_on_.find(id);
  if (i == decode_on_.end()) return {};
  return i->second;
}

std::optional<instance_view> cluster_state::view(worker_id worker, time_point now) const {
  const auto i = seats_.find(worker);
  if (i == seats_.end()) return std::nullopt;
  const auto slot = i->second.slot;
  instance_view v;
  v.id = worker;
  v.role = i->second.role;
  if (v.role == worker_role::prefill) {
    v.node = prefill_.desc(slot).node;
    v.state = prefill_.desc(slot).state;
    v.charged = prefill_.pending(slot);
    v.queue = prefill_.queue(slot, now);
  } else {
    v.node = decode_.desc(slot).node;
    v.state = decode_.desc(slot).state;
    v.charged = decode_.charged(slot);
    if (v.charged > 0) v.step = decode_.step(slot, 0, false);
  }
  return v;
}

std::vector<instance_view> cluster_state::views(time_point now) const {
  std::vector<instance_view> all;
  all.reserve(seats_.size());
  for (const auto& [worker, s] : seats_) all.push_back(*view(worker, now));
  std::ranges::sort(all, {}, &instance_view::id);
  return all;
}

}  // namespace mooncaf
