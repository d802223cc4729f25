#include "runtime/model/hf_gpt_oss.hpp"

#include <cstring>

#include "runtime/model/tensor_rows.hpp"

namespace mooncaf {

namespace {

/// Features of the tensor that belong to a part: first, first + step, …
struct features {
  std::size_t first = 0, step = 1;

  std::size_t of(std::size_t i) const noexcept { return first + i * step; }
};

features features_of(std::string_view part) noexcept {
  if (part == "ffn_down") return {};
  return {part == "ffn_up" ? 1u : 0u, 2};
}

tl::unexpected<error> unfit(const std::string& name) {
  return fail(ec::corrupt, "tensor '" + name + "' has a shape that does not fit");
}

/// A matrix of [experts, in, out], turned.
result<source_tensor> read_plain(const safetensors_tensor& t, const expert_part& p) {
  const auto type = plain_type(t.dtype);
  if (!type) return fail(ec::unsupported, "tensor '" + t.name + "' is of type " + t.dtype);
  const auto f = features_of(p.part);
  if (t.shape.size() != 3 || p.expert >= t.shape[0] || t.shape[2] % f.step != 0) return unfit(t.name);
  const auto in = t.shape[1], out = t.shape[2], rows = out / f.step, size = block_bytes(*type);
  if (in == 0 || rows == 0) return unfit(t.name);
  std::byte* to = nullptr;
  auto made = made_tensor(*type, rows, in, to);
  const auto* from = t.data.data() + p.expert * in * out * size;
  for (std::size_t c = 0; c < in; ++c)
    for (std::size_t r = 0; r < rows; ++r)
      std::memcpy(to + (r * in + c) * size, from + (c * out + f.of(r)) * size, size);
  return made;
}

/// A matrix of [experts, out, groups of 32, 16 bytes] and [experts, out, groups] exponents. Neighbours share
/// a byte there; in a block of MXFP4 numbers 16 apart do.
result<source_tensor> read_mxfp4(const safetensors_tensor& blocks, const safetensors_tensor* scales,
                                 const expert_part& p) {
  const auto f = features_of(p.part);
  const auto& shape = blocks.shape;
  if (blocks.dtype != "U8" || shape.size() != 4 || shape[3] != 16 || p.expert >= shape[0] ||
      shape[1] % f.step != 0)
    return unfit(blocks.name);
  if (scales == nullptr || scales->dtype != "U8" ||
      scales->shape != std::vector<std::uint64_t>(shape.begin(), shape.end() - 1))
    return fail(ec::corrupt, "tensor '" + blocks.name + "' has no fitting scales beside it");
  const auto groups = shape[2], rows = shape[1] / f.step;
  if (groups == 0 || rows == 0) return unfit(blocks.name);
  std::byte* to = nullptr;
  auto made = made_tensor(ggml_type::mxfp4, rows, groups * 32, to);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = (p.expert * shape[1] + f.of(r)) * groups;
    for (std::size_t g = 0; g < groups; ++g) {
      const auto* from = blocks.data.data() + (row + g) * 16;
      const auto code = [&](std::size_t i) {
        return i % 2 == 0 ? from[i / 2] & std::byte{15} : from[i / 2] >> 4;
      };
      *to++ = scales->data[row + g];
      for (std::size_t i = 0; i < 16; ++i) *to++ = code(i) | code(i + 16) << 4;
    }
  }
  return made;
}

result<source_tensor> read_bias(const safetensors_tensor& t, const expert_part& p) {
  const auto type = plain_type(t.dtype);
  if (!type) return fail(ec::unsupported, "tensor '" + t.name + "' is of type " + t.dtype);
  const auto f = features_of(p.part);
  if (t.shape.size() != 2 || p.expert >= t.shape[0] || t.shape[1] % f.step != 0) return unfit(t.name);
  const auto size = block_bytes(*type), count = t.shape[1] / f.step;
  std::byte* to = nullptr;
  auto made = made_tensor(*type, 1, count, to);
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(to + i * size, t.data.data() + (p.expert * t.shape[1] + f.of(i)) * size, size);
  return made;
}

}  // namespace

std::string name_of(const expert_part& p) {
  return p.module + (p.part == "ffn_down" ? "down_proj" : "gate_up_proj") + (p.bias ? "_bias" : "");
}

result<std::optional<source_tensor>> read_expert(const expert_part& p, const tensor_lookup& find) {
  const auto name = name_of(p);
  const auto* plain = find(name);
  const auto* blocks = p.bias ? nullptr : find(name + "_blocks");
  if (plain == nullptr && blocks == nullptr) return std::nullopt;
  auto read = blocks != nullptr ? read_mxfp4(*blocks, find(name + "_scales"), p)
              : p.bias          ? read_bias(*plain, p)
                                : read_plain(*plain, p);
  if (!read) return fail(std::move(read.error()));
  return std::move(*read);
}

}  // namespace mooncaf
