"""The builder of the folder above: pip takes none that lies outside of what it builds."""

import importlib.util
import pathlib

_above = importlib.util.spec_from_file_location("wheel_builder_above", pathlib.Path(__file__).resolve().parents[1] / "wheel_builder.py")
_builder = importlib.util.module_from_spec(_above)
_above.loader.exec_module(_builder)
build_wheel = _builder.build_wheel
