#include "runtime/request/fetch_core.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// A node beside the source may spend no time on its SSD for a fetch: only blocks in its memory help.
constexpr std::int64_t memory_alone_ns = 1;

/// Cuts `held` to the blocks that the plan has slots for: the blocks behind those that are here already.
void keep_wanted(remote_blocks& held, const fetch_plan& plan) {
  auto& blocks = held.blocks;
  blocks.resize(std::min(blocks.size(), plan.skip + plan.slots.size()));
  blocks.erase(blocks.begin(), blocks.begin() + std::min<std::ptrdiff_t>(plan.skip, std::ssize(blocks)));
}

/// Cuts `held` to the leading blocks that equal the source's byte for byte: blocks of one prefix that
/// different devices computed may differ in a last digit, and then in their checksums.
void keep_equal(remote_blocks& held, const remote_blocks& source) {
  const auto equal = [](const remote_block& a, const remote_block& b) {
    return a.key == b.key && a.checksum == b.checksum;
  };
  const auto differs = std::ranges::mismatch(held.blocks, source.blocks, equal).in1;
  held.blocks.erase(differs, held.blocks.end());
}

}  // namespace

fetch_core::work* fetch_core::find(fetch_ticket ticket) {
  const auto i = fetches_.find(ticket);
  return i == fetches_.end() ? nullptr : &i->second;
}

// ---- pins ----

void fetch_core::fetch(fetch_ticket ticket, const fetch_plan& plan, bool by_layers) {
  auto& w = fetches_[ticket];
  w.ticket = ticket;
  w.plan = plan;
  w.by_layers = by_layers;
  if (!peers_.contains(plan.source)) {
    w.failure = {ec::unavailable, "node " + to_string(plan.source) + " is not a peer"};
    return finish(w);
  }
  ask(w, plan.source, plan.keys, plan.worth_ns);
  for (const auto& other : plan.beside) {
    const bool asked = std::ranges::find(w.asked, other.node) != w.asked.end();
    if (asked || !peers_.contains(other.node) || other.blocks <= plan.skip) continue;
    const auto leading = std::min<std::ptrdiff_t>(other.blocks, std::ssize(plan.keys));
    ask(w, other.node, {plan.keys.begin(), plan.keys.begin() + leading}, memory_alone_ns);
  }
}

void fetch_core::ask(work& w, node_id node, block_keys_t keys, std::int64_t worth_ns) {
  w.asked.push_back(node);
  actions_.emplace_back(fetch_action::pin{w.ticket, node, w.plan.id.reader(), std::move(keys), worth_ns});
}

void fetch_core::pinned(fetch_ticket ticket, node_id node, remote_blocks held, time_point now) {
  auto* const w = find(ticket);
  if (w == nullptr || w->at == phase::verifying) return;
  keep_wanted(held, w->plan);
  if (node == w->plan.source) return begin(*w, std::move(held), now);
  if (w->at == phase::pinning) {
    // Which of these are the source's, byte by byte, is known when the source has answered.
    w->held[node] = std::move(held);
    return;
  }
  add_sender(*w, node, std::move(held));
  go_on(*w);
}

void fetch_core::not_pinned(fetch_ticket ticket, node_id node, const error& why) {
  auto* const w = find(ticket);
  if (w == nullptr || node != w->plan.source) return;
  w->failure = why;
  finish(*w);
}

void fetch_core::begin(work& w, remote_blocks held, time_point now) {
  w.at = phase::reading;
  w.wanted = std::move(held);
  auto& blocks = w.wanted.blocks;
  const auto bytes = blocks.size() * options_.layout.block_bytes();
  // Blocks that come in layers are of use all together, so fewer than were asked for are not begun.
  const bool too_few = w.by_layers && blocks.size() < w.plan.slots.size();
  const bool too_slow = w.plan.worth_ns > 0 && options_.link &&
                        options_.link(w.plan.source, bytes, now) > duration{w.plan.worth_ns};
  if (too_few || too_slow) blocks.clear();
  // Layers are wanted in order and all of them; runs may be stopped, so few are begun ahead. So are layers
  // where other nodes may deliver some.
  const bool all_at_once = w.by_layers && w.plan.beside.empty();
  const auto pieces = pieces_of(w);
  w.pieces = piece_book{pieces, all_at_once ? std::max(1u, pieces) : options_.pieces.at_once};
  auto others = std::exchange(w.held, {});
  add_sender(w, w.plan.source, w.wanted);
  for (auto& [node, there] : others) add_sender(w, node, std::move(there));
  go_on(w);
}

// ---- pieces ----

std::uint32_t fetch_core::layers_at_once() const {
  const auto& layout = options_.layout;
  // Where a page has its layers token by token, they come together.
  if (layout.pages == page_order::page_first) return layout.n_layers;
  return options_.pieces.layers_at_once(layout.n_layers, layout.layer_bytes());
}

std::uint32_t fetch_core::pieces_of(const work& w) const {
  const auto in_steps = [](std::uint32_t all, std::uint32_t step) { return (all + step - 1) / step; };
  const auto blocks = static_cast<std::uint32_t>(w.wanted.blocks.size());
  if (blocks == 0) return 0;
  return w.by_layers ? in_steps(options_.layout.n_layers, layers_at_once())
                     : in_steps(blocks, options_.pieces.run_blocks);
}

void fetch_core::add_sender(work& w, node_id node, remote_blocks held) {
  keep_equal(held, w.wanted);
  const bool has_all = held.blocks.size() == w.wanted.blocks.size();
  const auto runs = static_cast<std::uint32_t>(held.blocks.size()) / options_.pieces.run_blocks;
  const auto some = w.by_layers ? 0 : runs;  // a piece of layers is of all blocks
  w.pieces.add_sender(node, has_all ? pieces_of(w) : some);
  w.held[node] = std::move(held);
}

void fetch_core::go_on(work& w) {
  const bool hopeless = w.pieces.cut_short();
  while (!w.stopped) {
    const auto share = w.pieces.next();
    if (!share) break;
    read(w, *share);
  }
  if (w.by_layers && w.pieces.cut_short() && !hopeless)
    actions_.emplace_back(fetch_action::give_up{w.ticket});
  if (w.pieces.under_way() == 0) finish(w);
}

/// A block in one piece is verified as it comes, with its own checksum. Of layers, and of blocks that lie in
/// pieces, there is none: `verify` follows when all is here.
void fetch_core::read(work& w, const piece_book::share& share) {
  const auto& layout = options_.layout;
  const auto& there = w.held.at(share.from);
  fetch_action::read out;
  out.fetch = w.ticket;
  out.id = next_read_++;
  out.reader = w.plan.id.reader();
  out.from = share.from;
  out.region = there.region;
  const auto blocks = static_cast<std::uint32_t>(w.wanted.blocks.size());
  auto first = 0u, last = blocks;
  if (w.by_layers) {
    out.first_layer = share.piece * layers_at_once();
    out.layers = std::min(layers_at_once(), layout.n_layers - out.first_layer);
    out.at = std::uint64_t{out.first_layer} * layout.layer_bytes();
    out.length = std::uint64_t{out.layers} * layout.layer_bytes();
  } else {
    first = share.piece * options_.pieces.run_blocks;
    last = std::min(blocks, first + options_.pieces.run_blocks);
    out.length = layout.block_bytes();
  }
  const bool whole = !w.by_layers && layout.pieces().count == 1;
  for (auto i = first; i < last; ++i) {
    const auto& block = there.blocks[i];
    fetch_action::part part{w.plan.slots[i], block.offset, {}};
    if (whole) part.checksum = block.checksum;
    out.blocks.push_back(part);
  }
  reads_[out.id] = {w.ticket, share};
  actions_.emplace_back(std::move(out));
}

void fetch_core::ended(std::uint64_t read, const error& failure) {
  const auto over = reads_.extract(read);
  if (!over) return;
  auto& w = fetches_.at(over.mapped().fetch);
  if (failure.code == ec::none) {
    w.pieces.arrived(over.mapped().share);
  } else {
    w.failure = failure;
    w.pieces.failed(over.mapped().share);
  }
  go_on(w);
}

// ---- ends ----

void fetch_core::stop(const attempt_id& id) {
  const auto i = std::ranges::find_if(
      fetches_, [&](const auto& f) { return f.second.plan.id == id && !f.second.stopped; });
  if (i == fetches_.end()) return;
  auto& w = i->second;
  w.stopped = true;
  for (const auto& [read, what] : reads_) {
    if (what.fetch == w.ticket) actions_.emplace_back(fetch_action::cancel{read});
  }
  if (w.at == phase::pinning) finish(w);
}

void fetch_core::finish(work& w) {
  for (const auto node : w.asked) actions_.emplace_back(fetch_action::release{node, w.plan.id.reader()});
  auto& blocks = w.wanted.blocks;
  const auto leading = w.pieces.leading();
  if (w.by_layers) {
    if (!w.pieces.complete()) blocks.clear();
  } else {
    blocks.resize(std::min<std::size_t>(blocks.size(), std::size_t{leading} * options_.pieces.run_blocks));
  }
  if (blocks.empty()) {
    // Layers that do not come are a miss, and the worker computes; so is a fetch that was stopped.
    const bool failed = !w.by_layers && !w.stopped;
    if (w.by_layers) actions_.emplace_back(fetch_action::give_up{w.ticket});
    return answer(w, failed ? w.failure : error{});
  }
  // Runs of blocks that lie in one piece were verified as they came.
  if (!w.by_layers && options_.layout.pieces().count == 1) return answer(w);
  w.at = phase::verifying;
  fetch_action::verify out{w.ticket, {}, {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    out.slots.push_back(w.plan.slots[i]);
    out.checksums.push_back(blocks[i].checksum);
  }
  actions_.emplace_back(std::move(out));
}

void fetch_core::verified(fetch_ticket ticket, std::uint32_t good) {
  auto* const w = find(ticket);
  if (w == nullptr || w->at != phase::verifying) return;
  auto& blocks = w->wanted.blocks;
  // A prefix that was computed with already is right as a whole or not at all.
  const bool none = w->by_layers && good < blocks.size();
  blocks.resize(none ? 0 : std::min<std::size_t>(good, blocks.size()));
  answer(*w);
}

void fetch_core::answer(work& w, error failure) {
  actions_.emplace_back(fetch_action::answer{w.ticket, std::move(w.wanted), std::move(failure)});
  fetches_.erase(w.ticket);
}

}  // namespace mooncaf
