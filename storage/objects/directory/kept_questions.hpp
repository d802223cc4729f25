#pragma once
// Questions about objects that came before the directory knows all objects: they are answered when it does.

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// @thread  not synchronised
class kept_questions {
 public:
  struct question {
    store_wire::header header;
    std::vector<std::byte> payload;
  };
  using questions = std::deque<question>;

  /// Whether the session has some, so that its later questions have to wait as well.
  bool has(std::uint64_t session) const { return kept_.count(session) != 0; }
  /// @returns false if the session's questions take up too much memory.
  bool keep(std::uint64_t session, const store_wire::header& header, std::span<const std::byte> payload) {
    constexpr std::size_t bytes_max = 16 * MiB;
    auto& k = kept_[session];
    k.all.push_back({header, {payload.begin(), payload.end()}});
    k.bytes += payload.size();
    return k.bytes <= bytes_max;
  }
  void end_session(std::uint64_t session) { kept_.erase(session); }
  /// Hands over all of them, by session, each session's in the order in which they came.
  std::vector<std::pair<std::uint64_t, questions>> take() {
    std::vector<std::pair<std::uint64_t, questions>> all;
    for (auto& [session, k] : std::exchange(kept_, {})) all.emplace_back(session, std::move(k.all));
    return all;
  }

 private:
  struct of_session {
    questions all;
    std::size_t bytes = 0;
  };
  std::map<std::uint64_t, of_session> kept_;
};

}  // namespace mooncaf
