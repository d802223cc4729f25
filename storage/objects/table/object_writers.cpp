#include "storage/objects/table/object_writers.hpp"

#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

std::uint64_t object_writers::begin(stored_object& o, session_id writer, const put_terms& terms) {
  auto& s = o.writing;
  s.ticket_ = new_ticket();
  s.writer_ = writer;
  s.terms = terms;
  tickets_.emplace(s.ticket_, &o);
  tickets_of_[writer].insert(s.ticket_);
  return s.ticket_;
}

stored_object* object_writers::find(session_id writer, std::uint64_t ticket) const {
  const auto found = tickets_.find(ticket);
  return found == tickets_.end() || found->second->writing.writer_ != writer ? nullptr : found->second;
}

void object_writers::end(stored_object& o) {
  auto& s = o.writing;
  tickets_.erase(s.ticket_);
  if (const auto found = tickets_of_.find(s.writer_); found != tickets_of_.end())
    found->second.erase(s.ticket_);
  s.ticket_ = 0;
}

std::vector<stored_object*> object_writers::take(session_id writer) {
  std::vector<stored_object*> all;
  if (const auto left = tickets_of_.extract(writer))
    for (const auto ticket : left.mapped()) all.push_back(tickets_.at(ticket));
  return all;
}

void object_writers::keep_unnamed(stored_object& o, time_point until) {
  o.writing.ahead_ = true;
  unnamed_.emplace_back(until, o.writing.ticket_);
}

void object_writers::name(stored_object& o) { o.writing.ahead_ = false; }

stored_object* object_writers::unnamed_ended(time_point now) {
  while (!unnamed_.empty() && unnamed_.front().first <= now) {
    const auto found = tickets_.find(unnamed_.front().second);
    unnamed_.pop_front();
    if (found != tickets_.end() && found->second->writing.ahead_) return found->second;
  }
  return nullptr;
}

}  // namespace mooncaf
