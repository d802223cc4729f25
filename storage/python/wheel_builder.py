"""Makes a wheel of the folder that it is called in, as PEP 517 has it, with the standard library alone: pip downloads nothing for it.

`[project]` of the folder's pyproject.toml says what it is. The package `mooncaf` gets its extension, which CMake builds from the tree that this
file lies in; where MOONCAF_PYTHON_BUILD names a folder that CMake has set up before, in that one as it is.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def extensions():
    """Builds them. Returns their files: the store's, and that of its SSD tier, which needs RocksDB's library where it is used."""
    given = os.environ.get("MOONCAF_PYTHON_BUILD")
    folder = pathlib.Path(given or HERE / "build" / f"cmake-{sys.implementation.cache_tag}").resolve()
    if not given or not (folder / "CMakeCache.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cmake", "-G", "Ninja", "-S", str(HERE.parent.parent), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                        "-DMOONCAF_TESTS=OFF", f"-DPython3_EXECUTABLE={sys.executable}"], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--target", "mooncaf_python"], check=True)
    built = [folder / "storage/python" / (name + sysconfig.get_config_var("EXT_SUFFIX")) for name in ("_store", "_ssd")]
    for file in built:
        if not file.exists():
            raise RuntimeError(f"{folder} is set up for another Python than {sys.executable}: there is no {file.name}")
    return built


def project(part="project"):
    """Of pyproject.toml, which Python reads by itself from 3.11 on: the lines of a part, each a name and what JSON takes for a value."""
    lines = pathlib.Path("pyproject.toml").read_text().partition(f"[{part}]\n")[2].split("\n[")[0]
    return {name: json.loads(value) for name, value in re.findall(r"^([a-z_-]+) = (.*)$", lines, re.MULTILINE)}


def metadata(told):
    rows = [("Metadata-Version", "2.1"), ("Name", told["name"]), ("Version", told["version"]), ("Summary", told["description"]),
            ("Requires-Python", told["requires-python"]), *(("Requires-Dist", d) for d in told.get("dependencies", ()))]
    return "".join(f"{name}: {value}\n" for name, value in rows)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    told = project()
    package = next(p.parent for p in sorted(pathlib.Path().glob("*/__init__.py")))
    files = {str(f): f for f in sorted(package.rglob("*")) if f.suffix in (".py", ".pyi", ".typed")}
    tag = "py3-none-any"
    if package.name == "mooncaf":
        files |= {f"mooncaf/{built.name}": built for built in extensions()}
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        tag = f"{python}-{python}-{re.sub('[-.]', '_', sysconfig.get_platform())}"
    stem = f"{told['name'].replace('-', '_')}-{told['version']}"
    about = {"METADATA": metadata(told), "WHEEL": f"Wheel-Version: 1.0\nGenerator: mooncaf\nRoot-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n"}
    programs = "".join(f"{name} = {at}\n" for name, at in project("project.scripts").items())
    if programs:
        about["entry_points.txt"] = "[console_scripts]\n" + programs
    contents = {name: f.read_bytes() for name, f in files.items()} | {f"{stem}.dist-info/{name}": text.encode() for name, text in about.items()}
    name = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        record = ""
        for path, content in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            record += f"{path},sha256={digest},{len(content)}\n"
            _add(wheel, path, content)
        listed = f"{stem}.dist-info/RECORD"
        _add(wheel, listed, (record + f"{listed},,\n").encode())
    return name


def _add(wheel, path, content):
    entry = zipfile.ZipInfo(path)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
    wheel.writestr(entry, content)
