#include "runtime/text/vocab_from_hf.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "runtime/model/json_file.hpp"
#include "runtime/text/hf_json.hpp"
#include "runtime/text/hf_text_steps.hpp"

namespace mooncaf {

using namespace hf_json;

namespace {

/// Numbers of tokens beyond the ones that the file lists, for holes.
constexpr std::size_t most_holes = 65536;

/// How byte-level vocabularies cut text, by the expression that their files hold.
struct known_split {
  std::string_view pattern, name;
};
constexpr known_split splits[] = {
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "gpt-4o"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
};

class hf_vocab_reader {
 public:
  hf_vocab_reader(const hf_text_files& files, const std::string& folder) : files_(files), folder_(folder) {}

  result<tokenizer_vocab> run() {
    const auto label = folder_ + "/tokenizer.json";
    if (files_.tokenizer.empty()) return fail(ec::not_found, label + ": is missing");
    auto parsed = parse_json_object(files_.tokenizer, label);
    if (!parsed) return fail(std::move(parsed.error()));
    root_ = std::move(*parsed);
    label_ = label;
    const auto model = root_.find("model");
    if (model == root_.end() || !model->is_object()) return fail(ec::corrupt, label + ": 'model' is missing");
    const auto type = type_of(*model);
    unigram_ = type == "Unigram" || (type.empty() && model->contains("unk_id"));
    if (!unigram_ && type != "BPE" && !(type.empty() && model->contains("merges")))
      return fail(ec::unsupported, label + ": a model of type '" + type.substr(0, 40) +
                                       "' is not offered; BPE and Unigram are");
    if (auto done = tokens(*model); !done) return fail(std::move(done.error()));
    if (auto done = unigram_ ? unigram(*model) : by_merges(*model); !done)
      return fail(std::move(done.error()));
    if (auto done = markers(); !done) return fail(std::move(done.error()));
    if (auto done = template_text(); !done) return fail(std::move(done.error()));
    return std::move(vocab_);
  }

 private:
  tl::unexpected<error> corrupt(const std::string& what) const {
    return fail(ec::corrupt, label_ + ": " + what);
  }
  tl::unexpected<error> refuse(const std::string& what) const {
    return fail(ec::unsupported, label_ + ": " + what);
  }

  result<void> put(const std::string& text, const json& id, token_type type) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= limit_)
      return corrupt("token '" + text.substr(0, 40) + "' has the id " + id.dump().substr(0, 20) +
                     ", not one below " + std::to_string(limit_));
    const auto at = id.get<std::size_t>();
    if (at >= vocab_.tokens.size()) {
      vocab_.tokens.resize(at + 1);
      vocab_.types.resize(at + 1, token_type::unused);
    }
    vocab_.tokens[at] = text;
    vocab_.types[at] = type;
    return {};
  }

  result<void> tokens(const json& model) {
    const auto list = model.find("vocab");
    if (list == model.end() || !(unigram_ ? list->is_array() : list->is_object()))
      return corrupt("'model.vocab' is missing");
    const auto added = root_.find("added_tokens");
    const bool more = added != root_.end() && added->is_array();
    limit_ = list->size() + (more ? added->size() : 0) + most_holes;
    if (unigram_)
      if (auto done = scored(*list); !done) return done;
    if (!unigram_)
      for (const auto& [text, id] : list->items())
        if (auto done = put(text, id, token_type::normal); !done) return done;
    for (const auto& token : more ? *added : json::array()) {
      if (!token.is_object() || !token.contains("id") || word(token, "content").empty())
        return corrupt("'added_tokens' has an entry without id or content");
      const auto text = word(token, "content");
      if (flag(token, "lstrip", false) || flag(token, "single_word", false))
        return refuse("token '" + text.substr(0, 40) +
                      "' takes the space before it (lstrip), or stands alone "
                      "(single_word): that is not offered");
      if (unigram_ && flag(token, "normalized", !flag(token, "special", false)) && !vocab_.steps.empty())
        return refuse("token '" + text.substr(0, 40) +
                      "' is looked for in normalised text (normalized): that is not offered");
      // A run of spaces is found by merging, as the file's own rules do it: they look for marks as such.
      const bool spaces = text.find(space_mark) != std::string::npos;
      const auto type = flag(token, "special", false) ? token_type::control
                        : spaces && !unigram_         ? token_type::normal
                                                      : token_type::user_defined;
      if (auto done = put(text, token["id"], type); !done) return done;
      if (flag(token, "rstrip", false)) vocab_.takes_space.push_back(token["id"].get<std::int32_t>());
    }
    return {};
  }

  /// Pieces with their scores: the index is the id.
  result<void> scored(const json& list) {
    for (const auto& entry : list) {
      const auto id = vocab_.tokens.size();
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        return corrupt("'model.vocab' has an entry " + std::to_string(id) +
                       " that is not a piece and its score");
      vocab_.tokens.push_back(entry[0].get<std::string>());
      vocab_.types.push_back(token_type::normal);
      vocab_.scores.push_back(entry[1].get<double>());
    }
    auto steps = hf_text_steps(root_, label_);
    if (!steps) return fail(std::move(steps.error()));
    vocab_.steps = std::move(steps->steps);
    vocab_.words = steps->words;
    vocab_.add_space_prefix = steps->prefixes;
    return {};
  }

  result<void> by_merges(const json& model) {
    if (auto done = merges(model); !done) return done;
    const bool bytes = std::ranges::any_of(parts_of(root_, "pre_tokenizer", "pretokenizers"),
                                           [](const json* p) { return type_of(*p) == "ByteLevel"; });
    vocab_.kind = bytes ? vocab_kind::byte_bpe : vocab_kind::sentencepiece;
    return bytes ? byte_level(model) : pieces(model);
  }

  /// Likelihoods of pieces; the changes to a text before are in `hf_text_steps`.
  result<void> unigram(const json& model) {
    vocab_.kind = vocab_kind::unigram;
    const auto unknown = model.find("unk_id");
    if (unknown == model.end() || !unknown->is_number_unsigned() ||
        unknown->get<std::uint64_t>() >= vocab_.scores.size())
      return refuse("a Unigram model whose 'unk_id' is no piece's is not offered");
    vocab_.unknown = unknown->get<std::int32_t>();
    mark_pieces(flag(model, "byte_fallback", false));
    return {};
  }

  result<void> merges(const json& model) {
    const auto list = model.find("merges");
    if (list == model.end() || !list->is_array()) return corrupt("'model.merges' is missing");
    vocab_.merges.reserve(list->size());
    for (const auto& m : *list) {
      if (m.is_string()) vocab_.merges.push_back(m.get<std::string>());
      else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string())
        vocab_.merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
      else return corrupt("merge " + std::to_string(vocab_.merges.size()) + " is not two tokens");
    }
    return {};
  }

  /// GPT-2's way: bytes written in its alphabet, and an expression that cuts words.
  result<void> byte_level(const json& model) {
    bool digits = false, own = false;
    vocab_.pre.clear();
    for (const auto* part : parts_of(root_, "pre_tokenizer", "pretokenizers")) {
      const auto type = type_of(*part);
      if (type == "Digits" && flag(*part, "individual_digits", false)) {
        digits = true;
      } else if (type == "Split") {
        const auto pattern = pattern_of(*part, "Regex");
        const auto* known = std::ranges::find(splits, pattern, &known_split::pattern);
        if (known == std::end(splits) || word(*part, "behavior") != "Isolated" ||
            flag(*part, "invert", false))
          return refuse("text is cut by an expression that is not known: " + pattern.substr(0, 300));
        vocab_.pre = known->name;
      } else if (type == "ByteLevel") {
        own = flag(*part, "use_regex", true);
        if (flag(*part, "add_prefix_space", false)) return refuse("'add_prefix_space' is not offered here");
      } else {
        return refuse("a pre-tokenizer of type '" + type.substr(0, 40) + "' is not offered here");
      }
    }
    if (vocab_.pre.empty() == !own || (digits && !own))
      return refuse("this combination of pre-tokenizers is not offered");
    if (own) vocab_.pre = digits ? "smollm" : "gpt-2";
    bool nfc = false;
    for (const auto* part : parts_of(root_, "normalizer", "normalizers")) {
      nfc = type_of(*part) == "NFC";
      if (!nfc)
        return refuse("a normalizer of type '" + type_of(*part).substr(0, 40) + "' is not offered here");
    }
    if (nfc != (vocab_.pre == "qwen2"))
      return refuse("NFC is offered with Qwen2's expression alone, and that not without it");
    vocab_.ignore_merges = flag(model, "ignore_merges", false);
    return {};
  }

  /// SentencePiece's way: characters, spaces written as U+2581, bytes for text without a piece.
  result<void> pieces(const json& model) {
    if (!flag(model, "byte_fallback", false))
      return refuse("a vocabulary that is neither byte-level nor falls back to bytes is not offered");
    for (const auto* part : parts_of(root_, "normalizer", "normalizers")) {
      if (type_of(*part) == "Prepend" && word(*part, "prepend") == space_mark) {
        vocab_.add_space_prefix = true;
      } else if (type_of(*part) != "Replace" || pattern_of(*part, "String") != " " ||
                 word(*part, "content") != space_mark) {
        return refuse("a normalizer of type '" + type_of(*part).substr(0, 40) + "' is not offered here");
      }
    }
    for (const auto* part : parts_of(root_, "pre_tokenizer", "pretokenizers")) {
      const auto type = type_of(*part), scheme = word(*part, "prepend_scheme");
      if (type == "Metaspace" && !flag(*part, "split", true) && word(*part, "replacement") == space_mark &&
          (scheme == "first" || scheme == "never")) {
        vocab_.add_space_prefix = vocab_.prefix_at_start_only = scheme == "first";
      } else if (type != "Split" || pattern_of(*part, "String") != " ") {
        return refuse("a pre-tokenizer of type '" + type.substr(0, 40) + "' is not offered here");
      }
    }
    vocab_.unknown = id_of(word(model, "unk_token"));
    mark_pieces(true);
    return {};
  }

  /// Marks the pieces that stand for a byte, and the one for unknown text.
  void mark_pieces(bool bytes) {
    for (std::size_t id = 0; bytes && id < vocab_.tokens.size(); ++id) {
      const auto& token = vocab_.tokens[id];
      if (vocab_.types[id] == token_type::normal && token.size() == 6 && token.starts_with("<0x") &&
          token.back() == '>')
        vocab_.types[id] = token_type::byte;
    }
    if (vocab_.unknown < 0) return;
    auto& type = vocab_.types[static_cast<std::size_t>(vocab_.unknown)];
    if (type != token_type::control) type = token_type::unknown;
  }

  std::int32_t id_of(const std::string& text) const {
    if (text.empty()) return -1;
    const auto found = std::ranges::find(vocab_.tokens, text);
    return found == vocab_.tokens.end() ? -1 : static_cast<std::int32_t>(found - vocab_.tokens.begin());
  }

  /// A marker of tokenizer_config.json: a text, or an object with its content.
  std::int32_t marker(const json& config, const char* key) const {
    const auto found = config.find(key);
    if (found == config.end()) return -1;
    return id_of(found->is_object() ? word(*found, "content") : word(config, key));
  }

  /// Whether a post-processor puts `bos` before, or `eos` behind a text.
  void frame() {
    for (const auto* part : parts_of(root_, "post_processor", "processors")) {
      const auto single = part->find("single");
      if (type_of(*part) != "TemplateProcessing" || single == part->end() || !single->is_array()) continue;
      bool before = true;
      for (const auto& item : *single) {
        if (!item.is_object()) continue;
        const auto special = item.find("SpecialToken");
        if (special == item.end() || !special->is_object()) {
          before = false;
          continue;
        }
        const auto id = id_of(word(*special, "id"));
        if (before && id >= 0) {
          vocab_.add_bos = true;
          vocab_.bos = id;
        } else if (!before && id >= 0 && id == vocab_.eos) {
          vocab_.add_eos = true;
        }
      }
    }
  }

  result<void> markers() {
    json config = json::object();
    if (!files_.tokenizer_config.empty()) {
      auto parsed = parse_json_object(files_.tokenizer_config, folder_ + "/tokenizer_config.json");
      if (!parsed) return fail(std::move(parsed.error()));
      config = std::move(*parsed);
    }
    vocab_.bos = marker(config, "bos_token");
    vocab_.eos = marker(config, "eos_token");
    if (root_.contains("post_processor") && !root_["post_processor"].is_null()) frame();
    else vocab_.add_bos = vocab_.bos >= 0 && flag(config, "add_bos_token", false);
    config_ = std::move(config);
    for (const auto& [text, name] :
         {std::pair{files_.generation_config, "generation_config.json"}, {files_.config, "config.json"}}) {
      if (text.empty()) continue;
      const auto parsed = parse_json_object(text, folder_ + "/" + name);
      if (!parsed) return fail(parsed.error());
      const auto ends = parsed->find("eos_token_id");
      if (ends == parsed->end()) continue;
      for (const auto& id : ends->is_array() ? *ends : json::array({*ends})) {
        if (id.is_null()) continue;
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocab_.tokens.size())
          return fail(ec::corrupt, folder_ + "/" + name + ": 'eos_token_id' is " + id.dump().substr(0, 20) +
                                       ", the vocabulary has " + std::to_string(vocab_.tokens.size()) +
                                       " tokens");
        vocab_.ends.push_back(id.get<std::int32_t>());
      }
      break;  // generation_config.json goes before the other
    }
    return {};
  }

  result<void> template_text() {
    vocab_.chat_template = files_.chat_template;
    const auto found = config_.find("chat_template");
    if (!vocab_.chat_template.empty() || found == config_.end()) return {};
    if (found->is_string()) vocab_.chat_template = found->get<std::string>();
    if (!found->is_array()) return {};
    // Several by name: the one called default is taken.
    for (const auto& one : *found)
      if (one.is_object() && word(one, "name") == "default") vocab_.chat_template = word(one, "template");
    return {};
  }

  const hf_text_files& files_;
  const std::string& folder_;
  std::string label_;
  json root_, config_;
  std::size_t limit_ = 0;
  bool unigram_ = false;
  tokenizer_vocab vocab_;
};

}  // namespace

result<tokenizer_vocab> vocab_from_hf(const hf_text_files& files, const std::string& folder) {
  return hf_vocab_reader(files, folder).run();
}

}  // namespace mooncaf
