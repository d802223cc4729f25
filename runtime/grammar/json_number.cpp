#include "runtime/grammar/json_number.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

namespace mooncaf {

namespace {

constexpr std::size_t most_whole = 16;     ///< digits in front of the point
constexpr std::size_t exact_digits = 15;   ///< within which different numbers are different doubles
constexpr std::size_t usual_fraction = 6;  ///< digits behind the point, where nothing asks for more
constexpr std::size_t most_states = 1000;  ///< of one automaton of multiples

void add(std::string& out, const std::string& part) {
  if (!part.empty()) out += (out.empty() ? "" : " | ") + part;
}

std::string digit_class(char low, char high) {
  return low == high ? "\"" + std::string{low} + "\"" : "[" + std::string{low} + "-" + high + "]";
}

std::string digits(std::size_t least, std::size_t most) {
  return "[0-9]{" + std::to_string(least) + "," + std::to_string(most) + "}";
}

/// One side of an interval of numbers that are not negative.
struct side {
  std::string whole, fraction;
  bool open = false;  ///< the number itself is outside
};

/// Writes the numbers without sign between two sides, digit by digit. At each digit either side is still
/// tight (all digits so far are its own) or has been left behind; of a divisor the remainder so far counts.
class digit_writer {
 public:
  /// @param divisor  of the number times 10 to the power of `scale`; 1: none.
  /// @param fraction  digits behind the point at most.
  digit_writer(std::int64_t divisor, std::size_t scale, std::size_t fraction, const make_rule_fn& make_rule)
      : divisor_(divisor), scale_(scale), fraction_(fraction), make_rule_(make_rule) {}

  /// @param low, high  null: none.
  std::string between(const side* low, const side* high) {
    low_ = low;
    high_ = high;
    made_.clear();
    std::string out;
    const auto first = low ? low->whole.size() : 1;
    const auto room = divisor_ == 1
                          ? most_whole
                          : std::clamp<std::size_t>(most_states / static_cast<std::size_t>(divisor_),
                                                    first + 3, most_whole);
    const auto last = std::min(high ? high->whole.size() : most_whole, room);
    for (length_ = first; length_ <= last; ++length_) {
      const bool low_tight = low && length_ == low->whole.size();
      const bool high_tight = high && length_ == high->whole.size();
      if (auto part = whole(0, low_tight, high_tight, 0)) add(out, *part);
    }
    return out.empty() ? out : "(" + out + ")";
  }

 private:
  using maybe = std::optional<std::string>;  ///< nothing: no number goes on so

  /// Digits with the same future, as alternatives. @param tight_low, tight_high  the digit of a side that is
  /// tight, else 0.
  template <class Next>
  maybe each_digit(char least, char tight_low, char tight_high, const Next& next) {
    std::string out;
    const char from = std::max(least, tight_low ? tight_low : '0'), to = tight_high ? tight_high : '9';
    for (char d = from; d <= to; ++d) {
      const bool on_low = tight_low && d == tight_low, on_high = tight_high && d == tight_high;
      char end = d;
      // Without a divisor all digits strictly between the sides go on alike.
      if (divisor_ == 1 && !on_low && !on_high) end = static_cast<char>(tight_high ? to - 1 : to);
      if (const auto rest = next(d, on_low, on_high)) add(out, digit_class(d, end) + " " + *rest);
      d = end;
    }
    if (out.empty()) return std::nullopt;
    return "(" + out + ")";
  }

  std::int64_t step(std::int64_t remainder, char digit) const {
    return (remainder * 10 + (digit - '0')) % divisor_;
  }

  /// The same state of a divisor's automaton is one rule.
  template <class Make>
  maybe shared(std::size_t phase, std::size_t at, bool low_tight, bool high_tight, std::int64_t remainder,
               const Make& make) {
    if (divisor_ == 1) return make();
    const std::tuple key{phase, at, low_tight, high_tight, remainder};
    if (const auto i = made_.find(key); i != made_.end()) return i->second;
    auto made = make();
    if (made) made = make_rule_(std::move(*made));
    return made_.emplace(key, std::move(made)).first->second;
  }

  /// The text that may follow `at` digits of the whole part.
  maybe whole(std::size_t at, bool low_tight, bool high_tight, std::int64_t remainder) {
    const auto left = length_ - at;
    if (left == 0) return behind_whole(low_tight, high_tight, remainder);
    // A tight side has its length fixed, so the digits left tell lengths apart well enough.
    return shared(0, left * 2 + (at == 0), low_tight, high_tight, remainder, [&]() -> maybe {
      if (divisor_ == 1 && !low_tight && !high_tight) {
        const auto rest = behind_whole(false, false, 0);
        if (!rest) return std::nullopt;
        if (at > 0 || length_ == 1) return digits(left, left) + " " + *rest;
        return "[1-9] " + digits(left - 1, left - 1) + " " + *rest;
      }
      return each_digit(at == 0 && length_ > 1 ? '1' : '0', low_tight ? low_->whole[at] : '\0',
                        high_tight ? high_->whole[at] : '\0', [&](char d, bool on_low, bool on_high) {
                          return whole(at + 1, on_low, on_high, step(remainder, d));
                        });
    });
  }

  maybe behind_whole(bool low_tight, bool high_tight, std::int64_t remainder) {
    const auto room = length_ < exact_digits ? exact_digits - length_ : 0;
    room_ = std::min(fraction_, room);
    if (scale_ > 0) room_ = std::min(room_, scale_);
    const bool ends = may_end(0, low_tight, high_tight, remainder);
    const auto point = room_ > 0 ? fraction(0, low_tight, high_tight, remainder) : std::nullopt;
    if (!point) return ends ? maybe{"\"\""} : std::nullopt;
    return ends ? "(\".\" " + *point + ")?" : "\".\" " + *point;
  }

  static bool zeros_from(const std::string& digits, std::size_t at) { return at >= digits.size(); }

  /// Whether the number may end behind `at` digits of its fraction.
  bool may_end(std::size_t at, bool low_tight, bool high_tight, std::int64_t remainder) const {
    if (low_tight && (!zeros_from(low_->fraction, at) || low_->open)) return false;
    if (high_tight && zeros_from(high_->fraction, at) && high_->open) return false;
    for (auto i = at; i < scale_; ++i) remainder = remainder * 10 % divisor_;
    return remainder == 0;
  }

  static char digit_of(const std::string& digits, std::size_t at) {
    return at < digits.size() ? digits[at] : '0';
  }

  /// A digit more, behind `at` of the fraction.
  maybe fraction(std::size_t at, bool low_tight, bool high_tight, std::int64_t remainder) {
    if (at >= room_) return std::nullopt;
    const bool passed = low_tight && zeros_from(low_->fraction, at) && !low_->open;
    if (passed) low_tight = false;  // whatever follows is above it
    if (divisor_ == 1 && !low_tight && !high_tight) return digits(1, room_ - at);
    return shared(1, (room_ - at) * 64 + at, low_tight, high_tight, remainder, [&]() -> maybe {
      return each_digit('0', low_tight ? digit_of(low_->fraction, at) : '\0',
                        high_tight ? digit_of(high_->fraction, at) : '\0',
                        [&](char d, bool on_low, bool on_high) -> maybe {
                          const auto now = step(remainder, d);
                          const bool ends = may_end(at + 1, on_low, on_high, now);
                          const auto more = fraction(at + 1, on_low, on_high, now);
                          if (!more) return ends ? maybe{"\"\""} : std::nullopt;
                          return ends ? "(" + *more + ")?" : *more;
                        });
    });
  }

  const std::int64_t divisor_;
  const std::size_t scale_, fraction_;
  const make_rule_fn& make_rule_;
  const side* low_ = nullptr;
  const side* high_ = nullptr;
  std::size_t length_ = 1;  ///< digits of the whole part
  std::size_t room_ = 0;    ///< digits behind it
  std::map<std::tuple<std::size_t, std::size_t, bool, bool, std::int64_t>, maybe> made_;
};

/// Numbers of both signs.
std::string signed_expression(const number_bounds& b, digit_writer& write) {
  const side zero{"0", "", true};
  std::optional<side> low, high;
  if (b.low) low = side{b.low->whole, b.low->fraction, b.above_low};
  if (b.high) high = side{b.high->whole, b.high->fraction, b.below_high};
  std::string out;
  const bool low_negative = b.low && b.low->negative, high_negative = b.high && b.high->negative;
  if (!high_negative) {
    const bool from_zero = !b.low || low_negative;
    add(out, write.between(from_zero ? nullptr : &*low, high ? &*high : nullptr));
  }
  if (!b.low || low_negative) {
    // Mirrored behind the sign, and without zero.
    const auto minus = write.between(high_negative ? &*high : &zero, low ? &*low : nullptr);
    if (!minus.empty()) add(out, "\"-\" " + minus);
  }
  return out.empty() ? out : "(" + out + ")";
}

struct division {
  std::int64_t divisor = 1;
  std::size_t scale = 0;  ///< digits behind the point
};

result<division> division_of(const std::optional<decimal>& multiple) {
  if (!multiple) return division{};
  const auto digits = multiple->whole + multiple->fraction;
  std::int64_t divisor = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), divisor);
  if (read.ec != std::errc{} || divisor <= 0 || divisor > largest_divisor)
    return fail(ec::invalid_argument, "'multipleOf' is supported up to " + std::to_string(largest_divisor) +
                                          ", its point and zeros at its end apart");
  return division{divisor, multiple->fraction.size()};
}

/// `d` as a whole number, rounded towards the inside of an interval. @pre at most 16 digits.
std::int64_t rounded(const decimal& d, bool up, bool open) {
  std::int64_t value = 0;
  std::from_chars(d.whole.data(), d.whole.data() + d.whole.size(), value);
  if (d.negative) value = -value;
  if (!d.fraction.empty()) {
    if (up && !d.negative) ++value;
    if (!up && d.negative) --value;
    return value;
  }
  return open ? value + (up ? 1 : -1) : value;
}

decimal decimal_of(std::int64_t value) { return {value < 0, std::to_string(value < 0 ? -value : value), {}}; }

std::int64_t divided(std::int64_t value, std::int64_t by, bool up) {
  const auto floor = value / by - (value % by != 0 && value < 0 ? 1 : 0);
  return up && value % by != 0 ? floor + 1 : floor;
}

}  // namespace

std::optional<decimal> decimal::parse(std::string_view text) {
  decimal out;
  if (text.starts_with('-')) out.negative = true, text.remove_prefix(1);
  const auto e = std::min(text.find_first_of("eE"), text.size());
  int exponent = 0;
  if (e < text.size()) {
    auto power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc{})
      return std::nullopt;
  }
  const auto mantissa = text.substr(0, e);
  const auto point = std::min(mantissa.find('.'), mantissa.size());
  std::string all{mantissa.substr(0, point)};
  if (point < mantissa.size()) all += mantissa.substr(point + 1);
  if (exponent > 400 || exponent < -400) return std::nullopt;
  auto at = static_cast<int>(point) + exponent;  // where the point comes to stand in `all`
  if (at < 0) all.insert(0, static_cast<std::size_t>(-at), '0'), at = 0;
  if (at > static_cast<int>(all.size())) all.append(static_cast<std::size_t>(at) - all.size(), '0');
  out.whole = all.substr(0, static_cast<std::size_t>(at));
  out.fraction = all.substr(static_cast<std::size_t>(at));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.whole.empty()) out.whole = "0";
  if (out.whole == "0" && out.fraction.empty()) out.negative = false;
  if (out.whole.size() > most_whole || out.fraction.size() > exact_digits) return std::nullopt;
  return out;
}

bool less(const decimal& a, const decimal& b) noexcept {
  if (a.negative != b.negative) return a.negative;
  const auto below = [](const decimal& x, const decimal& y) {
    return std::tuple{x.whole.size(), std::string_view{x.whole}, std::string_view{x.fraction}} <
           std::tuple{y.whole.size(), std::string_view{y.whole}, std::string_view{y.fraction}};
  };
  return a.negative ? below(b, a) : below(a, b);
}

result<std::string> integer_expression(const number_bounds& bounds, const make_rule_fn& make_rule) {
  if (!bounds.any()) return std::string{"(\"-\"? (\"0\" | [1-9] [0-9]{0,15}))"};
  auto b = bounds;
  std::string zeros;
  std::int64_t divisor = 1;
  if (b.multiple_of) {
    // Of 0.5 every whole number is a multiple, of 1.5 every third.
    auto d = division_of(b.multiple_of);
    std::int64_t power = 1;
    for (auto digits = b.multiple_of->whole; b.multiple_of->fraction.empty() && digits.ends_with('0');
         digits.pop_back()) {
      zeros += '0';
      b.multiple_of->whole.pop_back();
      power *= 10;
    }
    if (!zeros.empty()) {
      // Multiples of 1200 are multiples of 12 with two zeros behind.
      if (b.low) b.low = decimal_of(divided(rounded(*b.low, true, b.above_low), power, true));
      if (b.high) b.high = decimal_of(divided(rounded(*b.high, false, b.below_high), power, false));
      b.above_low = b.below_high = false;
      d = division_of(b.multiple_of);
    }
    if (!d) return fail(d.error());
    std::int64_t scale = 1;
    for (std::size_t i = 0; i < d->scale; ++i) scale *= 10;
    divisor = d->divisor / std::gcd(d->divisor, scale);
  }
  digit_writer write{divisor, 0, 0, make_rule};
  auto out = signed_expression(b, write);
  if (zeros.empty() || out.empty()) return out;
  // Zero itself comes without the zeros behind.
  const bool holds_zero =
      (!b.low || b.low->negative || b.low->whole == "0") && (!b.high || !b.high->negative);
  auto more = b;
  std::string scaled;
  if (!b.high || (!b.high->negative && b.high->whole != "0")) {
    more.low = b.low && !b.low->negative && b.low->whole != "0" ? b.low : decimal_of(1);
    scaled = signed_expression(more, write);
  }
  if (!b.low || b.low->negative) {
    more = b;
    more.high = b.high && b.high->negative ? b.high : decimal_of(-1);
    add(scaled, signed_expression(more, write));
  }
  std::string all = holds_zero ? "\"0\"" : "";
  if (!scaled.empty()) add(all, "(" + scaled + ") \"" + zeros + "\"");
  return all.empty() ? all : "(" + all + ")";
}

result<std::string> number_expression(const number_bounds& bounds, const make_rule_fn& make_rule) {
  if (!bounds.any())
    return std::string{"(\"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)"};
  if (bounds.multiple_of && bounds.multiple_of->fraction.empty())
    return integer_expression(bounds, make_rule);
  const auto d = division_of(bounds.multiple_of);
  if (!d) return fail(d.error());
  auto fraction = std::max(usual_fraction, d->scale);
  for (const auto& b : {bounds.low, bounds.high})
    if (b) fraction = std::max(fraction, b->fraction.size());
  digit_writer write{d->divisor, d->scale, fraction, make_rule};
  return signed_expression(bounds, write);
}

}  // namespace mooncaf
