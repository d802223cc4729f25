#pragma once
// A token stream to a text stream of whole characters.

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// Where the tokens of an `incremental_decoder` stand.
enum class stream_start : std::uint8_t {
  continues,    ///< They go on after a prompt (generated tokens): a leading space is kept.
  begins_text,  ///< They are a text of their own: a SentencePiece space prefix is taken off, as `decode`
                ///< does.
};

/// Turns tokens into UTF-8 as they come. A character may be spread over several tokens; its bytes are held
/// back until it is complete or can no longer become so (then U+FFFD goes out). All that `push` and `finish`
/// returned, joined, equals `tokenizer::decode` of all tokens.
/// @thread Not synchronised; one per stream. Cheap to make.
class incremental_decoder {
 public:
  explicit incremental_decoder(std::shared_ptr<const tokenizer> tok, special_text how = special_text::hide,
                               stream_start start = stream_start::continues);

  /// The text that token `id` made certain; may be empty. Ids out of range add nothing.
  std::string push(std::int32_t id);
  /// The end of the stream: U+FFFD if a character was left incomplete, else empty. The decoder is as new.
  std::string finish();

 private:
  std::shared_ptr<const tokenizer> tokenizer_;
  special_text how_;
  stream_start start_;
  bool strip_space_;
  std::string pending_;
};

}  // namespace mooncaf
