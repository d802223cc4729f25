#include "runtime/model/generation_defaults.hpp"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/model/json_file.hpp"

namespace mooncaf {

namespace {

std::string shortest(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr;
  return {text, end};
}

}  // namespace

result<generation_defaults> generation_defaults_from_hf(std::string_view text, const std::string& label) {
  generation_defaults out;
  if (text.empty()) return out;
  const auto file = parse_json_object(text, label);
  if (!file) return fail(file.error());
  std::string problem;
  const auto number = [&](const char* name, auto& into, double least, double most) {
    const auto found = file->find(name);
    if (found == file->end() || found->is_null()) return;
    const double value = found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (value >= least && value <= most) into = static_cast<std::remove_reference_t<decltype(into)>>(value);
    else
      problem = std::string(name) + "' is " + found->dump().substr(0, 40) + ", not a number from " +
                shortest(least) + " to " + shortest(most);
  };
  number("temperature", out.temperature, 0, 2);
  number("top_k", out.top_k, -1, 1 << 24);
  number("top_p", out.top_p, 1e-9, 1);
  number("min_p", out.min_p, 0, 1);
  number("repetition_penalty", out.repetition_penalty, 1e-6, 10);
  if (!problem.empty()) return fail(ec::corrupt, label + ": '" + problem);
  return out;
}

std::string to_string(const generation_defaults& d) {
  const generation_defaults own;
  std::string out;
  const auto tell = [&](const char* name, auto value, auto usual) {
    if (value != usual) out += (out.empty() ? "" : ", ") + std::string(name) + " " + shortest(value);
  };
  tell("temperature", d.temperature, own.temperature);
  tell("top_k", d.top_k, own.top_k);
  tell("top_p", d.top_p, own.top_p);
  tell("min_p", d.min_p, own.min_p);
  tell("repetition_penalty", d.repetition_penalty, own.repetition_penalty);
  return out;
}

}  // namespace mooncaf
