"""`from mooncake.store import …` for engines that are not to be changed."""

from mooncaf.store import *  # noqa: F401,F403
from mooncaf.store import __all__  # noqa: F401
from mooncaf.store import _deserialize_tensor, _serialize_tensor, _tensor_metadata_size  # noqa: F401
