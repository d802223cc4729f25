#pragma once
// A model as Hugging Face's libraries keep it: a folder of `config.json` and safetensors files.

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/hf_gpt_oss.hpp"
#include "runtime/model/hf_packed.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/model/safetensors.hpp"

namespace mooncaf {

/// A file's bytes and their owner.
struct owned_bytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

/// Gives the file of a folder that has this name. @error `ec::not_found` if there is none.
using folder_reader = std::function<result<owned_bytes>(const std::string& name)>;

/// The usual reader: maps files. `File` is storage's `mapped_file`, which this room does not see.
template <class File>
folder_reader map_files_of(std::string folder) {
  return [folder = std::move(folder)](const std::string& name) -> result<owned_bytes> {
    auto mapped = File::open(folder + "/" + name);
    if (!mapped) return fail(std::move(mapped.error()));
    const auto file = std::make_shared<const File>(std::move(*mapped));
    return owned_bytes{file->bytes(), file};
  };
}

/// Owns the files' bytes, and the matrices that it unpacked when they were first asked for.
class hf_source final : public model_source {
 public:
  /// Reads the shape and the directories of all safetensors files.
  /// @param name  of the folder, for error texts.
  /// @error What the parsers say, naming the file; `ec::corrupt` for names of files that lead out of the
  /// folder.
  static result<std::shared_ptr<const hf_source>> open(std::string name, const folder_reader& read);

  const std::string& name() const noexcept override { return name_; }
  result<model_config> config() const override { return config_; }
  std::string name_of(std::string_view gguf_name) const override;  ///< empty: no such tensor in this family
  result<std::optional<source_tensor>> find(std::string_view name) const override;
  bool unpacks() const noexcept override { return packing_.kind != hf_packing::form::none; }

 private:
  hf_source() = default;
  result<void> add_file(const std::string& file, const folder_reader& read);
  result<void> add_files(const folder_reader& read);
  std::optional<expert_part> expert_of(std::string_view gguf_name) const;
  const safetensors_tensor* own(const std::string& name) const;
  result<std::optional<source_tensor>> unpacked(const std::string& module) const;

  std::string name_;
  model_config config_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<safetensors_file> files_;
  hf_packing packing_;
  mutable std::mutex unpacking_;                                       ///< guards `unpacked_`
  mutable std::unordered_map<std::string, unpacked_matrix> unpacked_;  ///< by module, once it was asked for
  std::string prefix_;  ///< of the language model's tensors, such as "model."
};

}  // namespace mooncaf
