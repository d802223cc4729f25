#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "config/command_line.hpp"
#include "config/defaults.hpp"
#include "gpu/host/host_device.hpp"
#include "runtime/loading/served_model.hpp"
#include "runtime/model/calibration.hpp"
#include "runtime/model/model_runner.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/format_losses.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

namespace {

/// Sequences at most in the batches that a prefill pass is measured beside.
constexpr std::uint32_t decode_neighbours = 4;
/// A run of decode steps is shorter than one of prefill passes.
constexpr std::size_t prefill_repeats = 6, decode_repeats = 20;

struct calibrate_request {
  std::string model, output;
  std::string text;       ///< a file; empty: formats are not compared
  double accuracy = 1e9;  ///< nats a token that `format` may cost
  std::uint32_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::uint32_t chunk_tokens = 512, max_batch = 32, block_tokens = 64;
  kv_dtype format = defaults::model::kv_dtype;
  std::uint64_t device_kv_tokens = 65'536, dram_tokens = 65'536, ssd_tokens = 0;
  double nic_gbit_per_s = 80;  ///< two processes of one host move so much through shared memory
  double ssd_gb_per_s = 1;
  bool beside = false;
};

/// A model with the runners of prefill and decode workers, on a device of their own.
struct machine {
  std::unique_ptr<device> hardware;
  served_model loaded;
  std::unique_ptr<model_runner> prefill, decode;

  std::uint32_t context_tokens() const noexcept { return loaded.identity.config.context_length; }
};

/// Shows the measurement under way and how far it is: all of them take half a minute.
class progress {
 public:
  explicit progress(const console& io) : io_(io) {}
  ~progress() {
    if (io_.interactive) io_.err << "\r" << std::string(width, ' ') << "\r" << std::flush;
  }
  void show(std::string_view what, std::size_t done, std::size_t of) const {
    if (!io_.interactive) return;
    auto line = "measuring " + std::string{what} + ": " + std::to_string(done) + " of " + std::to_string(of);
    line.resize(width, ' ');
    io_.err << '\r' << line << std::flush;
  }

 private:
  static constexpr std::size_t width = 72;
  const console& io_;
};

/// Means of many runs without the fastest and the slowest: step times on this machine as it is. A shared
/// machine has fast and slow minutes; a median would only be one of the two.
/// @param repeats  at least three.
template <class Measure>
result<std::vector<timing_point>> measured(const progress& shown, std::string_view what, std::size_t repeats,
                                           Measure&& measure) {
  std::vector<std::vector<timing_sample>> runs;
  for (std::size_t i = 0; i < repeats; ++i) {
    shown.show(what, i, repeats);
    auto run = measure();
    if (!run) return fail(run.error());
    // A slow device ends its runs early, not always after the same pass.
    if (i > 0) run->resize(std::min(run->size(), runs[0].size()));
    for (auto& r : runs) r.resize(run->size());
    runs.push_back(std::move(*run));
  }
  std::vector<timing_point> points;
  for (std::size_t i = 0; i < runs[0].size(); ++i) {
    std::vector<std::int64_t> ns(repeats);
    for (std::size_t r = 0; r < repeats; ++r) ns[r] = runs[r][i][2];
    std::ranges::sort(ns);
    const auto middle = std::accumulate(ns.begin() + 1, ns.end() - 1, std::int64_t{0});
    points.push_back({static_cast<double>(runs[0][i][0]), static_cast<double>(runs[0][i][1]),
                      static_cast<double>(middle) * 1e-9 / static_cast<double>(repeats - 2)});
  }
  return points;
}

result<machine> open_machine(const calibrate_request& r) {
  machine m;
  m.hardware = make_host_device({r.threads, false, {}});
  auto loaded = load_served_model(std::array{m.hardware.get()}, r.model, "auto", {true, !r.text.empty()});
  if (!loaded) return fail(loaded.error());
  m.loaded = std::move(*loaded);
  const auto& net = m.loaded.nets.front();
  const auto layout = net->layout(r.block_tokens, r.format);
  auto prefill =
      model_runner::make(net, *m.hardware, {r.chunk_tokens, std::max(1u, r.chunk_tokens / 16), layout, 1});
  if (!prefill) return fail(prefill.error());
  auto decode = model_runner::make(net, *m.hardware, {r.max_batch, r.max_batch, layout, 0});
  if (!decode) return fail(decode.error());
  m.prefill = std::move(*prefill);
  m.decode = std::move(*decode);
  return m;
}

/// Median of how much longer the same passes took. At least 1: a speed-up is chance.
double slowdown_of(const std::vector<timing_point>& beside, const std::vector<timing_point>& alone) {
  std::vector<double> factors;
  for (std::size_t i = 0; i < std::min(beside.size(), alone.size()); ++i)
    factors.push_back(beside[i].seconds / alone[i].seconds);
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  std::ranges::nth_element(factors, middle);
  return std::max(*middle, 1.0);
}

/// `measure` while `other` runs again and again on another device.
template <class Measure, class Other>
auto measured_beside(const progress& shown, std::string_view what, std::size_t repeats, Measure&& measure,
                     Other&& other) {
  const std::jthread neighbour([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) other();
  });
  return measured(shown, what, repeats, measure);
}

struct calibrated {
  profile found;
  fit_error error;
  std::size_t passes = 0, steps = 0;  ///< shapes that were measured
  std::size_t text_tokens = 0;
  std::vector<format_loss> losses;  ///< on the text; empty: none was given
};

/// Comments for the profile's file.
std::string to_comments(const calibrated& c) {
  char text[400];
  std::snprintf(text, sizeof text,
                "# Measured by mooncaf calibrate. The fit is off by, of what was measured:\n"
                "#   prefill passes (%zu shapes)  %.1f %% on average, %.1f %% at most\n"
                "#   decode steps (%zu shapes)    %.1f %% on average, %.1f %% at most\n",
                c.passes, 100 * c.error.prefill_mean, 100 * c.error.prefill_most, c.steps,
                100 * c.error.decode_mean, 100 * c.error.decode_most);
  if (c.losses.empty()) return text;
  return std::string{text} + "# Nats a token of the text (" + std::to_string(c.text_tokens) +
         " tokens) by kv-dtype: " + to_text(c.losses) + "\n";
}

/// What formats cost is known, and refused, before anything is timed.
result<void> compare_formats(const calibrate_request& r, machine& m, calibrated& into, const console& io) {
  if (r.text.empty()) return {};
  std::ifstream file{r.text, std::ios::binary};
  const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  if (!file) return fail(ec::io_error, "text: cannot read " + r.text);
  auto tokens = m.loaded.text->encode_prompt(bytes);
  tokens.resize(std::min<std::size_t>(tokens.size(), m.loaded.identity.config.context_length));
  auto losses = format_losses(m.loaded.nets.front(), *m.hardware, tokens, r.chunk_tokens, io);
  if (!losses) return fail(losses.error());
  into.text_tokens = tokens.size();
  into.losses = std::move(*losses);
  return within(into.losses, r.format, r.accuracy);
}

/// The cost of another machine beside it is measured last, so that the plain times are undisturbed.
result<calibrated> calibrate(const calibrate_request& r, const console& io) {
  const progress shown{io};
  auto mine = open_machine(r);
  if (!mine) return fail(mine.error());
  calibrated out;
  if (const auto fits = compare_formats(r, *mine, out, io); !fits) return fail(fits.error());
  const auto prefill = [&] {
    return calibrate_prefill(*mine->prefill, mine->context_tokens(), r.chunk_tokens);
  };
  const auto decode = [&] { return calibrate_decode(*mine->decode, mine->context_tokens(), r.max_batch); };
  const auto passes = measured(shown, "prefill passes", prefill_repeats, prefill);
  if (!passes) return fail(passes.error());
  const auto steps = measured(shown, "decode steps", decode_repeats, decode);
  if (!steps) return fail(steps.error());
  const auto& layout = mine->prefill->options().layout;
  profile& p = out.found;
  p.name =
      r.model.substr(r.model.find_last_of('/') + 1) + " on " + std::to_string(r.threads) + " CPU threads";
  p.layers = layout.n_layers;
  p.kv_bytes_per_token = layout.bytes_per_token();
  p.block_tokens = r.block_tokens;
  p.costs = fit_costs(*passes, *steps);
  if (r.beside) {
    const auto other = open_machine(r);
    if (!other) return fail(other.error());
    const auto slow_passes = measured_beside(
        shown, "prefill passes beside decoding", prefill_repeats, prefill,
        [&] { (void)calibrate_decode(*other->decode, other->context_tokens(), decode_neighbours); });
    const auto slow_steps = measured_beside(
        shown, "decode steps beside prefill", decode_repeats, decode,
        [&] { (void)calibrate_prefill(*other->prefill, other->context_tokens(), r.chunk_tokens); });
    if (!slow_passes || !slow_steps) return fail((slow_passes ? slow_steps : slow_passes).error());
    p.costs.prefill_beside_decode = slowdown_of(*slow_passes, *passes);
    p.costs.decode_beside_prefill = slowdown_of(*slow_steps, *steps);
  }
  p.chunk_tokens = r.chunk_tokens;
  p.max_batch = r.max_batch;
  p.device_kv_tokens = r.device_kv_tokens;
  p.nic_bytes_per_s = r.nic_gbit_per_s * 1e9 / 8;
  p.ssd_bytes_per_s = r.ssd_gb_per_s * 1e9;
  p.dram_tokens = r.dram_tokens;
  p.ssd_tokens = r.ssd_tokens;
  out.error = error_of(p.costs, *passes, *steps);
  out.passes = passes->size();
  out.steps = steps->size();
  return out;
}

}  // namespace

/// Writes the profile only when all of it was measured: half a profile would be taken for a whole one.
int calibrate_command(std::span<const std::string> args, const console& io) {
  calibrate_request r;
  command_line line{
      "mooncaf calibrate --model MODEL [--output FILE.toml]",
      "Measures prefill passes and decode steps of a model on this machine, as a worker does when it starts, "
      "and writes a profile\nfor simulate and plan.",
      {text("model", "MODEL", "the model: a GGUF file or a Hugging Face folder", r.model),
       text("output", "FILE.toml", "where to write (default: standard output)", r.output),
       whole("threads", "that compute", r.threads, 1, 1024),
       whole("chunk-tokens", "of a prefill step", r.chunk_tokens, 64, 65'536),
       whole("max-batch", "of a decode step", r.max_batch, 4, 4096),
       whole("block-tokens", "of a KV block", r.block_tokens, 16, 512),
       choice("kv-dtype", "number format of keys and values", r.format),
       text("text", "FILE", "a text like your users': what each number format costs on it", r.text),
       real("kv-accuracy", "nats a token of the text that --kv-dtype may cost", r.accuracy, 0, 1e9),
       whole("device-kv-tokens", "that a decode instance holds", r.device_kv_tokens, 1, 1'000'000'000),
       whole("dram-tokens", "of KV in the node's memory", r.dram_tokens, 0, 1'000'000'000'000),
       whole("ssd-tokens", "of KV on its disk", r.ssd_tokens, 0, 1'000'000'000'000),
       real("nic-gbit", "between nodes, Gbit/s", r.nic_gbit_per_s, 1e-3, 1e6),
       real("ssd-gb", "read from disk, GB/s", r.ssd_gb_per_s, 1e-3, 1e6),
       flag("beside", "prefill and decode share this machine: measure how they slow each other", r.beside)},
      {}};
  const invocation here{io, "calibrate"};
  if (const auto status = here.begin(line, args)) return *status;
  if (r.model.empty()) return here.wrong({ec::invalid_argument, "--model is missing; --help explains"}, 2);
  const auto found = calibrate(r, io);
  if (!found) return here.wrong(found.error(), 1);
  const auto comments = to_comments(*found);
  const auto text = comments + to_toml(found->found);
  if (r.output.empty()) {
    io.out << text;
    return 0;
  }
  std::ofstream file{r.output, std::ios::binary};
  file << text;
  file.close();
  if (!file) return here.wrong({ec::io_error, "cannot write " + r.output}, 1);
  io.out << comments;
  return 0;
}

}  // namespace mooncaf::sim
