#pragma once
// The text of an answer, as it comes, taken apart into content and calls.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tools/call_scanner.hpp"
#include "runtime/tools/python_call.hpp"
#include "runtime/tools/tool_format.hpp"
#include "runtime/tools/tool_grammar.hpp"

namespace mooncaf {

/// More of a call: its name with the first piece, then the text of its arguments.
struct tool_call_piece {
  std::uint32_t index = 0;
  std::string name;
  std::string arguments;
};

/// The parts of an answer that have become certain.
struct answer_parts {
  std::string content;
  std::vector<tool_call_piece> calls;
};

/// Reads one answer. The parts together do not depend on how the text was cut into pieces. Text that only
/// looks like a call (not JSON, without a name) is content, as the model wrote it, if that is found out
/// before its name was passed on. White space around calls is not passed on.
/// @thread Not synchronised.   @cost O(bytes).
class tool_call_reader {
 public:
  /// @param forced   the answer was held to `grammar_of_tools`.
  /// @param several  whether more than one call is wanted.
  /// @param offered  functions that may be called; their schemas give the types of values written as text.
  tool_call_reader(tool_format format, bool forced, bool several, std::vector<tool_function> offered)
      : format_(format),
        forced_(forced),
        several_(several),
        offered_(std::move(offered)),
        place_(forced && listed_when_forced(format) ? place::list : place::text) {}

  answer_parts feed(std::string_view text);
  /// The rest of an answer that is over.
  answer_parts finish();

  std::uint32_t calls() const noexcept { return calls_; }
  /// The only call that is wanted has ended.
  bool complete() const noexcept { return !several_ && ended_ > 0; }

 private:
  enum class place : std::uint8_t {
    text,    ///< content, until a call opens
    list,    ///< behind the marker of a list of calls
    name,    ///< Mistral, DeepSeek: of a function, before its arguments; gpt-oss: the head of a message
    call,    ///< inside a JSON object
    tag,     ///< Qwen3-Coder: behind <tool_call>, before a function
    member,  ///< … inside a function: before a parameter, or its end
    python,  ///< inside a list of calls as Python writes them
    after,   ///< behind a call
    plain    ///< content until the end
  };

  // Each looks at `held_` and takes from it; false if it needs more text.
  bool read_text(answer_parts& out);
  bool read_list(answer_parts& out);
  bool read_name(answer_parts& out);
  bool read_call(answer_parts& out);
  bool read_after();
  bool read_tag(answer_parts& out);
  bool read_function(answer_parts& out);
  bool read_member(answer_parts& out);
  bool read_head(answer_parts& out);
  bool read_python_start(answer_parts& out);
  bool read_python(answer_parts& out);
  const tool_function* offered(std::string_view name) const;
  bool give_up(answer_parts& out);
  void open_call(std::string opening);
  bool open_head(std::string opening);
  static std::string deepseek_name(std::string_view head);
  void say(answer_parts& out, std::string_view content);

  const tool_format format_;
  const bool forced_;
  const bool several_;
  const std::vector<tool_function> offered_;
  place place_;
  bool begun_ = false;    ///< Llama 3: something else than white space has come
  bool in_list_ = false;  ///< calls are items of a list
  std::uint32_t calls_ = 0, ended_ = 0;
  std::string held_;     ///< not yet understood
  std::string space_;    ///< white space that may yet be content
  std::string opening_;  ///< of the call: it is content after all if the call is none
  call_scanner scanner_;
  const tool_function* function_ = nullptr;  ///< Qwen3-Coder: the function of the parameters that are read
  bool has_members_ = false;                 ///< … some of which have come
  std::size_t looked_at_ = 0;                ///< bytes of `held_` that were searched for the end in vain
  python_scanner python_;
};

}  // namespace mooncaf
