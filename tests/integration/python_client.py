"""Runs a script with packages from PyPI, from a virtual environment beside the binary under test.

Standard library only until then. An environment is made once per build folder; a marker says that it is complete.
"""
import os
import pathlib
import subprocess
import sys

PACKAGES = ["openai==3.52.0"]


def build_folder():
    from cluster import BINARY
    return pathlib.Path(BINARY).resolve().parent.parent


def with_packages(name, packages):
    """Returns once the interpreter has them: starts the script again inside the environment of this name."""
    folder = build_folder() / name
    python = folder / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == folder.resolve():
        return
    marker = folder / "complete"
    if not marker.exists() or marker.read_text().split() != packages:
        print(f"installing {' '.join(packages)} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                       check=True)
        marker.write_text("\n".join(packages))
    os.execv(str(python), [str(python), *sys.argv])


def with_openai_client():
    """The `openai` package."""
    with_packages("python-client", PACKAGES)
