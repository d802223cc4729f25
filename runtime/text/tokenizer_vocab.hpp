#pragma once
// The parts of a tokenizer, free of any file format.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/text_steps.hpp"

namespace mooncaf {

/// The kind of a vocabulary entry; the values are GGUF's `tokenizer.ggml.token_type`.
enum class token_type : std::uint8_t {
  normal = 1,        ///< Text. In a byte-level vocabulary written in GPT-2's byte alphabet ("Ġ" is a space).
  unknown = 2,       ///< Stands for text that the vocabulary cannot express.
  control = 3,       ///< A marker such as <|im_start|>: never made from a user's text.
  user_defined = 4,  ///< Literal text that is always one token, wherever it occurs.
  unused = 5,        ///< A hole in the numbering.
  byte = 6,          ///< SentencePiece's fallback for one byte, written "<0x0A>".
};

/// Which algorithm turns words into tokens.
enum class vocab_kind : std::uint8_t {
  byte_bpe,       ///< Byte-level BPE with ranked merges (GPT-2, Llama 3, Qwen2, SmolLM2).
  sentencepiece,  ///< Scored pieces with byte fallback (Llama 2, TinyLlama, Mistral 7B).
  unigram,        ///< The likeliest cut into scored pieces (T5, XLM-R, llm-jp).
};

/// The parts of a tokenizer as a model file names them. A plain value: `tokenizer::from_vocab` does the
/// checking.
struct tokenizer_vocab {
  vocab_kind kind = vocab_kind::byte_bpe;
  /// Byte-level only: how text is cut into words. One of the names GGUF uses in `tokenizer.ggml.pre`:
  /// "gpt-2", "smollm", "llama-bpe", "qwen2", … ; empty or "default" means "gpt-2".
  std::string pre = "default";
  std::vector<std::string> tokens;  ///< [vocab]; the index is the token id
  std::vector<token_type> types;    ///< [vocab] or empty: all normal
  /// "left right", best first. Byte-level vocabularies merge by them, and a sentencepiece one that has no
  /// scores.
  std::vector<std::string> merges;
  /// sentencepiece: [vocab], higher merges first; or empty. unigram: logarithms of likelihoods; tokens from
  /// scores.size() on are found as markers alone.
  std::vector<double> scores;
  std::vector<text_step> steps;  ///< unigram only: how a text is changed first
  word_rule words;               ///< unigram only: then how it is cut
  /// Byte-level only: a word that is a token is taken whole, even where merges would end elsewhere. Unset: as
  /// `pre` has it.
  std::optional<bool> ignore_merges;
  std::int32_t bos = -1;          ///< begins a text; -1: none
  std::int32_t eos = -1;          ///< ends a text or an answer; -1: none
  std::int32_t eot = -1;          ///< ends a turn, where that differs from `eos`; -1: none
  std::int32_t unknown = -1;      ///< of pieces: for text that no piece and no byte can express; -1: dropped
  bool add_bos = false;           ///< a plain prompt starts with `bos`
  bool add_eos = false;           ///< a plain prompt ends with `eos`
  bool add_space_prefix = false;  ///< sentencepiece only: text is encoded as if a space came before it
  bool prefix_at_start_only = false;      ///< … but not behind a marker, nor if the text begins with one
  std::vector<std::int32_t> ends;         ///< more tokens that end an answer
  std::vector<std::int32_t> takes_space;  ///< markers that take the white space behind them
  std::string chat_template;              ///< the file's Jinja template, as text; may be empty
};

}  // namespace mooncaf
