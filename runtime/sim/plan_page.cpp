#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "runtime/pages/pages.hpp"
#include "runtime/sim/page.hpp"
#include "runtime/sim/plan_around.hpp"
#include "runtime/sim/plan_report.hpp"

// A plan as a page.

namespace mooncaf::sim {

namespace {

[[gnu::format(printf, 1, 2)]] std::string text_of(const char* format, ...) {
  char line[512];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

/// The few lines that decide: the cluster to buy, its purpose, its price, and its risks.
class summary {
 public:
  summary(const plan_problem& p, const plan_answer& a, const std::string& currency)
      : p_(p), a_(a), currency_(currency) {}

  std::string html() {
    const auto& c = a_.cluster;
    row("Buy", text_of("%u machines: %s", c.machines(), describe(p_, c).c_str()));
    const auto parts = parts_of(p_, c);
    row("Each with", text_of("%.0f GB of memory for KV, %.0f GB of SSD, %.0f Gbit/s", parts.cache_gb,
                             parts.ssd_gb, parts.nic_gbit));
    row("Scheduled by",
        describe(p_, c, plan_part::policy) + ", admission " + describe(p_, c, plan_part::admission));
    row("For",
        text_of("%.2f times this traffic: %.2f %% of the requests have their first token within %.3g "
                "s and the next ones within %.3g ms",
                a_.planned_load, 100 * a_.planned_share, p_.base.ttft_slo_s, 1000 * p_.base.tbt_slo_s));
    cost();
    row("In hand", text_of("it carries up to %.2f times this traffic, %.2f times what it is planned for",
                           a_.carries.front(), a_.carries.front() / a_.planned_load));
    breaks();
    if (const auto* more = overload_of(a_, c.admission)) {
      const auto most = std::ranges::max_element(a_.overload, {}, &plan_overload::slo_share);
      row("If more comes",
          text_of("of %.2f times this traffic %.1f %% are still served in time; %.1f %% with admission %s",
                  a_.overload_load, 100 * more->slo_share, 100 * most->slo_share,
                  std::string{to_string(most->admission)}.c_str()));
    }
    return "<div class=\"wide\"><table class=\"summary\">" + rows_ + "</table></div>";
  }

 private:
  void row(const std::string& what, const std::string& text) {
    rows_ += "<tr><td>" + html_text(what) + "</td><td>" + html_text(text) + "</td></tr>";
  }

  void cost() {
    if (currency_.empty()) return;
    constexpr double hours_of_a_year = 8760;
    row("Costs", text_of("%.2f %s an hour, %.0f %s a year; %.3f %s per million tokens", a_.cost_per_hour,
                         currency_.c_str(), a_.cost_per_hour * hours_of_a_year, currency_.c_str(),
                         a_.cost_per_million_tokens, currency_.c_str()));
  }

  void breaks() {
    std::string fatal, survived;
    for (const auto& r : a_.risks) {
      auto& list = r.carries < a_.planned_load ? fatal : survived;
      list += (list.empty() ? "" : "; ") + r.what;
    }
    if (!fatal.empty()) row("Would break it", fatal);
    if (!survived.empty()) row("Would not", survived);
  }

  const plan_problem& p_;
  const plan_answer& a_;
  const std::string& currency_;
  std::string rows_;
};

}  // namespace

std::string to_html(const plan_problem& p, const plan_answer& a, const std::string& currency,
                    const std::string& about) {
  if (!a.found) return report_page({}, about, "<pre>" + html_text(to_text(p, a, currency)) + "</pre>", "{}");
  return report_page(pages::plan_plots, about,
                     summary{p, a, currency}.html() + "<details><summary>In full</summary><pre>" +
                         html_text(to_text(p, a, currency)) + "</pre></details>",
                     to_json(p, a, currency));
}

}  // namespace mooncaf::sim
