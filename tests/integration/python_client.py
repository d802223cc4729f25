"""Runs a script with OpenAI's own client, from a virtual environment beside the binary under test.

Standard library only until then. The environment is made once per build folder; a marker says that it is complete.
"""
import os
import pathlib
import subprocess
import sys

PACKAGES = ["openai==3.52.0"]


def build_folder():
    from cluster import BINARY
    return pathlib.Path(BINARY).resolve().parent.parent


def with_openai_client():
    """Returns once the interpreter has the `openai` package: starts the script again inside the environment."""
    folder = build_folder() / "python-client"
    python = folder / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == folder.resolve():
        return
    marker = folder / "complete"
    if not marker.exists() or marker.read_text().split() != PACKAGES:
        print(f"installing {' '.join(PACKAGES)} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
                       check=True)
        marker.write_text("\n".join(PACKAGES))
    os.execv(str(python), [str(python), *sys.argv])
