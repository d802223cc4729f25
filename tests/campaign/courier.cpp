#include "tests/campaign/courier.hpp"

#include <algorithm>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration pin_limit = 10s;
constexpr duration read_limit = 20s;
constexpr duration close_again = 1s;

/// Every layer is a piece of its own, and runs are short, so that most fetches have several pieces.
fetch_options draw_options(dice& luck) {
  fetch_options out;
  out.layout = {.n_layers = layers, .n_kv_heads = 1, .head_dim = 8, .block_tokens = block_tokens};
  if (luck.chance(30)) out.layout.pages = page_order::layer_first;
  out.pieces.run_blocks = 2;
  out.pieces.full_speed = out.layout.layer_bytes();
  out.link = [layout = out.layout](node_id, std::uint64_t bytes, time_point) {
    return 100us * static_cast<int>(bytes / layout.block_bytes());
  };
  return out;
}

/// The part of a slot's word that these layers are.
std::uint64_t bits_of(std::uint32_t first, std::uint32_t count) {
  constexpr auto width = 64 / layers + 1;
  std::uint64_t out = 0;
  for (auto bit = first * width; bit < std::min(64u, (first + count) * width); ++bit)
    out |= std::uint64_t{1} << bit;
  return out;
}

}  // namespace

courier::courier(machine& here) : here_(here), fetches_(draw_options(here.w.luck)) {}

void courier::act() {
  const auto all = [this](auto actions) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  };
  all(peers_.take_actions());
  all(fetches_.take_actions());
}

// ---- peers

bool courier::reaches(process peer) const {
  const auto i = admitted_.find(peer);
  return peer == here_.self || (i != admitted_.end() && i->second);
}

std::uint64_t courier::fences_of(process peer) const {
  const auto i = closed_.find(peer);
  return i == closed_.end() ? 0 : i->second;
}

void courier::up(process peer) {
  peers_.up(node_of(peer));
  act();
}

void courier::down(process peer) {
  peers_.down(node_of(peer));
  act();
}

void courier::fence(process peer, std::uint64_t fences, std::function<void()> answered) {
  const auto ticket = next_++;
  fences_[ticket] = std::move(answered);
  peers_.fence(node_of(peer), fences, fences_of(peer), ticket);
  act();
}

void courier::carry_out(const peer_action::admit& order) {
  const auto peer = process_of(order.peer);
  admitted_[peer] = open_to_[peer] = true;
  if (here_.at(peer).cache) fetches_.peer_up(order.peer);
}

void courier::carry_out(const peer_action::part& order) {
  admitted_[process_of(order.peer)] = false;
  fetches_.peer_down(order.peer);
}

void courier::carry_out(const peer_action::remove& order) {
  carry_out(peer_action::part{order.peer});
  // What was under way to it has failed here, and may land there all the same.
  std::vector<std::uint64_t> writes, reads_from_it;
  for (const auto& [id, t] : under_way_) {
    if (node_of(t.to) == order.peer) writes.push_back(id);
  }
  for (const auto& [id, r] : reading_) {
    if (r.what.from == order.peer) reads_from_it.push_back(id);
  }
  for (const auto id : writes) end(id, false, false);
  for (const auto id : reads_from_it) end_read(id, {ec::peer_lost, "the sender is gone"});
}

void courier::carry_out(const peer_action::close& order) {
  const auto peer = process_of(order.peer);
  here_.w.net.in(here_.self, here_.w.luck.between(100us, 50ms), [this, peer] {
    // A peer that maps our memory, and neither stopped nor died, is not shut out yet.
    const bool shut = !here_.w.net.paused(peer) || peer % 2 == 1;
    if (shut) {
      ++closed_[peer];
      open_to_[peer] = false;
    }
    peers_.closed(node_of(peer), shut);
    act();
  });
}

void courier::carry_out(const peer_action::close_later& order) {
  here_.w.net.in(here_.self, close_again, [this, order] { carry_out(peer_action::close{order.peer}); });
}

void courier::carry_out(const peer_action::fenced& order) { fences_.extract(order.ticket).mapped()(); }

// ---- writes

std::uint64_t courier::write(process to, std::function<void()> land, ended_fn ended) {
  const auto id = next_++;
  auto dropped = std::make_shared<bool>(false);
  under_way_[id] = {to, std::move(ended), dropped};
  auto& there = here_.at(to).mail;
  const bool accepted = here_.w.net.alive(to) && reaches(to) && there.open_to_[here_.self];
  if (!accepted) {
    here_.w.net.in(here_.self, 1ms, [this, id] { end(id, false, true); });
    return id;
  }
  const auto wait = here_.w.luck.between(20us, here_.w.luck.chance(3) ? 400ms : 2ms);
  here_.w.time.after(wait, [this, id, to, session = there.fences_of(here_.self), land = std::move(land),
                            dropped] { arrive(id, to, session, land, dropped); });
  return id;
}

void courier::arrive(std::uint64_t id, process to, std::uint64_t session, std::function<void()> land,
                     std::shared_ptr<bool> dropped) {
  auto& net = here_.w.net;
  if (*dropped) return;
  if (!net.passes(here_.self, to) && net.alive(to)) {
    here_.w.time.after(100ms, [this, id, to, session, land = std::move(land), dropped] {
      arrive(id, to, session, land, dropped);
    });
    return;
  }
  // A peer that was shut out writes nothing any more, whatever was under way.
  const bool lands = net.alive(to) && here_.at(to).mail.fences_of(here_.self) == session;
  if (lands) land();
  net.in(here_.self, here_.w.luck.between(10us, 200us), [this, id, lands] { end(id, lands, true); });
}

void courier::cancel(std::uint64_t id) {
  const auto i = under_way_.find(id);
  if (i == under_way_.end() || here_.w.luck.chance(30)) return;  // too late
  *i->second.dropped = true;
  here_.w.net.in(here_.self, 20us, [this, id] { end(id, false, true); });
}

void courier::end(std::uint64_t id, bool landed, bool fenced) {
  if (auto t = under_way_.extract(id)) t.mapped().ended(landed, fenced);
}

// ---- fetches

void courier::fetch(const fetch_plan& plan, fetched_fn answered, std::shared_ptr<layer_watch> watch) {
  const auto ticket = next_++;
  const bool by_layers = watch != nullptr;
  fetching_[ticket] = {plan.source, std::move(answered), std::move(watch), std::vector<bool>(layers)};
  fetches_.fetch(ticket, plan, by_layers);
  act();
}

void courier::stop(const attempt_id& id) {
  fetches_.stop(id);
  act();
}

void courier::carry_out(fetch_action::pin& order) {
  const auto node = process_of(order.node);
  const auto refused = [this, fetch = order.fetch, node = order.node](const error& why) {
    fetches_.not_pinned(fetch, node, why);
    act();
  };
  here_.ask(
      node, pin_limit,
      [this, order, node, refused](std::function<void(network::action)> reply) {
        here_.at(node).cache->pin_remote(
            order.reader, order.keys, order.worth_ns,
            [this, order, reply](const remote_blocks& held) {
              reply([this, order, held] {
                fetches_.pinned(order.fetch, order.node, held, here_.now());
                act();
              });
            },
            [refused, reply](const error& why) { reply([refused, why] { refused(why); }); });
      },
      [refused] {
        refused({ec::peer_lost, "the shard did not answer"});
      });
}

void courier::carry_out(const fetch_action::release& order) {
  const auto node = process_of(order.node);
  here_.w.net.send(here_.self, node,
                   [&m = here_.at(node), reader = order.reader] { m.cache->release(reader); });
}

void courier::carry_out(fetch_action::read& order) {
  const auto id = order.id;
  const auto session = fences_of(process_of(order.from));
  reading_[id] = {std::move(order), session, here_.now(), false};
  here_.w.net.in(here_.self, here_.w.luck.between(50us, here_.w.luck.chance(5) ? 500ms : 2ms),
                 [this, id] { read_arrives(id); });
}

void courier::read_arrives(std::uint64_t id) {
  const auto i = reading_.find(id);
  if (i == reading_.end()) return;
  const auto& r = i->second;
  const auto from = process_of(r.what.from);
  const bool lost = !here_.w.net.alive(from) || !reaches(from) || fences_of(from) != r.session;
  if (lost || here_.now() - r.began > read_limit) return end_read(id, {ec::peer_lost, "no answer"});
  if (r.cancelled && here_.w.luck.chance(70)) return end_read(id, {ec::cancelled, "nobody wants it"});
  if (!here_.w.net.passes(from, here_.self))
    return here_.w.net.in(here_.self, 5ms, [this, id] { read_arrives(id); });
  if (!copy(r.what)) return end_read(id, {ec::corrupt, "not what the sender said"});
  auto& f = fetching_.at(r.what.fetch);
  ++reads;
  beside += r.what.from != f.source;
  const auto fetch = r.what.fetch;
  for (auto layer = r.what.first_layer; layer < r.what.first_layer + r.what.layers; ++layer)
    f.in[layer] = true;
  const auto leading = std::ranges::find(f.in, false) - f.in.begin();
  const auto watch = f.watch;
  end_read(id, {});
  // The data plane tells the worker, whatever the messenger is at.
  if (watch && leading > 0 && fetching_.contains(fetch)) watch->landed(static_cast<std::uint32_t>(leading));
}

bool courier::copy(const fetch_action::read& what) {
  auto& there = *here_.at(process_of(what.from)).cache;
  const auto bits = what.layers > 0 ? bits_of(what.first_layer, what.layers) : ~std::uint64_t{0};
  bool right = true;
  for (const auto& block : what.blocks) {
    auto& slot = here_.cache->at(block.slot);
    slot = (slot & ~bits) | (there.at(static_cast<slot_index>(block.offset)) & bits);
    right = right && (!block.checksum || slot == *block.checksum);
  }
  return right;
}

void courier::end_read(std::uint64_t id, const error& failure) {
  reading_.erase(id);
  here_.w.net.in(here_.self, here_.w.luck.between(1us, 50us), [this, id, failure] {
    fetches_.ended(id, failure);
    act();
  });
}

void courier::carry_out(const fetch_action::cancel& order) {
  // The read may have ended, and the messenger not have heard of it.
  if (const auto i = reading_.find(order.id); i != reading_.end()) i->second.cancelled = true;
}

void courier::carry_out(const fetch_action::give_up& order) { fetching_.at(order.fetch).watch->gave_up(); }

void courier::carry_out(fetch_action::verify& order) {
  here_.w.net.in(here_.self, here_.w.luck.between(100us, 10ms), [this, order] {
    const auto is_good = [&](slot_index slot, std::uint64_t checksum) {
      return here_.cache->at(slot) == checksum;
    };
    const auto bad = std::ranges::mismatch(order.slots, order.checksums, is_good).in1;
    fetches_.verified(order.fetch, static_cast<std::uint32_t>(bad - order.slots.begin()));
    act();
  });
}

void courier::carry_out(fetch_action::answer& order) {
  const auto over = fetching_.extract(order.fetch);
  here_.w.net.in(here_.self, here_.w.luck.between(1us, 50us),
                 [answered = over.mapped().answered, got = std::move(order.got)] { answered(got); });
}

}  // namespace mooncaf::campaign
