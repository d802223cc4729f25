#include "runtime/api/json_body.hpp"

#include <algorithm>
#include <vector>

namespace mooncaf {

namespace {

using json = body_json;

/// Builds the document from the parser's events. The library's own way to stop at a depth looks through all
/// elder siblings at every end of an object, which is quadratic in the size of a body.
class body_builder final : public nlohmann::json_sax<json> {
 public:
  explicit body_builder(body_endpoint where) : where_(where) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t&) override { return stop("not JSON"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (depth_ == 1) kept_ = find_field(where_, name) != nullptr;
    if (kept_) {
      // The library's own way to add a field looks through all that are there.
      auto& fields = open_.back()->get_ref<json::object_t&>();
      fields.emplace_back(std::move(name), nullptr);
      slot_ = &fields.back().second;
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    return stop("not JSON: " + shortened(e.what()));
  }

  const std::string& problem() const { return problem_; }
  json take() { return std::move(root_); }

 private:
  bool stop(std::string why) {
    if (problem_.empty()) problem_ = std::move(why);
    return false;
  }

  template <class Value>
  bool value(Value&& v) {
    if (depth_ == 0) return stop("must be a JSON object");
    if (++values_ > body_values_limit) {
      return stop("holds more than " + std::to_string(body_values_limit) + " values");
    }
    if (kept_) place(std::forward<Value>(v));
    return true;
  }

  template <class Value>
  json* place(Value&& v) {
    auto& into = *open_.back();
    if (into.is_array()) {
      into.push_back(std::forward<Value>(v));
      return &into.back();
    }
    *slot_ = std::forward<Value>(v);
    return slot_;
  }

  bool open(json container) {
    if (depth_ == 0) {
      if (!container.is_object()) return stop("must be a JSON object");
      root_ = std::move(container);
      open_.push_back(&root_);
    } else {
      if (depth_ >= body_depth_limit) return stop("nested too deeply");
      if (++values_ > body_values_limit) {
        return stop("holds more than " + std::to_string(body_values_limit) + " values");
      }
      if (kept_) open_.push_back(place(std::move(container)));
    }
    ++depth_;
    return true;
  }

  /// Of fields with one name the last stays.
  static void drop_earlier(json::object_t& fields) {
    std::vector<std::pair<std::string_view, std::size_t>> names;
    for (const auto& [name, value] : fields) names.emplace_back(name, names.size());
    std::ranges::sort(names);
    std::vector<bool> earlier(fields.size());
    bool any = false;
    for (std::size_t i = 1; i < names.size(); ++i) {
      if (names[i].first == names[i - 1].first) earlier[names[i - 1].second] = any = true;
    }
    if (!any) return;
    json::object_t kept;
    std::size_t at = 0;
    for (auto& [name, value] : fields) {
      if (!earlier[at++]) kept.emplace_back(name, std::move(value));
    }
    fields = std::move(kept);
  }

  bool close() {
    --depth_;
    if (!open_.empty() && (kept_ || depth_ == 0)) {
      if (open_.back()->is_object()) drop_earlier(open_.back()->get_ref<json::object_t&>());
      open_.pop_back();
    }
    if (depth_ == 1) kept_ = true;  // the object itself, until its next key
    return true;
  }

  const body_endpoint where_;
  json root_;
  std::vector<json*> open_;  ///< the containers around, as far as they are kept
  json* slot_ = nullptr;     ///< where the value of the last key goes
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  bool kept_ = true;  ///< whether the values to come belong to a field that is kept
  std::string problem_;
};

/// @returns the complaint about a field that is not done here, if it asks for something.
std::optional<std::string> refusal(const json& body, body_endpoint where) {
  for (const auto& [name, value] : body.items()) {
    const auto* field = find_field(where, name);
    if (!field || field->kind != field_kind::refused || value.is_null()) continue;
    const bool idle = std::ranges::any_of(field->idle, [&value = value](std::string_view allowed) {
      return !allowed.empty() && json::parse(allowed) == value;
    });
    if (!idle) return name + ": is not supported (" + std::string{field->meaning} + ")";
  }
  return std::nullopt;
}

}  // namespace

std::string shortened(std::string text) {
  if (text.size() > foreign_text_limit) text = text.substr(0, foreign_text_limit) + "…";
  return text;
}

result<json> parse_body(std::string_view body, body_endpoint where) {
  body_builder builder{where};
  if (!json::sax_parse(body, &builder) || !builder.problem().empty()) {
    return fail(ec::invalid_argument,
                "body: " + (builder.problem().empty() ? "not JSON" : builder.problem()));
  }
  auto parsed = builder.take();
  if (const auto why = refusal(parsed, where)) return fail(ec::invalid_argument, *why);
  return parsed;
}

}  // namespace mooncaf
