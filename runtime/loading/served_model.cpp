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
  std::vector<std::shared_ptr<const model>> nets;
  std::optional<tokenizer_vocab> vocab;
};

/// Where weights go.
struct devices_t {
  std::span<device* const> all;
  stage_share share;

  std::uint32_t stages() const noexcept {
    return share.of == 0 ? static_cast<std::uint32_t>(all.size()) / ranks_here() : share.of;
  }
  /// Devices of a stage.
  std::uint32_t ranks_here() const noexcept { return share.rank == 0 ? share.ranks : 1; }
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

/// Loads on each device the layers of its stage.
/// @param load  (device, layers, share of each) → model; the progress of one of several loads of `bytes` together is told.
template <class Load>
result<void> add_weights(weights_and_words& into, const devices_t& devices, std::size_t bytes,
                         const Load& load) {
  const auto count = devices.stages(), ranks = devices.share.ranks;
  const auto layers = into.identity.config.n_layers;
  if (auto fits = check_tensor(into.identity.config, ranks, devices.share.whole_experts); !fits) return fits;
  if (count > layers)
    return fail(ec::invalid_argument, "pipeline: " + std::to_string(count) +
                                          " stages are more than the model's " + std::to_string(layers) +
                                          " layers");
  for (std::uint32_t i = 0; i < devices.all.size(); ++i) {
    auto seen = watched(*devices.all[i], bytes / count / ranks);
    const auto here = devices.ranks_here();
    const auto rank = devices.share.rank == 0 ? i % here : devices.share.rank - 1;
    auto net = load(seen, stage_layers(layers, count, devices.share.first + i / here),
                    tensor_part{rank, ranks, devices.share.whole_experts});
    if (!net) return fail(net.error());
    into.nets.push_back(std::move(*net));
  }
  into.identity.fingerprint = into.nets.front()->fingerprint();
  return {};
}

result<void> adopt(weights_and_words& into, result<model_identity> identity) {
  if (!identity) return fail(identity.error());
  into.identity = std::move(*identity);
  return {};
}

result<weights_and_words> make_dummy(const devices_t& devices, const std::string& spec,
                                     const model_needs& needs) {
  const auto shape = dummy_shape(spec);
  if (!shape) return fail(shape.error());
  weights_and_words out;
  out.identity.config = *shape;
  if (needs.vocabulary) {
    auto vocab = dummy_vocab(shape->vocab_size);
    if (!vocab) return fail(vocab.error());
    out.vocab = std::move(*vocab);
  }
  const auto load = [&](device& dev, layer_range part, tensor_part share) {
    return model::dummy(dev, *shape, dummy_seed, part, share);
  };
  const auto adopted = needs.weights ? add_weights(out, devices, shape->dummy_bytes(), load)
                                     : adopt(out, model::identify_dummy(*shape, dummy_seed));
  if (!adopted) return fail(adopted.error());
  return out;
}

/// The model of a source, as far as it is needed. @param keep_alive  owner of its bytes.
result<void> add_model(weights_and_words& into, const devices_t& devices, const model_source& source,
                       const std::shared_ptr<const void>& keep_alive, std::size_t bytes,
                       const model_needs& needs) {
  if (!needs.weights) return adopt(into, model::identify(source));
  auto config = source.config();
  if (!config) return fail(config.error());
  into.identity.config = std::move(*config);
  return add_weights(into, devices, bytes, [&](device& dev, layer_range part, tensor_part share) {
    return model::load(dev, source, keep_alive, part, share);
  });
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

result<weights_and_words> load_folder(const devices_t& devices, const std::string& path,
                                      const model_needs& needs) {
  const auto read = map_files_of<mapped_file>(path);
  const auto source = hf_source::open(path, read);
  if (!source) return fail(source.error());
  weights_and_words out;
  if (needs.vocabulary) {
    auto vocab = vocab_of_folder(path, read);
    if (!vocab) return fail(vocab.error());
    out.vocab = std::move(*vocab);
  }
  const auto added = add_model(out, devices, **source, *source, bytes_of_weights(path), needs);
  if (!added) return fail(added.error());
  return out;
}

result<weights_and_words> load_file(const devices_t& devices, const std::string& path,
                                    const model_needs& needs) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return load_folder(devices, path, needs);
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
  const auto added = add_model(out, devices, gguf_source(*parsed), file, file->bytes().size(), needs);
  if (!added) return fail(added.error());
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

result<served_model> load_served_model(std::span<device* const> devices, const std::string& path,
                                       const std::string& template_name, const model_needs& needs,
                                       stage_share share) {
  const devices_t to{devices, share};
  auto parts = is_dummy_spec(path) ? make_dummy(to, path, needs) : load_file(to, path, needs);
  if (!parts) return fail(parts.error());
  served_model out{std::move(parts->identity), std::move(parts->nets), nullptr, nullptr};
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
