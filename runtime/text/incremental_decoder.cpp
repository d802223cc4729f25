#include "runtime/text/incremental_decoder.hpp"

#include "runtime/base/utf8.hpp"

namespace mooncaf {

incremental_decoder::incremental_decoder(std::shared_ptr<const tokenizer> tok, special_text how,
                                         stream_start start)
    : tokenizer_(std::move(tok)),
      how_(how),
      start_(start),
      strip_space_(start == stream_start::begins_text && tokenizer_->adds_space_prefix()) {}

std::string incremental_decoder::push(std::int32_t id) {
  const bool special = tokenizer_->is_special(id);
  if (special && how_ == special_text::hide) return {};
  std::string_view bytes = tokenizer_->piece(id);
  if (strip_space_ && !bytes.empty() && !special) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    strip_space_ = false;
  }
  pending_ += bytes;
  const std::size_t ready = pending_.size() - utf8::incomplete_tail(pending_);
  std::string out = utf8::to_well_formed(std::string_view{pending_}.substr(0, ready));
  pending_.erase(0, ready);
  return out;
}

std::string incremental_decoder::finish() {
  std::string out = utf8::to_well_formed(pending_);
  pending_.clear();
  strip_space_ = start_ == stream_start::begins_text && tokenizer_->adds_space_prefix();
  return out;
}

}  // namespace mooncaf
