#include "runtime/loading/served_model.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "runtime/loading/loading_progress.hpp"
#include "runtime/loading/model_slice.hpp"
#include "runtime/log/log.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/hf_source.hpp"
#include "runtime/text/dummy_vocab.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "runtime/text/vocab_from_hf.hpp"
#include "storage/file_slice.hpp"
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
  const auto parts =
      parts_of(into.identity.config, devices.share, static_cast<std::uint32_t>(devices.all.size()));
  if (!parts) return fail(parts.error());
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const auto& [layers, rank] = (*parts)[i];
    auto seen = watched(*devices.all[i], bytes * layers.count / into.identity.config.n_layers / rank.of);
    auto net = load(seen, layers, rank);
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

result<weights_and_words> load_file(const devices_t& devices, const std::string& given,
                                    const model_needs& needs) {
  const auto path = model_files(given);
  if (path != given) {
    const model_use use{needs.weights, devices.share, static_cast<std::uint32_t>(devices.all.size()), false};
    if (auto enough = check_slice(given, std::span{&use, 1}); !enough) return fail(enough.error());
  }
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

stage_share share_of(const options& o) {
  const auto& m = o.model;
  const bool experts = m.expert > 1;
  if (o.cluster.rank)
    return {std::max(m.stage, 1u) - 1, m.pipeline, m.tensor, m.tensor > 1 ? m.tensor_rank : 0, experts};
  if (o.cluster.ranks.empty()) return {0, m.pipeline, m.tensor, 0, experts};
  const auto stages = static_cast<std::uint32_t>(o.cluster.ranks.size() + 1) / m.tensor;
  return {stages - 1, stages, m.tensor, m.tensor > 1 ? 1u : 0u, experts};
}

result<std::vector<std::pair<layer_range, tensor_part>>> parts_of(const model_config& shape,
                                                                  const stage_share& share,
                                                                  std::uint32_t devices) {
  if (auto fits = check_tensor(shape, share.ranks, share.whole_experts); !fits) return fail(fits.error());
  const auto here = share.rank == 0 ? share.ranks : 1;  // devices of a stage
  const auto stages = share.of == 0 ? devices / here : share.of;
  if (stages > shape.n_layers)
    return fail(ec::invalid_argument, "pipeline: " + std::to_string(stages) +
                                          " stages are more than the model's " +
                                          std::to_string(shape.n_layers) + " layers");
  if (devices > 0 && share.first + (devices - 1) / here >= stages)
    return fail(ec::invalid_argument, "stage: " + std::to_string(share.first + 1) + " is not one of the " +
                                          std::to_string(stages) + " stages");
  std::vector<std::pair<layer_range, tensor_part>> parts;
  for (std::uint32_t i = 0; i < devices; ++i)
    parts.emplace_back(
        stage_layers(shape.n_layers, stages, share.first + i / here),
        tensor_part{share.rank == 0 ? i % here : share.rank - 1, share.ranks, share.whole_experts});
  return parts;
}

std::string model_files(const std::string& path) {
  std::error_code none;
  const auto slice = file_slice::data_of(path);
  return !std::filesystem::exists(path, none) && std::filesystem::exists(slice, none) ? slice : path;
}

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
