#pragma once
// The parts of a model beside its weights: its adapters, and its makers' sampling defaults.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/node_context.hpp"
#include "runtime/model/lora_adapter.hpp"

namespace mooncaf {

/// Loads the adapters that `--lora-modules` names.
/// @param dev      null: the adapters are only identified.
/// @param options  of the process: the adapters, and the names that they may not have.
/// @error names the adapter or the option; those of `lora_adapter::load`.
result<std::map<std::string, std::shared_ptr<const lora_adapter>, std::less<>>> load_adapters(
    device* dev, const model_config& config, const options& options);

/// The defaults that `--generation-config` gives the model at `path`. @error `ec::io_error` for a file that
/// cannot be read; those of `generation_defaults_from_hf`.
result<generation_defaults> defaults_of_model(const std::string& path, const std::string& option);

/// Names of adapters, as a person reads them behind a layout; empty without any.
std::string adapters_text(const node_context& context);
/// The identity that nodes of one cluster have in common: model, layout and adapters.
block_key cluster_identity(const node_context& context);

}  // namespace mooncaf
