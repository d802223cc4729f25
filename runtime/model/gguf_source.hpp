#pragma once
// A GGUF file as the source of a model.

#include "runtime/model/gguf.hpp"
#include "runtime/model/model_source.hpp"

namespace mooncaf {

/// Views of a parsed file, which must outlive it.
class gguf_source final : public model_source {
 public:
  explicit gguf_source(const gguf_file& file) : file_(file) {}

  const std::string& name() const noexcept override { return file_.name(); }
  result<model_config> config() const override { return config_from_gguf(file_); }
  std::string name_of(std::string_view name) const override { return std::string(name); }
  result<std::optional<source_tensor>> find(std::string_view name) const override {
    const auto* t = file_.tensor(name);
    if (t == nullptr) return std::nullopt;
    return source_tensor{t->type, t->rows(), t->cols(), t->data, 0};
  }

 private:
  const gguf_file& file_;
};

}  // namespace mooncaf
