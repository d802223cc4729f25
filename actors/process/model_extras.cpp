#include "actors/process/model_extras.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/log/log.hpp"
#include "runtime/sched/block_hash.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

namespace {

/// The parts of a list with commas, without the spaces around them.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    auto part = list.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) out.push_back(part);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

}  // namespace

result<std::map<std::string, std::shared_ptr<const lora_adapter>, std::less<>>> load_adapters(
    device* dev, const model_config& config, const options& options) {
  std::map<std::string, std::shared_ptr<const lora_adapter>, std::less<>> out;
  const auto refuse = [](const std::string& why) {
    return fail(ec::invalid_argument, "lora-modules: " + why);
  };
  auto taken = parts_of(options.gateway.model_aliases);
  taken.push_back(options.model.served_model_name);
  for (const auto part : parts_of(options.model.lora_modules)) {
    const auto equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == part.size())
      return refuse("'" + std::string{part} + "' is not NAME=FOLDER");
    const std::string name{part.substr(0, equals)}, folder{part.substr(equals + 1)};
    if (out.contains(name) || std::ranges::find(taken, name) != taken.end())
      return refuse("two models would be called '" + name + "'");
    if (options.model.device.starts_with("model:"))
      return refuse("a device that computes nothing (--device " + options.model.device +
                    ") takes no adapters");
    auto loaded = lora_adapter::load(dev, config, folder, map_files_of<mapped_file>(folder));
    if (!loaded) return fail(loaded.error().code, "lora-modules: " + name + ": " + loaded.error().detail);
    log_info("adapter", {{"name", name}, {"rank", std::to_string((*loaded)->rank())}});
    out.emplace(name, std::move(*loaded));
  }
  return out;
}

result<generation_defaults> defaults_of_model(const std::string& path, const std::string& option) {
  if (option == "none") return generation_defaults{};
  const bool own = option == "auto";
  const auto file = own ? path + "/generation_config.json" : option;
  std::error_code none;
  if (own && !std::filesystem::exists(file, none)) return generation_defaults{};
  const auto mapped = mapped_file::open(file);
  if (!mapped) return fail(mapped.error().code, "generation-config: " + mapped.error().detail);
  const auto bytes = mapped->bytes();
  auto made = generation_defaults_from_hf({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
  if (!made) return fail(made.error().code, "generation-config: " + made.error().detail);
  if (const auto text = to_string(*made); !text.empty())
    log_info("sampling defaults of the model", {{"values", text}, {"from", file}});
  return made;
}

std::string adapters_text(const node_context& context) {
  std::string out;
  for (const auto& [name, adapter] : context.adapters) out += (out.empty() ? ", adapters " : " ") + name;
  return out;
}

block_key cluster_identity(const node_context& context) {
  auto root = root_key(context.root, context.layout);
  for (const auto& [name, adapter] : context.adapters)
    root = adapted_root(root, hash_text128(name + "|" + to_string(adapter->fingerprint())));
  return root;
}

}  // namespace mooncaf
