#include "runtime/model/model.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/base/units.hpp"
#include "runtime/model/dummy_weights.hpp"
#include "runtime/model/tensor_rows.hpp"

namespace mooncaf {

model::model() = default;
model::~model() = default;

namespace {

/// A matrix may be some rows of a tensor: the rows from `first` on, of `of` rows; 0: of the whole tensor.
struct part_of {
  std::size_t first = 0;
  std::size_t of = 0;
};

/// Which rows of a matrix, or numbers of a vector, a rank of a tensor group has.
enum class cut : std::uint8_t {
  none,      ///< all: each rank computes with it
  table,     ///< all, of which rows are looked up
  rows,      ///< its share
  kv_heads,  ///< those of its KV heads
};

constexpr std::size_t samples = 8, sample_bytes = 128;  ///< of a tensor, for its model's identity

/// Evenly spread samples, first and last bytes included: enough to tell checkpoints and quantisations apart, and cheap on
/// a file that is not in memory yet.
std::vector<std::span<const std::byte>> samples_of(std::span<const std::byte> data) {
  if (data.size() <= samples * sample_bytes) return {data};
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t i = 0; i + 1 < samples; ++i)
    pieces.push_back(data.subspan((data.size() - sample_bytes) / (samples - 1) * i, sample_bytes));
  pieces.push_back(data.last(sample_bytes));
  return pieces;
}

/// Canonical bytes of everything that decides the contents of KV blocks.
class identity {
 public:
  template <class T>
  void add(const T& value) {
    const auto bytes = std::as_bytes(std::span{&value, 1});
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add_text(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    const auto bytes = std::as_bytes(std::span{text.data(), text.size()});
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add_config(const model_config& c) {
    add(static_cast<std::uint32_t>(c.arch));
    for (const auto n : {c.n_layers, c.dim, c.n_heads, c.n_kv_heads, c.head_dim, c.ffn_dim, c.vocab_size})
      add(n);
    add(c.rms_eps);
    add(static_cast<std::uint32_t>(c.rope_neox) << 1 | static_cast<std::uint32_t>(c.qk_norm));
    for (const float f : c.rope_inv_freq) add(f);
    add(c.rope_attention_scale);
    if (c.arch > model_arch::qwen3 || !c.windows.empty() || c.n_experts != 0) add_family(c);
    if (c.latent.rank != 0 || c.ffn_biases) add_newer(c);
  }
  /// Fields that came with latent attention and gpt-oss; apart, so that the keys of older families do not
  /// change.
  void add_newer(const model_config& c) {
    const auto& l = c.latent;
    for (const auto n : {l.rank, l.query_rank, l.plain_dim, l.rope_dim, l.value_dim, c.dense_layers,
                         c.dense_ffn_dim, c.shared_ffn_dim, c.routing.groups, c.routing.best_groups,
                         std::uint32_t{c.routing.sigmoid}, std::uint32_t{c.routing.group_of_two}})
      add(n);
    for (const float f : {c.routing.scale, c.glu_limit}) add(f);
  }
  /// Fields by which other families differ from Llama.
  void add_family(const model_config& c) {
    for (const auto w : c.windows) add(w);
    for (const float f : c.local_inv_freq) add(f);
    for (const float f : {c.attention_scale, c.attention_softcap, c.embedding_scale}) add(f);
    for (const auto n : {c.n_experts, c.experts_per_token, std::uint32_t{c.normalise_experts},
                         std::uint32_t{c.gelu}, std::uint32_t{c.post_norms}})
      add(n);
  }
  void add_tensor(std::string_view name, const source_tensor& t) {
    add_text(name);
    add(static_cast<std::uint64_t>(t.rows));
    add(static_cast<std::uint64_t>(t.cols));
    add(static_cast<std::uint32_t>(t.type));
    for (const auto piece : samples_of(t.data)) bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  }
  hash128 hash() const noexcept { return hash_bytes128(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Bytes that a made-up tensor is identified by, whole blocks from its beginning: a process that only
/// identifies a dummy need not make the rest.
std::size_t dummy_sample_bytes(ggml_type type) noexcept {
  return samples * sample_bytes / block_bytes(type) * block_bytes(type);
}

float from_half(std::uint16_t h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u;
  const std::uint32_t fraction = h & 0x3FFu;
  if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// Element `i` of a plain (unquantised) tensor.
float plain_element(const source_tensor& t, std::size_t i) noexcept {
  if (t.type == ggml_type::f32) {
    float value = 0;
    std::memcpy(&value, t.data.data() + i * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, t.data.data() + i * 2, 2);
  if (t.type == ggml_type::f16) return from_half(bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

/// Walks the tensors of a model in one fixed order, so that file order plays no part in the fingerprint.
/// Without a device it reads only the bytes of the fingerprint, and the model that it makes has no weights.
class model_builder {
 public:
  model_builder(device* dev, const model_config& config, std::optional<layer_range> part = {},
                tensor_part share = {})
      : device_(dev), model_(new model) {
    model_->config_ = config;
    model_->part_ = part.value_or(layer_range{0, config.n_layers});
    model_->share_ = share;
    model_->makes_logits_ = model_->part_.end() == config.n_layers;
    identity_.add_config(config);
  }

  result<std::shared_ptr<const model>> from_source(const model_source& source,
                                                   std::shared_ptr<const void> keep_alive) {
    source_ = &source;
    label_ = source.name();
    model_->keep_alive_ = std::move(keep_alive);
    return build();
  }

  result<std::shared_ptr<const model>> from_seed(std::uint64_t seed) {
    seed_ = seed;
    label_ = model_->config_.name;
    return build();
  }

  /// Loads nothing, but notes what would be read.
  result<std::optional<model_reads>> reads_of(const model_source& source) {
    model_reads noted;
    reads_ = &noted;
    if (const auto walked = from_source(source, {}); !walked) return fail(walked.error());
    if (makes_) return std::optional<model_reads>{};
    return std::optional{std::move(noted)};
  }

  static result<model_identity> identity_of(const result<std::shared_ptr<const model>>& built) {
    if (!built) return fail(built.error());
    return model_identity{(*built)->config(), (*built)->fingerprint()};
  }

 private:
  result<std::shared_ptr<const model>> build() {
    const auto c = model_->config_;
    const auto part = model_->part_;
    const bool last = model_->makes_logits_;
    model_->layers_.resize(part.count);
    layer_weights of_others;
    const bool shared = !model_->share_.whole();
    wanted_ = model_->embeds() || (last && c.tied_embeddings && !shared);
    const bool multiplies = last && c.tied_embeddings && !shared;
    matrix(model_->embedding_, "token_embd.weight", c.vocab_size, c.dim, {},
           multiplies ? cut::none : cut::table);
    wanted_ = last && c.tied_embeddings && shared;
    if (loads()) matrix(model_->output_, "token_embd.weight", c.vocab_size, c.dim, {}, cut::rows, false);
    for (std::uint32_t i = 0; i < c.n_layers && !error_; ++i) {
      wanted_ = part.has(i);
      layer(wanted_ ? model_->layers_[i - part.first] : of_others, i);
    }
    wanted_ = last;
    vector(model_->output_gain_, "output_norm.weight", c.dim, true);
    if (!c.tied_embeddings) matrix(model_->output_, "output.weight", c.vocab_size, c.dim);
    if (!error_ && device_ != nullptr) place_vectors();
    if (error_) return fail(std::move(*error_));
    model_->fingerprint_ = identity_.hash();
    model_->config_ = config_of_share(config_of_layers(c, part), model_->share_);
    return std::shared_ptr<const model>(std::move(model_));
  }

  void layer(layer_weights& w, std::uint32_t i) {
    const auto p = "blk." + std::to_string(i) + ".";
    if (model_->config_.latent.rank != 0) latent_attention(w, p);
    else attention(w, p);
    feed_forward(w, p, model_->config_.has_experts(i));
  }

  /// Attention over keys and values, of all families but DeepSeek.
  void attention(layer_weights& w, const std::string& p) {
    const auto& c = model_->config_;
    // A dummy has biases where its architecture has them; a file where it brings them.
    const bool always =
        c.arch == model_arch::qwen2 || c.arch == model_arch::qwen2moe || c.arch == model_arch::gpt_oss;
    const bool bias = source_ != nullptr || always;
    const bool fused = c.arch == model_arch::phi3;
    const auto rows = c.q_dim() + 2 * c.kv_dim();
    vector(w.attention_gain, p + "attn_norm.weight", c.dim, true);
    const auto part = [&](std::unique_ptr<weight>& into, const char* name, std::uint32_t first,
                          std::uint32_t count, cut how) {
      if (fused) matrix(into, p + "attn_qkv.weight", count, c.dim, {first, rows}, how);
      else matrix(into, p + name, count, c.dim, {}, how);
    };
    part(w.q, "attn_q.weight", 0, c.q_dim(), cut::rows);
    part(w.k, "attn_k.weight", c.q_dim(), c.kv_dim(), cut::kv_heads);
    part(w.v, "attn_v.weight", c.q_dim() + c.kv_dim(), c.kv_dim(), cut::kv_heads);
    if (bias) {
      vector(w.q_bias, p + "attn_q.bias", c.q_dim(), always, cut::rows);
      vector(w.k_bias, p + "attn_k.bias", c.kv_dim(), always, cut::kv_heads);
      vector(w.v_bias, p + "attn_v.bias", c.kv_dim(), always, cut::kv_heads);
    }
    if (c.qk_norm) {
      vector(w.q_gain, p + "attn_q_norm.weight", c.head_dim, true);
      vector(w.k_gain, p + "attn_k_norm.weight", c.head_dim, true);
    }
    matrix(w.attention_out, p + "attn_output.weight", c.dim, c.q_dim());
    const bool out_bias = c.arch == model_arch::gpt_oss;
    if (source_ != nullptr || out_bias)
      vector(w.attention_out_bias, p + "attn_output.bias", c.dim, out_bias, cut::rows);
    if (c.sinks) vector(w.sinks, p + "attn_sinks.weight", c.n_heads, true, cut::rows);
    if (c.post_norms) vector(w.attention_post_gain, p + "post_attention_norm.weight", c.dim, true);
  }

  void latent_attention(layer_weights& w, const std::string& p) {
    const auto& c = model_->config_;
    const auto& l = c.latent;
    const auto queries = c.n_heads * l.query_dim();
    vector(w.attention_gain, p + "attn_norm.weight", c.dim, true);
    matrix(w.k, p + "attn_kv_a_mqa.weight", c.head_dim, c.dim, {}, cut::none);
    vector(w.latent.latent_gain, p + "attn_kv_a_norm.weight", l.rank, true);
    if (l.query_rank == 0) {
      matrix(w.q, p + "attn_q.weight", queries, c.dim);
    } else {
      matrix(w.latent.query_a, p + "attn_q_a.weight", l.query_rank, c.dim, {}, cut::none);
      vector(w.latent.query_gain, p + "attn_q_a_norm.weight", l.query_rank, true);
      matrix(w.q, p + "attn_q_b.weight", queries, l.query_rank);
    }
    heads_of(w.latent, p + "attn_kv_b.weight");
    matrix(w.attention_out, p + "attn_output.weight", c.dim, std::size_t{c.n_heads} * l.value_dim);
  }

  /// Files hold for each head the matrix that makes keys out of a latent, then the one that makes values. The
  /// first is turned round: queries go to the latents.
  void heads_of(latent_weights& w, const std::string& name) {
    const auto& c = model_->config_;
    const auto& l = c.latent;
    const auto each = l.plain_dim + l.value_dim;
    const auto whole = tensor_of(name, std::size_t{c.n_heads} * each, l.rank);
    if (!whole) return;
    identify(name, *whole);
    if (!loads()) return;
    const auto own = model_->share_.share(c.n_heads);
    if (notes(rows_of(*whole, own.first * each, own.count * each))) return;
    const auto add = [&](std::vector<std::unique_ptr<weight>>& to, const source_tensor& t) {
      to.emplace_back();
      if (!error_) load(to.back(), name, t);
    };
    for (auto head = own.first; head < own.first + own.count; ++head) {
      add(w.query_to_latent, turned_rows(*whole, head * each, l.plain_dim));
      add(w.latent_to_value, rows_of(*whole, head * each + l.plain_dim, l.value_dim));
    }
  }

  /// The order of tensors is part of the fingerprint: new ones go behind the others of their branch.
  void feed_forward(layer_weights& w, const std::string& p, bool mixture) {
    const auto& c = model_->config_;
    vector(w.ffn_gain, p + "ffn_norm.weight", c.dim, true);
    w.ffn.resize(mixture ? c.n_experts : 1);
    const auto width = c.n_experts != 0 && !mixture ? c.dense_ffn_dim : c.ffn_dim;
    if (mixture) {
      router(w.router, p + "ffn_gate_inp.weight", c.n_experts);
      if (c.ffn_biases) vector(w.router_bias, p + "ffn_gate_inp.bias", c.n_experts, true);
      if (c.routing.sigmoid) choice_bias(w, p + "exp_probs_b.bias");
      for (std::uint32_t e = 0; e < c.n_experts && !error_; ++e) expert(w.ffn[e], p, e);
      if (c.shared_ffn_dim != 0) {
        matrix(w.shared.gate, p + "ffn_gate_shexp.weight", c.shared_ffn_dim, c.dim);
        matrix(w.shared.up, p + "ffn_up_shexp.weight", c.shared_ffn_dim, c.dim);
        matrix(w.shared.down, p + "ffn_down_shexp.weight", c.dim, c.shared_ffn_dim);
        if (c.shared_gated) router(w.shared_router, p + "ffn_gate_inp_shexp.weight", 1);
      }
    } else if (c.arch == model_arch::phi3) {
      matrix(w.ffn[0].gate, p + "ffn_up.weight", c.ffn_dim, c.dim, {0, 2 * c.ffn_dim});
      matrix(w.ffn[0].up, p + "ffn_up.weight", c.ffn_dim, c.dim, {c.ffn_dim, 2 * c.ffn_dim});
      matrix(w.ffn[0].down, p + "ffn_down.weight", c.dim, c.ffn_dim);
    } else {
      matrix(w.ffn[0].gate, p + "ffn_gate.weight", width, c.dim);
      matrix(w.ffn[0].up, p + "ffn_up.weight", width, c.dim);
      matrix(w.ffn[0].down, p + "ffn_down.weight", c.dim, width);
      if (c.ffn_biases) {
        vector(w.ffn[0].gate_bias, p + "ffn_gate.bias", width, true, cut::rows);
        vector(w.ffn[0].up_bias, p + "ffn_up.bias", width, true, cut::rows);
        vector(w.ffn[0].down_bias, p + "ffn_down.bias", c.dim, true, cut::rows);
      }
    }
    if (c.post_norms) vector(w.ffn_post_gain, p + "post_ffw_norm.weight", c.dim, true);
  }

  /// Files hold the experts of a layer one behind the other in one tensor, or each for itself.
  void expert(ffn_weights& w, const std::string& p, std::uint32_t e) {
    const auto& c = model_->config_;
    const auto& share = model_->share_;
    const auto how = share.whole_experts ? cut::none : cut::rows;
    const auto all = wanted_;
    wanted_ = all && (!share.whole_experts || share.share(c.n_experts).has(e));
    const auto one = [&](std::unique_ptr<weight>& into, const std::string& name, std::size_t rows,
                         std::size_t cols) {
      if (!error_ && find(p + name + "_exps.weight"))
        matrix(into, p + name + "_exps.weight", rows, cols, {e * rows, c.n_experts * rows}, how);
      else matrix(into, p + name + "." + std::to_string(e) + ".weight", rows, cols, {}, how);
    };
    one(w.gate, "ffn_gate", c.ffn_dim, c.dim);
    one(w.up, "ffn_up", c.ffn_dim, c.dim);
    one(w.down, "ffn_down", c.dim, c.ffn_dim);
    if (c.ffn_biases) {
      const auto number = "." + std::to_string(e) + ".bias";
      vector(w.gate_bias, p + "ffn_gate" + number, c.ffn_dim, true, how);
      vector(w.up_bias, p + "ffn_up" + number, c.ffn_dim, true, how);
      vector(w.down_bias, p + "ffn_down" + number, c.dim, true, how);
    }
    wanted_ = all;
  }

  /// The product that decides where a token goes is one of f32 numbers, however the file stores them.
  void router(std::unique_ptr<weight>& into, const std::string& name, std::size_t rows) {
    const auto t = tensor_of(name, rows, model_->config_.dim);
    if (!t) return;
    identify(name, *t);
    if (loads() && !notes(*t)) load(into, name, as_f32(*t));
  }

  /// Read by the host, where experts are chosen.
  void choice_bias(layer_weights& w, const std::string& name) {
    const auto t = tensor_of(name, 1, model_->config_.n_experts, true);
    if (!t) return;
    if (block_elements(t->type) != 1)
      return stop(ec::unsupported, "tensor '" + own_name(name) + "' is quantised");
    identify(name, *t);
    if (!loads() || notes(*t)) return;
    for (std::size_t i = 0; i < t->cols; ++i) w.choice_bias.push_back(plain_element(*t, i));
  }

  /// @param identifies  it is part of the fingerprint; false where a tensor is loaded a second time.
  void matrix(std::unique_ptr<weight>& into, const std::string& name, std::size_t rows, std::size_t cols,
              part_of part = {}, cut how = cut::rows, bool identifies = true) {
    auto t = tensor_of(name, part.of == 0 || source_ == nullptr ? rows : part.of, cols);
    if (!t) return;
    if (part.of != 0 && source_ != nullptr) t = rows_of(*t, part.first, rows);
    if (identifies) identify(name, *t);
    if (!loads()) return;
    const auto own = own_of(rows, how);
    load(into, name, own.count == rows ? *t : rows_of(*t, own.first, own.count), how == cut::table);
  }

  /// What this rank has of `n` rows or numbers.
  part_range own_of(std::size_t n, cut how) const noexcept {
    if (how == cut::none || how == cut::table) return {0, n};
    if (how == cut::rows) return model_->share_.share(n);
    const auto heads = model_->share_.kv_heads(model_->config_.n_kv_heads);
    const auto each = n / model_->config_.n_kv_heads;
    return {heads.first * each, heads.count * each};
  }

  /// A matrix of the file, with all its bytes, or a made-up one. Nothing after an error.
  /// @param plain  a made-up one is F32.
  std::optional<source_tensor> tensor_of(const std::string& name, std::size_t rows, std::size_t cols,
                                         bool plain = false) {
    if (error_) return std::nullopt;
    if (source_ == nullptr)
      return make_up(name, plain ? ggml_type::f32 : model_->config_.dummy_type, rows, cols);
    const auto t = find(name, rows, cols, true);
    if (!t || t->data.size() == rows * row_bytes(t->type, cols)) return t;
    stop(ec::corrupt, "tensor '" + own_name(name) + "' lacks bytes");
    return std::nullopt;
  }

  void load(std::unique_ptr<weight>& into, const std::string& name, const source_tensor& t,
            bool table = false) {
    if (notes(t)) return;
    auto loaded = table ? device_->load_table(t.type, t.rows, t.cols, t.data)
                        : device_->load_weight(t.type, t.rows, t.cols, t.data);
    if (!loaded)
      return stop(loaded.error().code, "tensor '" + own_name(name) + "': " + loaded.error().detail);
    into = std::move(*loaded);
    if (t.owner) model_->owned_.push_back(t.owner);
  }

  /// Gains and biases are few and small: they are gathered, and go to the device together.
  void vector(const float*& into, const std::string& name, std::size_t size, bool required,
              cut how = cut::none) {
    if (error_) return;
    std::optional<source_tensor> t;
    const bool gain = name.ends_with("norm.weight");
    if (source_ != nullptr) {
      t = find(name, 1, size, required);
      if (!t) return;
      if (block_elements(t->type) != 1)
        return stop(ec::unsupported, "tensor '" + own_name(name) + "' is a vector of type " +
                                         std::string(to_string(t->type)) + "; F32, F16 and BF16 are read");
    } else if (!gain) {
      t = make_up(name, ggml_type::f32, 1, size);
      if (!t) return;
    }
    if (t) identify(name, *t);
    if (!loads() || (t && notes(*t))) return;
    constexpr std::size_t line = 16;  // floats of a cache line: vectors start on their own
    vectors_.resize((vectors_.size() + line - 1) / line * line);
    pending_.push_back({&into, vectors_.size() + own_of(size, how).first});
    for (std::size_t i = 0; i < size; ++i) vectors_.push_back(t ? plain_element(*t, i) + t->added : 1.0f);
  }

  void identify(const std::string& name, source_tensor t) {
    if (source_ == nullptr) t.data = t.data.first(std::min(t.data.size(), dummy_sample_bytes(t.type)));
    if (reads_ == nullptr) return identity_.add_tensor(name, t);
    makes_ |= t.owner != nullptr;
    for (const auto piece : samples_of(t.data)) reads_->samples.push_back(piece);
  }

  /// Whether what is walked now is for the device, and not for the fingerprint alone.
  bool loads() const noexcept { return (device_ != nullptr || reads_ != nullptr) && wanted_; }

  /// Takes down what would be loaded, where nothing is.
  bool notes(const source_tensor& t) {
    if (reads_ == nullptr) return false;
    makes_ |= t.owner != nullptr;
    reads_->weights.push_back(t.data);
    return true;
  }

  std::string own_name(const std::string& name) const {
    return source_ != nullptr ? source_->name_of(name) : name;
  }

  /// Nothing if there is no such tensor, or after an error.
  std::optional<source_tensor> find(const std::string& name) {
    if (source_ == nullptr) return std::nullopt;
    auto found = source_->find(name);
    if (found) return *found;
    stop(found.error().code, found.error().detail);
    return std::nullopt;
  }

  std::optional<source_tensor> find(const std::string& name, std::size_t rows, std::size_t cols,
                                    bool required) {
    const auto t = find(name);
    if (!t) {
      if (required) stop(ec::corrupt, "tensor '" + own_name(name) + "' is missing");
      return std::nullopt;
    }
    if (t->rows != rows || t->cols != cols) {
      stop(ec::corrupt, "tensor '" + own_name(name) + "' is [" + std::to_string(t->rows) + ", " +
                            std::to_string(t->cols) + "], the metadata asks for [" + std::to_string(rows) +
                            ", " + std::to_string(cols) + "]");
      return std::nullopt;
    }
    return t;
  }

  /// All layers share the bytes of a dummy tensor: devices bring weights into a form of their own, so that
  /// bytes of each layer would only double the memory.
  std::optional<source_tensor> make_up(const std::string& name, ggml_type type, std::size_t rows,
                                       std::size_t cols) {
    const auto kind = name.starts_with("blk.") ? name.substr(name.find('.', 4)) : name;
    if (const auto known = made_up_.find(kind); known != made_up_.end()) return known->second;
    auto bytes = rows * row_bytes(type, cols);
    // Of a layer's tensor some layer of the part wants the whole.
    const bool sample = device_ == nullptr || (!wanted_ && kind == name);
    if (sample) bytes = std::min(bytes, dummy_sample_bytes(type));
    // Left uninitialised: filled at once, and value-initialising GBs would double the time.
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
    if (!memory) {
      stop(ec::out_of_space, "tensor '" + name + "' needs " + std::to_string(bytes) + " bytes");
      return std::nullopt;
    }
    const std::span<std::byte> data(memory.get(), bytes);
    fill_dummy_weight(type, cols, hash_text128(kind, seed_).low, data);
    model_->owned_.push_back(std::shared_ptr<std::byte[]>(std::move(memory)));
    const source_tensor made{type, rows, cols, data, 0};
    if (!sample) made_up_.emplace(kind, made);
    return made;
  }

  void place_vectors() {
    auto memory = device_->allocate(vectors_.size() * sizeof(float));
    if (!memory) return stop(memory.error().code, "gains and biases: " + memory.error().detail);
    model_->vectors_ = std::move(*memory);
    const auto queue = device_->make_queue(0);
    const device_turn turn(*queue);
    queue->upload(vectors_, model_->vectors_->data());
    queue->synchronize();
    for (const auto& p : pending_) *p.into = model_->vectors_->data() + p.offset;
  }

  void stop(ec code, const std::string& what) {
    if (!error_) error_ = error{code, label_ + ": " + what};
  }

  struct pending_vector {
    const float** into;
    std::size_t offset;
  };

  device* device_;
  model_reads* reads_ = nullptr;  ///< to be filled in, in place of a model
  bool makes_ = false;            ///< of some tensors the bytes are not a file's
  bool wanted_ = true;            ///< it belongs to the part that is loaded
  std::unique_ptr<model> model_;
  const model_source* source_ = nullptr;
  std::uint64_t seed_ = 0;
  std::unordered_map<std::string, source_tensor> made_up_;  ///< by name without layer
  std::string label_;
  identity identity_;
  std::vector<float> vectors_;
  std::vector<pending_vector> pending_;
  std::optional<error> error_;
};

namespace {

/// Said before anything is loaded.
result<void> check_heads(const device& dev, const model_config& c, const std::string& name) {
  const auto most = dev.info().longest_head;
  if (most == 0 || c.head_dim <= most) return {};
  return fail(ec::unsupported, name + ": attention heads of " + std::to_string(c.head_dim) + " dimensions" +
                                   (c.latent.rank != 0 ? " (DeepSeek's latent attention)" : "") +
                                   " are not offered on this device, which takes up to " +
                                   std::to_string(most));
}

}  // namespace

result<std::shared_ptr<const model>> model::load(device& dev, const model_source& source,
                                                 std::shared_ptr<const void> keep_alive,
                                                 std::optional<layer_range> part, tensor_part share) {
  auto config = source.config();
  if (!config) return fail(std::move(config.error()));
  if (auto fits = check_heads(dev, *config, source.name()); !fits) return fail(std::move(fits.error()));
  return model_builder(&dev, *config, part, share).from_source(source, std::move(keep_alive));
}

result<std::shared_ptr<const model>> model::dummy(device& dev, const model_config& config, std::uint64_t seed,
                                                  std::optional<layer_range> part, tensor_part share) {
  if (auto fits = check_heads(dev, config, config.name); !fits) return fail(std::move(fits.error()));
  // Pages are committed when they are filled: without this check a shape too large ends in the kernel's OOM
  // killer.
  const auto memory = dev.info().memory_bytes;
  const auto bytes = (part ? config_of_layers(config, *part) : config).dummy_bytes() / share.of;
  if (memory != 0 && bytes > memory)
    return fail(ec::out_of_space, config.name + ": the weights take " + std::to_string(bytes / MiB) +
                                      " MiB, the device has " + std::to_string(memory / MiB));
  return model_builder(&dev, config, part, share).from_seed(seed);
}

result<model_identity> model::identify(const model_source& source) {
  auto config = source.config();
  if (!config) return fail(std::move(config.error()));
  return model_builder::identity_of(model_builder(nullptr, *config).from_source(source, {}));
}

result<std::optional<model_reads>> model::reads(const model_source& source, std::optional<layer_range> part,
                                                tensor_part share) {
  auto config = source.config();
  if (!config) return fail(std::move(config.error()));
  if (source.unpacks()) return std::optional<model_reads>{};
  return model_builder(nullptr, *config, part, share).reads_of(source);
}

result<model_identity> model::identify_dummy(const model_config& config, std::uint64_t seed) {
  return model_builder::identity_of(model_builder(nullptr, config).from_seed(seed));
}

}  // namespace mooncaf
