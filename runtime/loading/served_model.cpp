#include "runtime/loading/served_model.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "runtime/loading/loading_progress.hpp"
#include "runtime/log/log.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/hf_source.hpp"
#include "runtime/text/dummy_vocab.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "runtime/text/vocab_from_hf.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

namespace {

// Every process of a cluster must make the same weights.
constexpr std::uint64_t dummy_seed = 1;

struct weights_and_words {
  model_identity identity;
  std::shared_ptr<const model> net;
  std::optional<tokenizer_vocab> vocab;
};

/// A device that logs how far its loading is.
loading_progress watched(device& dev, std::size_t bytes) {
  return {dev, bytes, [] { return clock_type::now(); },
          [](const std::string& progress) {
            log_info("loading", {{"weights", progress}});
          }};
}

/// Of the files that have weights; 0 if they cannot be counted.
std::size_t bytes_of_weights(const std::string& folder) {
  std::size_t bytes = 0;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder, none))
    if (file.path().extension() == ".safetensors") bytes += file.file_size(none);
  return bytes;
}

result<void> adopt(weights_and_words& into, result<std::shared_ptr<const model>> net) {
  if (!net) return fail(net.error());
  into.net = std::move(*net);
  into.identity = {into.net->config(), into.net->fingerprint()};
  return {};
}

result<void> adopt(weights_and_words& into, result<model_identity> identity) {
  if (!identity) return fail(identity.error());
  into.identity = std::move(*identity);
  return {};
}

result<weights_and_words> make_dummy(device* dev, const std::string& spec, const model_needs& needs) {
  const auto shape = dummy_shape(spec);
  if (!shape) return fail(shape.error());
  weights_and_words out;
  if (needs.vocabulary) {
    auto vocab = dummy_vocab(shape->vocab_size);
    if (!vocab) return fail(vocab.error());
    out.vocab = std::move(*vocab);
  }
  const auto weights = [&] {
    auto seen = watched(*dev, shape->dummy_bytes());
    return model::dummy(seen, *shape, dummy_seed);
  };
  const auto adopted =
      needs.weights ? adopt(out, weights()) : adopt(out, model::identify_dummy(*shape, dummy_seed));
  if (!adopted) return fail(adopted.error());
  return out;
}

/// The tokenizer's files of a folder; missing ones are empty.
result<tokenizer_vocab> vocab_of_folder(const std::string& path, const folder_reader& read) {
  std::vector<owned_bytes> kept;
  std::optional<error> broken;
  const auto text = [&](const char* name) -> std::string_view {
    auto bytes = read(name);
    if (!bytes) {
      if (bytes.error() != ec::not_found && !broken) broken = bytes.error();
      return {};
    }
    kept.push_back(std::move(*bytes));
    return kept.back().text();
  };
  const hf_text_files files{text("tokenizer.json"), text("tokenizer_config.json"),
                            text("generation_config.json"), text("config.json"), text("chat_template.jinja")};
  if (broken) return fail(*broken);
  return vocab_from_hf(files, path);
}

result<weights_and_words> load_folder(device* dev, const std::string& path, const model_needs& needs) {
  const auto read = map_files_of<mapped_file>(path);
  const auto source = hf_source::open(path, read);
  if (!source) return fail(source.error());
  weights_and_words out;
  if (needs.vocabulary) {
    auto vocab = vocab_of_folder(path, read);
    if (!vocab) return fail(vocab.error());
    out.vocab = std::move(*vocab);
  }
  const auto weights = [&] {
    auto seen = watched(*dev, bytes_of_weights(path));
    return model::load(seen, **source, *source);
  };
  const auto adopted = needs.weights ? adopt(out, weights()) : adopt(out, model::identify(**source));
  if (!adopted) return fail(adopted.error());
  return out;
}

result<weights_and_words> load_file(device* dev, const std::string& path, const model_needs& needs) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return load_folder(dev, path, needs);
  auto mapped = mapped_file::open(path);
  if (!mapped) return fail(mapped.error());
  const auto file = std::make_shared<mapped_file>(std::move(*mapped));
  const auto parsed = parse_gguf(file->bytes(), path);
  if (!parsed) return fail(parsed.error());
  weights_and_words out;
  if (needs.vocabulary) {
    auto vocab = vocab_from_gguf(*parsed);
    if (!vocab) return fail(vocab.error());
    out.vocab = std::move(*vocab);
  }
  const auto weights = [&] {
    auto seen = watched(*dev, file->bytes().size());
    return model::load(seen, gguf_source(*parsed), file);
  };
  const auto adopted =
      needs.weights ? adopt(out, weights()) : adopt(out, model::identify(gguf_source(*parsed)));
  if (!adopted) return fail(adopted.error());
  return out;
}

result<chat_template> template_of_file(std::shared_ptr<const tokenizer> text, const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  std::string source{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    return fail(ec::io_error, "chat-template: " + path +
                                  " is neither auto, chatml, llama3 or none, nor a file " +
                                  "that can be read: " + std::strerror(errno));
  auto made = chat_template::from_source(std::move(text), std::move(source));
  if (!made) return fail(made.error().code, "chat-template: " + path + ": " + made.error().detail);
  return made;
}

}  // namespace

result<served_model> load_served_model(device* dev, const std::string& path, const std::string& template_name,
                                       const model_needs& needs) {
  auto parts = is_dummy_spec(path) ? make_dummy(dev, path, needs) : load_file(dev, path, needs);
  if (!parts) return fail(parts.error());
  served_model out{std::move(parts->identity), std::move(parts->net), nullptr, nullptr};
  if (!parts->vocab) return out;
  auto text = tokenizer::from_vocab(std::move(*parts->vocab));
  if (!text) return fail(text.error());
  out.text = std::move(*text);
  const bool ours = template_name == "auto" || !builtin_chat_template(template_name, false).empty();
  auto chat =
      ours ? chat_template::recognise(out.text, template_name) : template_of_file(out.text, template_name);
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
