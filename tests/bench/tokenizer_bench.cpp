// Tokenizer throughput: encodes a text file with a model's vocabulary, one thread, median of 5. Usage:
// mooncaf_tokenizer_bench MODEL.gguf TEXT_FILE    (tokenizer_bench.py runs it beside Hugging Face's
// tokenizers) Prints one line: encode MB/s, decode MB/s, tokens, milliseconds to build the tokenizer.

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/model/gguf.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "storage/mapped_file.hpp"

using namespace mooncaf;

namespace {

template <class F>
double median_seconds(F&& body) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[2];
}

int fail_with(const error& e) {
  std::fprintf(stderr, "%s\n", to_string(e).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3)
    return fail_with({ec::invalid_argument, "usage: mooncaf_tokenizer_bench MODEL.gguf TEXT_FILE"});
  const auto model = mapped_file::open(argv[1]);
  if (!model) return fail_with(model.error());
  const auto text_file = mapped_file::open(argv[2]);
  if (!text_file) return fail_with(text_file.error());
  const auto gguf = parse_gguf(model->bytes(), argv[1]);
  if (!gguf) return fail_with(gguf.error());
  const auto vocab = vocab_from_gguf(*gguf);
  if (!vocab) return fail_with(vocab.error());
  const auto start = std::chrono::steady_clock::now();
  const auto tok = tokenizer::from_vocab(*vocab);
  if (!tok) return fail_with(tok.error());
  const double build = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const std::string_view text{reinterpret_cast<const char*>(text_file->bytes().data()),
                              text_file->bytes().size()};
  std::vector<std::int32_t> ids;
  std::string decoded;
  const double encode = median_seconds([&] { ids = (*tok)->encode(text); });
  const double decode = median_seconds([&] { decoded = (*tok)->decode(ids); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%.1f %.1f %zu %.1f\n", megabytes / encode, megabytes / decode, ids.size(), build * 1e3);
  return decoded == text ? 0 : fail_with({ec::internal, "the text did not survive the round trip"});
}
