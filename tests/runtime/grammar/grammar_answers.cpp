// Reads lines {"schema": …, "texts": […]} from standard input. For each writes one line of JSON: {"refused":
// why}, or {"answers": [...], "taken": [...]}: texts drawn at random from the masks over the vocabulary of the
// model file that is named, and whether each of `texts` may be an answer.
//
//   mooncaf_grammar_answers MODEL.gguf COUNT SEED

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "runtime/grammar/grammar_cache.hpp"
#include "runtime/grammar/json_schema.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "storage/mapped_file.hpp"

using namespace mooncaf;

namespace {

constexpr int most_tokens = 600;

std::shared_ptr<const tokenizer> open_text(const char* path) {
  const auto file = mapped_file::open(path);
  if (!file) return nullptr;
  const auto parsed = parse_gguf(file->bytes(), path);
  if (!parsed) return nullptr;
  auto vocab = vocab_from_gguf(*parsed);
  if (!vocab) return nullptr;
  auto made = tokenizer::from_vocab(std::move(*vocab));
  return made ? *made : nullptr;
}

/// Any token that is allowed; now and then, and ever more often, one that closes something, so that answers
/// end.
class drawer {
 public:
  drawer(std::shared_ptr<const tokenizer> text, std::uint32_t seed) : text_(std::move(text)), random_(seed) {}

  std::optional<std::string> answer(token_constraint& at) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < most_tokens; ++i) {
      const auto id = choose(at.allowed(), i);
      if (std::ranges::binary_search(text_->eog_ids(), id)) return text_->decode(ids, special_text::show);
      ids.push_back(id);
      at.accept(id);
    }
    return std::nullopt;
  }

 private:
  std::int32_t choose(std::span<const std::uint64_t> mask, int position) {
    std::vector<std::int32_t> all, closing;
    for (std::size_t w = 0; w < mask.size(); ++w) {
      for (auto bits = mask[w]; bits != 0; bits &= bits - 1) {
        const auto id = static_cast<std::int32_t>(w * 64) + std::countr_zero(bits);
        if (std::ranges::binary_search(text_->eog_ids(), id)) continue;
        all.push_back(id);
        const auto piece = text_->piece(id);
        if (piece.size() <= 2 && piece.find_first_of("\"}]") != piece.npos) closing.push_back(id);
      }
    }
    const auto end = text_->eog_ids().front();
    const bool may_end = mask[static_cast<std::size_t>(end) / 64] >> (end % 64) & 1;
    if (may_end && (all.empty() || random_() % 2 == 0)) return end;
    const bool close = !closing.empty() && random_() % 100 < static_cast<unsigned>(20 + position);
    return pick(close ? closing : all);
  }
  std::int32_t pick(const std::vector<std::int32_t>& from) { return from[random_() % from.size()]; }

  const std::shared_ptr<const tokenizer> text_;
  std::mt19937 random_;
};

bool may_come(const tokenizer& text, token_constraint& at, const std::string& answer) {
  const auto allowed = [&](std::int32_t id) {
    return at.allowed()[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1;
  };
  for (const auto id : text.encode(answer)) {
    if (!allowed(id)) return false;
    at.accept(id);
  }
  return allowed(text.eog_ids().front());
}

}  // namespace

int main(int argc, char** argv) {
  const auto text = argc == 4 ? open_text(argv[1]) : nullptr;
  if (!text) return std::cerr << "usage: " << argv[0] << " MODEL.gguf COUNT SEED < schemas\n", 2;
  grammar_cache cache{text};
  drawer draw{text, static_cast<std::uint32_t>(std::atoi(argv[3]))};
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json out;
    const auto asked = nlohmann::ordered_json::parse(line);
    const auto grammar = grammar_of_schema(asked["schema"].dump());
    const auto usable = grammar ? cache.find(*grammar) : tl::unexpected(grammar.error());
    if (!usable) {
      out["refused"] = usable.error().detail;
    } else {
      out["answers"] = nlohmann::json::array();
      for (int i = 0; i < std::atoi(argv[2]); ++i) {
        auto at = *cache.start(*grammar);
        if (auto answer = draw.answer(*at)) out["answers"].push_back(std::move(*answer));
      }
      out["taken"] = nlohmann::json::array();
      for (const auto& t : asked["texts"])
        out["taken"].push_back(may_come(*text, **cache.start(*grammar), t.get<std::string>()));
    }
    std::cout << out.dump() << "\n";
  }
}
