#include "runtime/ranks/rank_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/ranks/notice_transfer.hpp"
#include "runtime/ranks/rank_link.hpp"
#include "runtime/ranks/rank_order.hpp"
#include "transport/net/bytes.hpp"

namespace mooncaf {

namespace {

constexpr auto idle_look = std::chrono::milliseconds(100);  ///< for the end, while no call comes

}  // namespace

rank_session::rank_session(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids,
                           rank_notices& notices, const rank_terms& terms,
                           std::function<void(const std::string&)> log)
    : plane_(plane), ids_(std::move(ids)), notices_(notices), terms_(terms), log_(std::move(log)) {}

result<std::unique_ptr<rank_session>> rank_session::make(data_plane& plane,
                                                         std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                         rank_notices& notices, device& hardware,
                                                         std::shared_ptr<const model> net,
                                                         const rank_terms& terms, std::size_t kv_bytes,
                                                         std::function<void(const std::string&)> log) {
  std::unique_ptr<rank_session> made{new rank_session(plane, ids, notices, terms, std::move(log))};
  auto pages = far_pages::make(plane, std::move(ids), terms.leader, terms.pages);
  if (!pages) return fail(std::move(pages.error()));
  made->pages_ = std::move(*pages);
  made->far_ = make_far_device(hardware, made->pages_);
  runner_options options;
  options.max_batch_tokens = terms.max_batch_tokens;
  options.layout = terms.layout;
  options.context_tokens = terms.context_tokens;
  auto kv = device_kv::make(*made->far_, terms.layout, kv_bytes, terms.context_tokens);
  if (!kv) return fail(std::move(kv.error()));
  options.device_blocks = std::move(*kv);
  const auto dim = net->config().dim;
  auto runner = model_runner::make(std::move(net), *made->far_, options);
  if (!runner) return fail(std::move(runner.error()));
  made->runner_ = std::move(*runner);
  const auto bytes = rank_link::call_bytes(terms.max_batch_tokens, dim);
  made->inbox_.resize(bytes);
  made->out_.resize(bytes);
  auto inbox = made->pages_->join(made->inbox_);
  if (!inbox) return fail(std::move(inbox.error()));
  made->inbox_region_ = *inbox;
  auto out = made->pages_->join(made->out_);
  if (!out) return fail(std::move(out.error()));
  made->out_region_ = *out;
  made->thread_ = std::jthread([session = made.get()](const std::stop_token& over) { session->serve(over); });
  return made;
}

rank_session::~rank_session() {
  if (thread_.joinable()) {
    thread_.request_stop();
    // Whatever its pass still waits for of the leader ends now.
    (void)plane_.close_peer(terms_.leader);
    thread_.join();
  }
  notices_.forget(terms_.leader);
  runner_.reset();
  if (pages_) {
    pages_->leave(inbox_);
    pages_->leave(out_);
  }
}

void rank_session::serve(const std::stop_token& over) {
  while (!over.stop_requested())
    if (const auto n = notices_.next(terms_.leader, idle_look); n && n->kind == rank_notice::call) take(*n);
}

void rank_session::take(const rank_notices::notice& call) {
  result<void> outcome;
  try {
    outcome = compute(call);
  } catch (const device_failure& f) {
    outcome = fail(ec::unavailable, f.what());
  }
  if (!outcome) log_(to_string(outcome.error()));
  reply(call.call, outcome);
}

result<void> rank_session::compute(const rank_notices::notice& call) {
  const auto& net = runner_->model_in_use();
  const std::size_t dim = net.config().dim;
  auto bytes = std::span<const std::byte>{inbox_}.first(std::min<std::size_t>(call.value, inbox_.size()));
  const auto order =
      decode_rank_order(bytes, {terms_.max_batch_tokens, terms_.pages.length, terms_.layout.block_bytes()});
  if (!order) return fail(order.error());
  const auto tokens = order->tokens();
  if (order->ids.size() != (net.embeds() ? tokens : 0) ||
      bytes.size() != (net.embeds() ? 0 : tokens * dim * sizeof(float)))
    return fail(ec::invalid_argument, "a call brings tokens or rows that this stage does not take");
  from_.resize(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(from_.data(), bytes.data(), bytes.size());
  rows_.resize(tokens * dim);

  std::vector<std::byte*> blocks;
  std::size_t most = 0;
  for (const auto& i : order->items) most += i.blocks.size();
  blocks.reserve(most);
  // Stages behind the first do not look at tokens, but at how many there are.
  const std::vector<std::int32_t> any(net.embeds() ? 0 : tokens);
  auto ids = std::span<const std::int32_t>{net.embeds() ? order->ids : any};
  std::vector<batch_item> items;
  for (const auto& i : order->items) {
    auto& item = items.emplace_back();
    item.tokens = ids.first(i.tokens);
    ids = ids.subspan(i.tokens);
    item.start = i.start;
    item.reused = i.reused;
    item.sequence = i.sequence;
    item.keys = i.keys;
    const auto begin = blocks.size();
    for (const auto offset : i.blocks) blocks.push_back(pages_->base() + offset);
    item.blocks = std::span<std::byte* const>{blocks.data() + begin, i.blocks.size()};
  }
  stage_work work{.items = items, .from = from_, .to = rows_};
  if (order->tells_layers)
    work.done = [&](std::uint32_t layer) { tell({rank_notice::layer, call.call, layer}, {}); };
  return runner_->run(work);
}

/// A status, and behind it why or the rows.
void rank_session::reply(std::uint32_t call, const result<void>& outcome) {
  std::vector<std::byte> head;
  byte_writer to{head};
  to.put(outcome ? 0u : static_cast<std::uint32_t>(outcome.error().code));
  if (!outcome) to.put_text(outcome.error().detail.substr(0, 500));
  std::memcpy(out_.data(), head.data(), head.size());
  auto bytes = head.size();
  if (outcome) {
    std::memcpy(out_.data() + bytes, rows_.data(), rows_.size() * sizeof(float));
    bytes += rows_.size() * sizeof(float);
  }
  tell({rank_notice::reply, call, static_cast<std::uint32_t>(bytes)},
       {{{out_region_, 0, bytes}, {terms_.replies.id, 0, bytes}, {}}});
}

/// Returns when it has landed, so that layers, KV and the answer land in their order. A leader that is gone is not told.
void rank_session::tell(const rank_notices::notice& what, std::vector<slice_pair> slices) {
  (void)send_notice(plane_, *ids_, terms_.leader, what, std::move(slices));
}

}  // namespace mooncaf
