#include "actors/block_reader.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

constexpr auto read_limit = std::chrono::seconds(20);

}  // namespace

fetch_options block_reader::options() const {
  fetch_options out;
  out.layout = context_->layout;
  out.link = [context = context_](node_id source, std::uint64_t bytes, time_point now) {
    const auto path = static_cast<std::uint8_t>(context->plane->preferred_path(source));
    return context->links->estimate(source, path, bytes, now);
  };
  return out;
}

transfer block_reader::transfer_of(const fetch_action::read& order) const {
  transfer out;
  out.id = transfer_id{context_->transfer_ids->fetch_add(1)};
  out.peer = order.from;
  out.op = transfer_op::read;
  out.tag.request = request_id{order.reader};
  out.deadline = clock_type::now() + read_limit;
  const auto pieces = context_->layout.pieces();
  out.slices.reserve(order.blocks.size() * pieces.count);
  for (const auto& block : order.blocks) {
    const auto here = context_->slot_offset(block.slot);
    pieces.each(order.at, order.length, [&](std::uint64_t at, std::uint64_t bytes) {
      out.slices.push_back({{context_->region.id, here + at, bytes},
                            {order.region, block.offset + at, bytes},
                            block.checksum});
    });
  }
  return out;
}

void block_reader::read(const fetch_action::read& order, const prefix_load_ptr& load, ended_fn ended) {
  auto what = transfer_of(order);
  transfers_.emplace(order.id, what.id);
  const auto entry = context_->links->began(order.from, link_flow::in, what.size_bytes());
  context_->plane->submit(
      std::move(what), [entry, first = order.first_layer, layers = order.layers, links = context_->links,
                        load, ended = std::move(ended)](const completion& end) {
        links->ended(entry, static_cast<std::uint8_t>(end.path), from_seconds(end.seconds),
                     end.outcome.has_value(), clock_type::now());
        // A worker that computes with layers waits for them on a thread, not in a mailbox.
        if (load && end.outcome) load->landed(first, layers);
        ended(end.outcome ? error{} : end.outcome.error());
      });
}

void block_reader::cancel(std::uint64_t read) { context_->plane->cancel(transfers_.at(read)); }

std::uint32_t leading_good(const node_context& context, const fetch_action::verify& what) {
  const auto is_good = [&](slot_index slot, std::uint64_t checksum) {
    return checksum64(context.slot(slot), context.layout.pieces()) == checksum;
  };
  const auto bad = std::ranges::mismatch(what.slots, what.checksums, is_good).in1;
  return static_cast<std::uint32_t>(bad - what.slots.begin());
}

}  // namespace mooncaf
