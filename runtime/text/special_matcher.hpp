#pragma once
// Finds the tokens that stand for a fixed text, leftmost first and longest at each place.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace mooncaf {

/// A trie over bytes. Built once, then read by any number of threads.
class special_matcher {
 public:
  special_matcher() : nodes_(1) {}

  struct match {
    std::size_t begin = 0;
    std::size_t length = 0;  ///< 0: none
    std::int32_t id = -1;
  };

  void add(std::string_view text, std::int32_t id, bool control);
  /// First match at or after `from`. @param control  whether control tokens count.
  match find(std::string_view text, std::size_t from, bool control) const noexcept;

 private:
  struct node {
    std::vector<std::pair<char, std::uint32_t>> children;
    std::int32_t id = -1;
    bool control = false;
  };
  const node* child(const node& at, char c) const noexcept;
  match longest_at(std::string_view text, std::size_t begin, bool control) const noexcept;

  std::vector<node> nodes_;
  std::array<std::uint8_t, 256> first_{};  ///< bit 0: opens a user-defined token, bit 1: a control token
};

}  // namespace mooncaf
