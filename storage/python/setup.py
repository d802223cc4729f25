"""Builds the extension with CMake, from the tree that this folder lies in."""

import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent


class cmake_build(build_ext):
    def build_extension(self, extension):
        target = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve()
        folder = pathlib.Path(os.environ.get("MOONCAF_PYTHON_BUILD", HERE / "build" / f"cmake-{sys.implementation.cache_tag}"))
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", str(HERE.parent.parent), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
             "-DMOONCAF_TESTS=OFF", f"-DPython3_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", str(folder), "--target", "mooncaf_python"], check=True)
        built = sorted((folder / "storage/python").glob("_store*.so"))[-1]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(built.read_bytes())


setup(ext_modules=[Extension("mooncaf._store", sources=[])], cmdclass={"build_ext": cmake_build})
