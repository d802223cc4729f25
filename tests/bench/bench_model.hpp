#pragma once
// What the benches of models begin with: the model, or the reason as the last words.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/result.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/model_runner.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::bench {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}

template <class T>
T unwrap(result<T> r) {
  if (!r) die(to_string(r.error()));
  return std::move(*r);
}

/// @param spec  a GGUF file, or `dummy:` with a shape
inline std::shared_ptr<const model> load_model(device& dev, const std::string& spec) {
  if (is_dummy_spec(spec)) return unwrap(model::dummy(dev, unwrap(dummy_shape(spec)), 1));
  auto mapped = std::make_shared<const mapped_file>(unwrap(mapped_file::open(spec)));
  const auto file = unwrap(parse_gguf(mapped->bytes(), spec));
  return unwrap(model::load(dev, gguf_source(file), mapped));
}

}  // namespace mooncaf::bench
