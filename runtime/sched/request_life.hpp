#pragma once
// The life of a placed request, as the conductor sees it.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mooncaf {

enum class request_state : std::uint8_t {
  placed,
  prefilling,
  decoding,
  finished,
  failed,
  cancelled,
  lost,
  expired
};

constexpr std::string_view to_string(request_state s) noexcept {
  constexpr std::string_view names[] = {"placed", "prefilling", "decoding", "finished",
                                        "failed", "cancelled",  "lost",     "expired"};
  return names[static_cast<std::size_t>(s)];
}

constexpr bool is_terminal(request_state s) noexcept { return s >= request_state::finished; }

/// Where a request is, and that it ends exactly once.
///
///    placed ──► prefilling ──► decoding ──► finished
///      │  └────────────────────►│             ▲        (a notice of start may be lost or late)
///      │            │           └─────────────┤
///      └────────────┴───────────► failed, cancelled, lost (its instance left), expired (no word of its end)
class request_life {
 public:
  request_state state() const noexcept { return state_; }

  /// @returns whether `next` may follow; nothing changes if not. No state follows a terminal one.
  bool advance(request_state next) noexcept {
    if (is_terminal(state_) || next <= state_) return false;
    if (next == request_state::finished && state_ != request_state::decoding) return false;
    state_ = next;
    return true;
  }

 private:
  request_state state_ = request_state::placed;
};

}  // namespace mooncaf
