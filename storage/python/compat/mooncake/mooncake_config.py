"""`from mooncake.mooncake_config import …` for engines that are not to be changed."""

from mooncaf.mooncake_config import MooncakeConfig  # noqa: F401

__all__ = ["MooncakeConfig"]
