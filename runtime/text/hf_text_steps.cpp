#include "runtime/text/hf_text_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/text/hf_json.hpp"

namespace mooncaf {

using namespace hf_json;

namespace {

/// Steps beyond these would let a short text become one that no memory holds.
constexpr std::size_t steps_max = 16, growth_max = 64;

std::optional<std::string> from_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    std::uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') value = static_cast<std::uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z') value = static_cast<std::uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9') value = static_cast<std::uint32_t>(c - '0' + 52);
    else if (c == '+') value = 62;
    else if (c == '/') value = 63;
    else return std::nullopt;
    bits = bits << 6 | value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  return out;
}

class steps_reader {
 public:
  steps_reader(const json& root, const std::string& label) : root_(root), label_(label) {}

  result<hf_steps> run() {
    for (const auto* part : parts_of(root_, "normalizer", "normalizers"))
      if (auto done = normalizer(*part); !done) return fail(std::move(done.error()));
    if (out_.steps.size() > steps_max || growth_ > growth_max)
      return refuse("normalizers of more than " + std::to_string(steps_max) +
                    " steps, or that make a text more than " + std::to_string(growth_max) +
                    " times as long, are");
    for (const auto* part : parts_of(root_, "pre_tokenizer", "pretokenizers"))
      if (auto done = cut(*part); !done) return fail(std::move(done.error()));
    if (out_.words.at_white_space && out_.words.prefix == word_rule::mark::first)
      return refuse("'WhitespaceSplit' with a 'Metaspace' of scheme 'first' is");
    return std::move(out_);
  }

 private:
  tl::unexpected<error> refuse(const std::string& what) const {
    return fail(ec::unsupported, label_ + ": " + what + " not offered");
  }

  void add(text_step step, std::size_t growth = 1) {
    out_.steps.push_back(std::move(step));
    growth_ = std::min(growth_ * std::max<std::size_t>(growth, 1), growth_max + 1);
  }

  result<void> normalizer(const json& part) {
    const auto type = type_of(part);
    if (type == "Precompiled") {
      auto table = from_base64(word(part, "precompiled_charsmap"));
      if (!table) return fail(ec::corrupt, label_ + ": 'precompiled_charsmap' is not base64");
      if (!table->empty() && std::exchange(has_table_, true)) return refuse("a second 'Precompiled' is");
      if (!table->empty()) add({text_step_kind::charsmap, std::move(*table), {}});
    } else if (type == "Replace") {
      return replace(part);
    } else if (type == "Prepend") {
      const auto text = word(part, "prepend");
      if (text == space_mark) out_.prefixes = true;
      add({text_step_kind::prepend, {}, text}, text.size() > growth_max ? growth_max + 1 : 1);
    } else if (type == "Strip") {
      add({text_step_kind::strip, {}, {}, flag(part, "strip_left", false), flag(part, "strip_right", false)});
    } else if (type == "NFC") {
      add({text_step_kind::nfc, {}, {}}, 3);
    } else if (type == "NFKC") {
      add({text_step_kind::nfkc, {}, {}}, 11);
    } else {
      return refuse("a normalizer of type '" + type.substr(0, 40) + "' is");
    }
    return {};
  }

  result<void> replace(const json& part) {
    const auto literal = pattern_of(part, "String"), expression = pattern_of(part, "Regex");
    const auto to = word(part, "content");
    if (!literal.empty())
      add({text_step_kind::replace, literal, to}, (to.size() + literal.size() - 1) / literal.size());
    else if (expression == " {2,}") add({text_step_kind::join_spaces, {}, to}, (to.size() + 1) / 2);
    else return refuse("replacing by the expression '" + expression.substr(0, 100) + "' is");
    return {};
  }

  result<void> cut(const json& part) {
    const auto type = type_of(part);
    auto& words = out_.words;
    if (type == "WhitespaceSplit" && !words.marks_spaces) {
      words.at_white_space = true;
      return {};
    }
    if (type != "Metaspace" || words.marks_spaces)
      return refuse("a pre-tokenizer of type '" + type.substr(0, 40) + "' is");
    if (word(part, "replacement") != space_mark)
      return refuse("'Metaspace' with another mark than U+2581 is");
    words.marks_spaces = true;
    words.splits = flag(part, "split", true);
    // Files of older libraries say it by a flag.
    auto scheme = word(part, "prepend_scheme");
    if (scheme.empty()) scheme = flag(part, "add_prefix_space", true) ? "always" : "never";
    if (scheme == "always") words.prefix = word_rule::mark::always;
    else if (scheme == "first") words.prefix = word_rule::mark::first;
    else if (scheme != "never") return refuse("'Metaspace' of scheme '" + scheme.substr(0, 40) + "' is");
    out_.prefixes |= words.prefix != word_rule::mark::never;
    return {};
  }

  const json& root_;
  const std::string& label_;
  hf_steps out_;
  std::size_t growth_ = 1;
  bool has_table_ = false;
};

}  // namespace

result<hf_steps> hf_text_steps(const json& root, const std::string& label) {
  return steps_reader(root, label).run();
}

}  // namespace mooncaf
