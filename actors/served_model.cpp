#include "actors/served_model.hpp"

#include "actors/log.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/text/dummy_vocab.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

namespace {

struct weights_and_words {
  std::shared_ptr<const model> net;
  tokenizer_vocab vocab;
};

result<weights_and_words> make_dummy(device& dev, const std::string& spec) {
  const auto shape = dummy_shape(spec);
  if (!shape) return fail(shape.error());
  auto vocab = dummy_vocab(shape->vocab_size);
  if (!vocab) return fail(vocab.error());
  // Every process of a cluster must make the same weights.
  auto made = model::dummy(dev, *shape, 1);
  if (!made) return fail(made.error());
  return weights_and_words{std::move(*made), std::move(*vocab)};
}

result<weights_and_words> load_file(device& dev, const std::string& path) {
  auto mapped = mapped_file::open(path);
  if (!mapped) return fail(mapped.error());
  const auto file = std::make_shared<mapped_file>(std::move(*mapped));
  const auto parsed = parse_gguf(file->bytes(), path);
  if (!parsed) return fail(parsed.error());
  auto net = model::load(dev, *parsed, file);
  if (!net) return fail(net.error());
  auto vocab = vocab_from_gguf(*parsed);
  if (!vocab) return fail(vocab.error());
  return weights_and_words{std::move(*net), std::move(*vocab)};
}

}  // namespace

result<served_model> load_served_model(device& dev, const std::string& path,
                                       const std::string& template_name) {
  auto parts = is_dummy_spec(path) ? make_dummy(dev, path) : load_file(dev, path);
  if (!parts) return fail(parts.error());
  auto text = tokenizer::from_vocab(std::move(parts->vocab));
  if (!text) return fail(text.error());
  served_model out{std::move(parts->net), *text, nullptr};
  auto chat = chat_template::recognise(*text, template_name);
  if (chat) {
    out.chat = std::make_shared<chat_template>(std::move(*chat));
  } else if (template_name != "auto") {
    return fail(chat.error());
  } else {
    log_warn("chat template", {{"problem", chat.error().detail}});
  }
  return out;
}

}  // namespace mooncaf
