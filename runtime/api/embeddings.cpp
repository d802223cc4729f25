// /v1/embeddings: the body of a request, and its answer.

#include <bit>
#include <cmath>
#include <utility>

#include "runtime/api/json_body.hpp"
#include "runtime/api/json_text.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/request_reading.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

std::string base64_of(const std::vector<float>& values) {
  constexpr std::string_view signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes, out;
  for (const auto v : values) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const auto n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? signs[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

/// Of length 1, so that a product of two is the cosine between them.
std::vector<float> normalised(const std::vector<float>& values) {
  double squares = 0;
  for (const auto v : values) squares += static_cast<double>(v) * v;
  const auto length = squares > 0 ? std::sqrt(squares) : 1.0;
  std::vector<float> out;
  for (const auto v : values) out.push_back(static_cast<float>(v / length));
  return out;
}

class embeddings_answer final : public answer_writer {
 public:
  embeddings_answer(answer_head head, bool base64) : head_(std::move(head)), base64_(base64) {}

  std::string whole(const std::vector<choice_text>& choices, const usage_counts& usage) override {
    json data = json::array();
    for (const auto& c : choices) {
      const auto values = normalised(c.embedding);
      json one = {{"object", "embedding"}, {"index", c.index}};
      one["embedding"] = base64_ ? json(base64_of(values)) : json(values);
      data.push_back(std::move(one));
    }
    return text_of(
        {{"object", "list"},
         {"data", std::move(data)},
         {"model", head_.model},
         {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}});
  }
  std::string piece(const choice_text&) override { return {}; }
  std::string end(const usage_counts&) override { return {}; }
  api_error refusal(const error& cause, std::int64_t retry_after_s) const override {
    return format_error(cause, retry_after_s);
  }
  std::string error_event(const error& cause) override { return format_error_event(cause); }

 private:
  const answer_head head_;
  const bool base64_;
};

}  // namespace

result<embedding_request> parse_embeddings(std::string_view body) {
  const auto parsed = parse_body(body, body_endpoint::embeddings);
  if (!parsed) return fail(parsed.error());
  body_reader in{*parsed};
  embedding_request out;
  in.string("model", out.model);
  read_service(in, out);
  out.inputs = read_prompts(in, "input");
  in.boolean("add_special_tokens", out.add_special_tokens);
  in.boolean("parse_special", out.parse_special);
  std::string coding, pooling;
  in.string("encoding_format", coding);
  if (!coding.empty() && coding != "float" && coding != "base64")
    in.complain("encoding_format", "must be float or base64");
  out.base64 = coding == "base64";
  in.string("pooling", pooling);
  if (!pooling.empty() && pooling != "mean" && pooling != "last")
    in.complain("pooling", "must be mean or last");
  out.sampling.pooling = pooling == "last" ? pooling_kind::last : pooling_kind::mean;
  out.sampling.max_tokens = 1;
  out.sampling.temperature = 0;
  out.max_tokens_given = true;
  if (const auto problem = in.problem()) return fail(*problem);
  return out;
}

std::unique_ptr<answer_writer> embeddings_writer(answer_head head, bool base64) {
  return std::make_unique<embeddings_answer>(std::move(head), base64);
}

}  // namespace mooncaf
