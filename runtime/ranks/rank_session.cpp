#include "runtime/ranks/rank_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/ranks/notice_transfer.hpp"
#include "runtime/ranks/rank_link.hpp"
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
  options.max_logit_rows = terms.max_logit_rows;
  options.layout = terms.layout;
  options.context_tokens = terms.context_tokens;
  auto kv = device_kv::make(*made->far_, terms.layout.compact(), kv_bytes, terms.context_tokens);
  if (!kv) return fail(std::move(kv.error()));
  options.device_blocks = std::move(*kv);
  if (const auto part = net->share(); !part.whole()) {
    auto exchange = far_exchange::make(plane, made->ids_, notices, part, terms.widest_row);
    if (!exchange) return fail(std::move(exchange.error()));
    options.exchange = made->exchange_ = std::move(*exchange);
  }
  const auto dim = net->config().dim;
  auto runner = model_runner::make(std::move(net), *made->far_, options);
  if (!runner) return fail(std::move(runner.error()));
  made->runner_ = std::move(*runner);
  const auto bytes = rank_link::call_bytes(terms.max_batch_tokens, dim);
  for (auto* memory : {&made->inbox_, &made->out_}) {
    auto mapped = arena::create("mooncaf-calls", bytes);
    if (!mapped) return fail(std::move(mapped.error()));
    *memory = std::move(*mapped);
  }
  auto inbox = made->pages_->join(made->inbox_->bytes(), made->inbox_->fd());
  if (!inbox) return fail(std::move(inbox.error()));
  made->inbox_region_ = *inbox;
  auto out = made->pages_->join(made->out_->bytes(), made->out_->fd());
  if (!out) return fail(std::move(out.error()));
  made->out_region_ = *out;
  made->thread_ = std::jthread([session = made.get()](const std::stop_token& over) { session->serve(over); });
  return made;
}

rank_session::~rank_session() {
  if (thread_.joinable()) {
    thread_.request_stop();
    // Whatever its pass still waits for of the leader and other ranks ends now.
    if (exchange_) exchange_->abandon("the rank has another leader");
    (void)plane_.close_peer(terms_.leader);
    thread_.join();
  }
  notices_.forget(terms_.leader, rank_notices::stream::calls);
  runner_.reset();
  for (auto* memory : {&inbox_, &out_})
    if (pages_ && *memory) pages_->leave((*memory)->bytes());
}

void rank_session::serve(const std::stop_token& over) {
  while (!over.stop_requested())
    if (const auto n = notices_.next(terms_.leader, rank_notices::stream::calls, idle_look);
        n && n->kind == rank_notice::call)
      take(*n);
}

void rank_session::take(const rank_notices::notice& call) {
  result<void> outcome;
  try {
    outcome = compute(call);
  } catch (const device_failure& f) {
    outcome = fail(ec::unavailable, f.what());
    if (exchange_) exchange_->abandon(f.what());
  }
  if (!outcome) log_(to_string(outcome.error()));
  reply(call.call, outcome);
}

result<rank_order> rank_session::read(const rank_notices::notice& call) {
  const auto& net = runner_->model_in_use();
  const std::size_t dim = net.config().dim;
  auto bytes = std::span<const std::byte>{inbox_->bytes()}.first(
      std::min<std::size_t>(call.value, inbox_->size_bytes()));
  auto order =
      decode_rank_order(bytes, {terms_.max_batch_tokens, terms_.pages.length, terms_.layout.page_span()});
  if (!order) return order;
  const auto tokens = order->tokens();
  if (order->ids.size() != (net.embeds() ? tokens : 0) ||
      bytes.size() != (net.embeds() ? 0 : tokens * dim * sizeof(float)))
    return fail(ec::invalid_argument, "a call brings tokens or rows that this stage does not take");
  from_.resize(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(from_.data(), bytes.data(), bytes.size());
  return order;
}

/// Rows and logits are computed here, and delivered by the leader's own rank.
std::vector<batch_item> rank_session::items_of(const rank_order& order, std::span<const std::int32_t> ids) {
  std::size_t most = 0;
  for (const auto& i : order.items) most += i.blocks.size();
  blocks_.clear();
  blocks_.reserve(most);
  std::vector<batch_item> items;
  for (const auto& i : order.items) {
    auto& item = items.emplace_back();
    item.tokens = ids.first(i.tokens);
    ids = ids.subspan(i.tokens);
    item.start = i.start;
    item.reused = i.reused;
    item.sequence = i.sequence;
    item.keys = i.keys;
    const auto begin = blocks_.size();
    for (const auto offset : i.blocks) blocks_.push_back(pages_->base() + offset);
    item.blocks = std::span<std::byte* const>{blocks_.data() + begin, i.blocks.size()};
    if (!runner_->model_in_use().makes_logits()) continue;
    item.want_logits = i.logits;
    if (i.each_row) item.each_row = [](std::uint32_t, std::span<float>) {};
    if (i.each_hidden) item.each_hidden = [](std::uint32_t, std::span<const float>) {};
  }
  return items;
}

result<void> rank_session::compute(const rank_notices::notice& call) {
  const auto& net = runner_->model_in_use();
  const auto order = read(call);
  if (!order) {
    if (exchange_) least_of(*exchange_, 0);
    return fail(order.error());
  }
  const auto tokens = order->tokens();
  rows_.resize(net.makes_logits() ? 0 : tokens * net.config().dim);
  logits_.resize(net.makes_logits() ? order->logit_rows() * net.config().vocab_size : 0);
  // Stages behind the first do not look at tokens, but at how many there are.
  const std::vector<std::int32_t> any(net.embeds() ? 0 : tokens);
  const auto items = items_of(*order, net.embeds() ? order->ids : any);
  stage_work work{.items = items, .from = from_, .to = rows_, .logits = logits_};
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
  std::memcpy(out_->base(), head.data(), head.size());
  auto bytes = head.size();
  if (outcome && runner_->part().rank == 0 && !rows_.empty()) {
    std::memcpy(out_->base() + bytes, rows_.data(), rows_.size() * sizeof(float));
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
