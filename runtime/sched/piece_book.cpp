#include "runtime/sched/piece_book.hpp"

#include <algorithm>

namespace mooncaf {

std::optional<piece_book::share> piece_book::next() {
  // A piece that failed comes first: blocks behind a gap are of no use.
  const auto piece = again_.empty() ? asked_ : *again_.begin();
  if (piece >= end_) return std::nullopt;
  sender* best = nullptr;
  bool any = false;
  for (auto& s : senders_) {
    if (s.pieces <= piece) continue;
    any = true;
    if (s.under_way < at_once_ && (best == nullptr || s.under_way < best->under_way)) best = &s;
  }
  if (!any) end_ = piece;
  if (best == nullptr) return std::nullopt;
  if (again_.erase(piece) == 0) ++asked_;
  ++best->under_way;
  ++under_way_;
  return share{piece, best->node};
}

piece_book::sender& piece_book::sender_of(const share& s) {
  return *std::ranges::find(senders_, s.from, &sender::node);
}

void piece_book::arrived(const share& s) {
  --sender_of(s).under_way;
  --under_way_;
  arrived_[s.piece] = true;
}

void piece_book::failed(const share& s) {
  auto& from = sender_of(s);
  --from.under_way;
  --under_way_;
  from.pieces = 0;
  again_.insert(s.piece);
}

std::uint32_t piece_book::leading() const noexcept {
  return static_cast<std::uint32_t>(std::ranges::find(arrived_, false) - arrived_.begin());
}

}  // namespace mooncaf
