"""What `cmake --install` puts into a prefix runs from there, alone.

usage: install.py CMAKE BUILD_FOLDER SANITIZERS
"""

import pathlib
import subprocess
import sys
import tempfile

SIZE_MAX = 20_000_000


def main():
    cmake, build, sanitizers = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "with space"
        subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        binary = prefix / "bin" / "mooncaf"

        def run(*arguments):
            return subprocess.run(
                [binary, *arguments], cwd=folder, env={}, check=True, capture_output=True, text=True, timeout=60
            ).stdout

        assert "mooncaf 0." in run("--version"), "--version does not name the version"
        text = run("--help")
        assert "--role" in text and "--model" in text, "--help does not list the options"
        size = binary.stat().st_size
        assert sanitizers or size < SIZE_MAX, f"the installed binary has {size} bytes"
        shared = prefix / "share"
        for name in ("mooncaf/mooncaf.example.toml", "mooncaf/profiles/h200-llama8b.toml", "mooncaf/prometheus.yml"):
            assert (shared / name).is_file(), f"{name} is not installed"
        assert (shared / "doc" / "mooncaf" / "LICENSE").is_file(), "the licence is not installed"
        # An installed profile is one that this binary takes.
        trace = pathlib.Path(folder) / "trace.jsonl"
        trace.write_text(run("trace", "generate", "--kind", "chat", "--requests", "20"))
        table = run("simulate", str(trace), "--profile", str(shared / "mooncaf" / "profiles" / "h200-llama8b.toml"))
        assert "TTFT" in table, "simulate printed no figures"
        print(f"installed: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
