#pragma once
// Puts a prompt together from markers and texts, so that no text can become a marker.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// Texts between two markers are encoded as one: words may span them, as they do when a template is rendered
/// to a string first.
class prompt_builder {
 public:
  explicit prompt_builder(const tokenizer& tok) : tokenizer_(tok) {}

  prompt_builder& marker(std::int32_t id) {
    flush();
    ids_.push_back(id);
    return *this;
  }
  prompt_builder& text(std::string_view part) {
    pending_ += part;
    return *this;
  }
  std::vector<std::int32_t> take() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    if (pending_.empty()) return;
    const std::vector<std::int32_t> ids = tokenizer_.encode(pending_, special_tokens::as_text);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    pending_.clear();
  }

  const tokenizer& tokenizer_;
  std::string pending_;
  std::vector<std::int32_t> ids_;
};

/// Without the white space at both ends, as Jinja's `trim` filter (Python's str.strip) takes it off.
std::string_view trim(std::string_view text);
/// As Jinja's `tojson` writes a string: quoted, non-ASCII characters as they are.
std::string json_quoted(std::string_view text);

}  // namespace mooncaf
