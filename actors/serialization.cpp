#include "actors/serialization.hpp"

#define MOONCAF_HERE(type) template class caf::detail::type_erased_value_impl<type>;
MOONCAF_MESSAGES(MOONCAF_HERE)
