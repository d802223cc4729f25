#include "runtime/sched/journal/requests.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/base/request_ids.hpp"
#include "runtime/sched/journal/reader.hpp"

namespace mooncaf::journal {

namespace {

/// Ids that fit the integers of every JSON reader.
constexpr std::uint64_t id_mask = (std::uint64_t{1} << 53) - 1;

enum class fate : std::uint8_t { open, answered, refused, refused_at_decode, given_up };

struct known_request {
  trace_record record;
  time_point arrival{};
  fate became = fate::open;
  bool whole = true;  ///< every full block has its key
};

class collector {
 public:
  explicit collector(std::uint32_t block_tokens) : block_tokens_(std::max(block_tokens, 1u)) {}

  template <class In, class... Outcome>
  void operator()(In& in, const Outcome&... outcome) {
    if constexpr (std::is_same_v<In, submit>) asked(in);
    if constexpr (asks_queue<In>) (decide(outcome), ...);
    if constexpr (std::is_same_v<In, finished>) ended(in);
    if constexpr (std::is_same_v<In, refused_at_decode>) become(in.id, fate::refused_at_decode);
    if constexpr (std::is_same_v<In, failed> || std::is_same_v<In, cancelled> || std::is_same_v<In, withdraw>)
      become(in.id, fate::given_up);
  }

  journal_requests take() {
    journal_requests out;
    out.block_tokens = block_tokens_;
    std::ranges::stable_sort(all_, {}, &known_request::arrival);
    for (auto& r : all_) {
      if (r.became != fate::answered || !r.whole) {
        ++count_of(r, out.left_out);
        continue;
      }
      if (out.records.empty()) begin_ = r.arrival;
      r.record.timestamp_ms = since_begin_ns(r.arrival) / 1'000'000;
      out.records.push_back(std::move(r.record));
    }
    return out;
  }

 private:
  static std::uint64_t& count_of(const known_request& r, left_out& out) noexcept {
    switch (r.became) {
      case fate::answered:
        return out.without_keys;
      case fate::refused:
        return out.refused;
      case fate::refused_at_decode:
        return out.refused_at_decode;
      case fate::given_up:
        return out.given_up;
      case fate::open:
        break;
    }
    return out.unfinished;
  }

  known_request* find(request_id one_try) {
    const auto at = by_request_.find(request_of_try(one_try));
    return at == by_request_.end() ? nullptr : &all_[at->second];
  }

  /// An answered request stays so: a late word about an earlier try changes nothing. Gateways tell of the end
  /// of refused ones, too.
  void become(request_id one_try, fate what) {
    auto* r = find(one_try);
    if (r == nullptr || r->became == fate::answered) return;
    if (what != fate::given_up || r->became == fate::open) r->became = what;
  }

  void decide(const std::vector<decision>& decided) {
    for (const auto& d : decided) become(d.id, d.outcome ? fate::open : fate::refused);
  }
  void decide(bool) {}

  /// A request asks again while it waits, and after it lost a worker.
  void asked(const submit& in) {
    const auto [known, fresh] = by_request_.try_emplace(request_of_try(in.request.id), all_.size());
    if (!fresh) return become(in.request.id, fate::open);
    const auto arrival = in.request.arrival == time_point{} ? in.now : in.request.arrival;
    auto& r = all_.emplace_back();
    r.arrival = arrival;
    r.record.input_tokens = std::max(in.request.prompt_tokens, 1u);
    const auto blocks = (std::uint64_t{r.record.input_tokens} + block_tokens_ - 1) / block_tokens_;
    r.record.share = in.request.share;
    r.whole = blocks <= in.request.keys.size() + 1;
    if (!r.whole) return;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      r.record.hash_ids.push_back(i < in.request.keys.size() ? in.request.keys[i].low & id_mask : own_id());
    }
  }

  void ended(const finished& in) {
    auto* r = find(in.id);
    if (r == nullptr || in.output_tokens == 0) return;
    r->became = fate::answered;
    r->record.output_tokens = in.output_tokens;
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
  std::unordered_map<request_id, std::size_t> by_request_;
  std::uint64_t own_ids_ = 0;
  time_point begin_{};
};

}  // namespace

result<journal_requests> requests_of(std::string_view bytes, const std::string& name) {
  reader from{bytes, name};
  const auto options = from.begin();
  if (!options) return fail(options.error());
  collector requests{options->core.block_tokens};
  for (;;) {
    const auto more = from.next(requests);
    if (!more) return fail(more.error());
    if (*more) continue;
    auto out = requests.take();
    out.missing = from.missing();
    out.end = from.end();
    return out;
  }
}

}  // namespace mooncaf::journal
