#include "runtime/sched/journal/requests.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/sched/journal/reader.hpp"

namespace mooncaf::journal {

namespace {

/// Ids that fit the integers of every JSON reader.
constexpr std::uint64_t id_mask = (std::uint64_t{1} << 53) - 1;

struct known_request {
  trace_record record;
  time_point arrival{};
  bool answered = false;
  bool whole = true;  ///< every full block has its key
};

class collector {
 public:
  explicit collector(std::uint32_t block_tokens) : block_tokens_(std::max(block_tokens, 1u)) {}

  template <class In, class... Outcome>
  void operator()(In& in, const Outcome&...) {
    if constexpr (std::is_same_v<In, schedule>) placed(in);
    if constexpr (std::is_same_v<In, finished>) ended(in);
  }

  journal_requests take() {
    journal_requests out;
    out.block_tokens = block_tokens_;
    std::ranges::stable_sort(all_, {}, &known_request::arrival);
    for (auto& r : all_) {
      const bool useful = r.answered && r.whole;
      out.left_out += !useful;
      if (!useful) continue;
      if (out.records.empty()) begin_ = r.arrival;
      r.record.timestamp_ms = since_begin_ns(r.arrival) / 1'000'000;
      out.records.push_back(std::move(r.record));
    }
    return out;
  }

 private:
  /// Asked again while it waits it has the same id; placed again after a loss the same gateway and arrival.
  void placed(const schedule& in) {
    if (by_attempt_.contains(in.request.id.value)) return;
    const auto arrival = in.request.arrival == time_point{} ? in.now : in.request.arrival;
    if (in.request.resumed) {
      const auto first = by_arrival_.find({in.request.gateway.value, arrival});
      if (first != by_arrival_.end()) by_attempt_.emplace(in.request.id.value, first->second);
      return;
    }
    by_attempt_.emplace(in.request.id.value, all_.size());
    by_arrival_[{in.request.gateway.value, arrival}] = all_.size();
    auto& r = all_.emplace_back();
    r.arrival = arrival;
    r.record.input_tokens = std::max(in.request.prompt_tokens, 1u);
    const auto blocks = (std::uint64_t{r.record.input_tokens} + block_tokens_ - 1) / block_tokens_;
    r.whole = blocks <= in.request.keys.size() + 1;
    if (!r.whole) return;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      r.record.hash_ids.push_back(i < in.request.keys.size() ? in.request.keys[i].low & id_mask : own_id());
    }
  }

  void ended(const finished& in) {
    const auto at = by_attempt_.find(in.id.value);
    if (at == by_attempt_.end() || in.output_tokens == 0) return;
    all_[at->second].answered = true;
    all_[at->second].record.output_tokens = in.output_tokens;
  }

  /// Unsigned, since a damaged file may have any two times.
  std::int64_t since_begin_ns(time_point at) const {
    const auto ns = [](time_point t) { return static_cast<std::uint64_t>(t.time_since_epoch().count()); };
    return std::max<std::int64_t>(static_cast<std::int64_t>(ns(at) - ns(begin_)), 0);
  }

  std::uint64_t own_id() {
    ++own_ids_;
    return hash_bytes128(std::as_bytes(std::span{&own_ids_, 1})).low & id_mask;
  }

  std::uint32_t block_tokens_;
  std::vector<known_request> all_;
  std::unordered_map<std::uint64_t, std::size_t> by_attempt_;
  std::map<std::pair<std::uint64_t, time_point>, std::size_t> by_arrival_;
  std::uint64_t own_ids_ = 0;
  time_point begin_{};
};

}  // namespace

result<journal_requests> requests_of(std::string_view bytes, const std::string& name) {
  reader from{bytes, name};
  const auto options = from.begin();
  if (!options) return fail(options.error());
  collector requests{options->block_tokens};
  for (;;) {
    const auto more = from.next(requests);
    if (!more) return fail(more.error());
    if (!*more) return requests.take();
  }
}

}  // namespace mooncaf::journal
