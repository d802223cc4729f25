#include "runtime/model/hf_packed.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "gpu/host/dequantize.hpp"
#include "runtime/model/json_file.hpp"

namespace mooncaf {

using nlohmann::json;

namespace {

constexpr std::size_t per_word = 8;  ///< 4-bit numbers in 32 bits
constexpr std::size_t block = 32;    ///< columns of a block of Q4_0 and Q4_1
/// Where AWQ has column j of each eight in its word.
constexpr std::array<unsigned, per_word> awq_place = {0, 4, 1, 5, 2, 6, 3, 7};

template <class T>
T element(const safetensors_tensor& t, std::size_t i) noexcept {
  T value;
  std::memcpy(&value, t.data.data() + i * sizeof value, sizeof value);
  return value;
}

float scale_of(const safetensors_tensor& t, std::size_t i) noexcept {
  if (t.dtype == "F32") return element<float>(t, i);
  const auto bits = element<std::uint16_t>(t, i);
  return t.dtype == "BF16" ? std::bit_cast<float>(std::uint32_t{bits} << 16) : half_to_float(bits);
}

bool is_scale(const safetensors_tensor& t) {
  return t.dtype == "F16" || t.dtype == "BF16" || t.dtype == "F32";
}

/// 8 bits: sign, 4 of exponent, 3 of fraction; no infinities, and one NaN of each sign.
float e4m3(std::uint8_t bits) noexcept {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return std::nanf("");
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -9);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

std::uint16_t to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// One 4-bit matrix: its parts, and its sizes.
struct four_bits {
  const hf_packing& packing;
  const safetensors_tensor *weight, *zeros, *scales;
  std::size_t rows = 0, cols = 0, group = 0;

  std::uint32_t quant(std::size_t row, std::size_t col) const noexcept {
    if (packing.kind == hf_packing::form::gptq)
      return element<std::uint32_t>(*weight, col / per_word * rows + row) >> 4 * (col % per_word) & 15;
    return element<std::uint32_t>(*weight, col * (rows / per_word) + row / per_word) >>
               4 * awq_place[row % per_word] &
           15;
  }
  std::uint32_t zero(std::size_t row, std::size_t g) const noexcept {
    const auto word = element<std::uint32_t>(*zeros, g * (rows / per_word) + row / per_word);
    if (packing.kind == hf_packing::form::gptq)
      return (word >> 4 * (row % per_word) & 15) + packing.zero_offset;
    return word >> 4 * awq_place[row % per_word] & 15;
  }
  float scale(std::size_t row, std::size_t g) const noexcept { return scale_of(*scales, g * rows + row); }
};

void append_half(std::byte*& to, float value) noexcept {
  const auto bits = float_to_half(value);
  std::memcpy(to, &bits, 2);
  to += 2;
}

unpacked_matrix repack(const four_bits& m) {
  bool symmetric = true;
  for (std::size_t g = 0; symmetric && g < m.cols / m.group; ++g)
    for (std::size_t r = 0; symmetric && r < m.rows; ++r) symmetric = m.zero(r, g) == 8;
  const auto type = symmetric ? ggml_type::q4_0 : ggml_type::q4_1;
  unpacked_matrix out;
  out.bytes.resize(m.rows * row_bytes(type, m.cols));
  auto* to = out.bytes.data();
  for (std::size_t r = 0; r < m.rows; ++r) {
    for (std::size_t c = 0; c < m.cols; c += block) {
      const auto g = c / m.group;
      append_half(to, m.scale(r, g));
      if (!symmetric) append_half(to, -m.scale(r, g) * static_cast<float>(m.zero(r, g)));
      for (std::size_t i = 0; i < block / 2; ++i)
        *to++ = static_cast<std::byte>(m.quant(r, c + i) | m.quant(r, c + i + block / 2) << 4);
    }
  }
  out.tensor = {type, m.rows, m.cols, out.bytes, 0};
  return out;
}

bool is_matrix(const safetensors_tensor* t, std::size_t rows, std::size_t cols) {
  return t != nullptr && t->shape.size() == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/// A word has eight inputs in GPTQ and eight outputs in AWQ; both become rows of GGUF's 4-bit blocks.
result<std::optional<unpacked_matrix>> unpack_four_bits(const hf_packing& p, const std::string& module,
                                                        const tensor_lookup& find) {
  const auto* weight = find(module + ".qweight");
  if (weight == nullptr) return std::nullopt;
  const auto bad = [&](const std::string& what) {
    return fail(ec::corrupt, "tensor '" + module + ".qweight' " + what);
  };
  four_bits m{p, weight, find(module + ".qzeros"), find(module + ".scales")};
  if (weight->dtype != "I32" || weight->shape.size() != 2) return bad("is no matrix of I32");
  const bool gptq = p.kind == hf_packing::form::gptq;
  m.rows = weight->shape[1] * (gptq ? 1 : per_word);
  m.cols = weight->shape[0] * (gptq ? per_word : 1);
  m.group = p.group == 0 ? m.cols : p.group;
  if (m.rows == 0 || m.rows % per_word != 0 || m.cols == 0 || m.cols % m.group != 0)
    return bad("is [" + std::to_string(m.rows) + ", " + std::to_string(m.cols) + "] in groups of " +
               std::to_string(m.group));
  if (m.group % block != 0)
    return fail(ec::unsupported, "tensor '" + module + ".qweight' has groups of " + std::to_string(m.group) +
                                     " columns; multiples of 32 are offered");
  const auto groups = m.cols / m.group;
  if (!is_matrix(m.zeros, groups, m.rows / per_word) || m.zeros->dtype != "I32")
    return bad("has no fitting qzeros beside it");
  if (!is_matrix(m.scales, groups, m.rows) || !is_scale(*m.scales))
    return bad("has no fitting scales beside it");
  if (const auto* order = find(module + ".g_idx"); order != nullptr && gptq) {
    if (order->dtype != "I32" || order->shape.size() != 1 || order->shape[0] != m.cols)
      return bad("has no fitting g_idx beside it");
    for (std::size_t c = 0; c < m.cols; ++c)
      if (element<std::uint32_t>(*order, c) != c / m.group)
        return fail(ec::unsupported, "tensor '" + module +
                                         ".g_idx' has columns out of order (desc_act), which is not offered");
  }
  return repack(m);
}

result<std::optional<unpacked_matrix>> unpack_fp8(const hf_packing& p, const std::string& module,
                                                  const tensor_lookup& find) {
  const auto* weight = find(module + ".weight");
  if (weight == nullptr || weight->dtype != "F8_E4M3") return std::nullopt;
  const auto rows = weight->shape.size() == 2 ? weight->shape[0] : 0, cols = rows != 0 ? weight->shape[1] : 0;
  const auto* scales = find(module + ".weight_scale_inv");
  const auto high = (rows + p.block_rows - 1) / p.block_rows, wide = (cols + p.block_cols - 1) / p.block_cols;
  if (rows == 0 || cols == 0 || !is_matrix(scales, high, wide) || !is_scale(*scales))
    return fail(ec::corrupt, "tensor '" + module + ".weight' has no fitting weight_scale_inv beside it");
  std::array<float, 256> values;
  for (unsigned i = 0; i < 256; ++i) values[i] = e4m3(static_cast<std::uint8_t>(i));
  unpacked_matrix out;
  out.bytes.resize(weight->data.size() * 2);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const auto at = r * cols + c;
      const auto scale = scale_of(*scales, r / p.block_rows * wide + c / p.block_cols);
      const auto bits = to_bf16(values[static_cast<std::uint8_t>(weight->data[at])] * scale);
      std::memcpy(out.bytes.data() + 2 * at, &bits, 2);
    }
  }
  out.tensor = {ggml_type::bf16, rows, cols, out.bytes, 0};
  return out;
}

}  // namespace

std::optional<ggml_type> plain_type(std::string_view dtype) noexcept {
  if (dtype == "F32") return ggml_type::f32;
  if (dtype == "F16") return ggml_type::f16;
  if (dtype == "BF16") return ggml_type::bf16;
  return std::nullopt;
}

// Refuses variants by the field that says so: a matrix unpacked in the wrong way would be noise, not an
// error.
result<hf_packing> packing_from_hf(const json& config, const std::string& name) {
  hf_packing out;
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return out;
  json_reader read(*found, name + ": quantization_config: ");
  const auto method = read.text("quant_method", "");
  if (method == "gptq" || method == "awq") {
    const bool gptq = method == "gptq";
    out.kind = gptq ? hf_packing::form::gptq : hf_packing::form::awq;
    read.require(read.integer("bits", 1, 16, 4) == 4, ec::unsupported, "'bits' other than 4 are not offered");
    const auto* group = read.find("group_size");
    if (group == nullptr || *group != -1) out.group = read.integer("group_size", 1, 1 << 20, 128);
    out.zero_offset = gptq && read.text("checkpoint_format", "gptq") != "gptq_v2" ? 1 : 0;
    const auto version = read.text("version", "gemm");
    read.require(gptq || version == "gemm", ec::unsupported,
                 "'version' is '" + version.substr(0, 20) + "'; of AWQ gemm is offered");
  } else if (method == "fp8") {
    out.kind = hf_packing::form::fp8;
    const auto* size = read.find("weight_block_size");
    if (size == nullptr || !size->is_array() || size->size() != 2 || !(*size)[0].is_number_unsigned() ||
        !(*size)[1].is_number_unsigned() || (*size)[0] == 0 || (*size)[1] == 0)
      return fail(ec::unsupported, name + ": quantization_config: fp8 is offered with a 'weight_block_size'");
    out.block_rows =
        static_cast<std::uint32_t>(std::min<std::uint64_t>((*size)[0].get<std::uint64_t>(), 1u << 30));
    out.block_cols =
        static_cast<std::uint32_t>(std::min<std::uint64_t>((*size)[1].get<std::uint64_t>(), 1u << 30));
  } else if (method == "mxfp4") {
    out.kind = hf_packing::form::mxfp4;
  } else {
    return fail(ec::unsupported, name + ": quantization_config: quant_method '" + method.substr(0, 40) +
                                     "' is not offered; gptq, awq, fp8 and mxfp4 are");
  }
  if (read.first_error()) return fail(std::move(*read.first_error()));
  return out;
}

result<std::optional<unpacked_matrix>> unpack_matrix(const hf_packing& packing, const std::string& module,
                                                     const tensor_lookup& find) {
  if (packing.kind == hf_packing::form::none || packing.kind == hf_packing::form::mxfp4) return std::nullopt;
  if (packing.kind == hf_packing::form::fp8) return unpack_fp8(packing, module, find);
  return unpack_four_bits(packing, module, find);
}

}  // namespace mooncaf
