#!/usr/bin/env bash
# Installs the Debian 12 packages that mooncaf needs to build and run. Does nothing, quickly, where all are there.
#
#   examples/install_packages.sh            what the server needs
#   examples/install_packages.sh --tests    and what its tests need: clang for the fuzz targets, Chromium, Prometheus, QEMU,
#                                           and PyPI's Mooncake Store in a folder of its own, to compare with
#
# Needs root or sudo only if something is missing.
set -euo pipefail

build_tools=(g++ cmake ninja-build ccache mold pkg-config ca-certificates)
libraries=(
  libcaf-dev           # actors
  librocksdb-dev       # SSD tier
  libssl-dev           # cluster secret, TLS of links and of the API
  libicu-dev           # tokenizer's Unicode
  libxxhash-dev        # block keys and checksums
  libexpected-dev      # result<T>
  nlohmann-json3-dev libspdlog-dev prometheus-cpp-dev
  libboost-dev libboost-system-dev
  libzmq3-dev libmsgpack-cxx-dev  # news that engines publish of their caches
  libibverbs-dev
  pybind11-dev python3-dev  # Python package of the object store
  doctest-dev
)
script_tools=(openssl python3 python3-pip python3-venv unzip curl iproute2 procps)
test_tools=(
  clang-14 libclang-rt-14-dev   # fuzz targets
  clang-format-14 clang-tidy-16 # the form of the sources, and tests/nightly.sh
  chromium chromium-driver     # opens the live page, and pages of other origins
  prometheus                   # scrapes a cluster with our configuration, and judges its alarms
  dpkg-dev fakeroot gzip groff-base man-db systemd  # the Debian package: its dependencies, pages and units
  openssh-client openssh-server # mooncaf up over ssh, to an sshd of the test's own
  qemu-system-x86 busybox-static kmod cpio rdma-core ibverbs-providers ibverbs-utils perftest  # RDMA in a virtual machine
)

# The Python package whose answers ours are compared with (tests/integration/store_reference.py), and what tests of both need. It
# provides the same module names as ours, so it lies in a folder that no interpreter looks into by itself.
reference=mooncake-transfer-engine-non-cuda==0.3.13.post1
reference_folder=${XDG_CACHE_HOME:-$HOME/.cache}/mooncaf/reference-store
install_reference() {
  [[ ! -e $reference_folder/complete || ! -e $reference_folder/safetensors ]] || return 0
  echo "- downloading $reference"
  rm -rf "$reference_folder"
  if python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$reference_folder" "$reference" numpy safetensors; then
    touch "$reference_folder/complete"
  else
    echo "install_packages: $reference cannot be installed; what compares with it will be skipped" >&2
  fi
}

packages=("${build_tools[@]}" "${libraries[@]}" "${script_tools[@]}")
at_end=true
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=("${test_tools[@]}"); at_end=install_reference ;;
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "install_packages: unknown argument '$argument' (known: --tests, --help)" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages: this script knows Debian's packages only; install these by hand: ${packages[*]}" >&2
  exit 1
fi

declare -A installed=()
while read -r status package; do
  [[ $status == installed ]] && installed[$package]=1
done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null)

missing=()
for package in "${packages[@]}"; do
  [[ -n ${installed[$package]:-} ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  $at_end
  echo "all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_packages: not root and no sudo; install as root: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
echo "- reading the package lists"
"${apt[@]}" -qq update
echo "- downloading and unpacking"
"${apt[@]}" install -y -q --no-install-recommends "${missing[@]}" |
  while IFS= read -r line; do
    case "$line" in
      Get:* | Setting\ up\ *) printf '  %s\n' "$line" ;;
    esac
  done
$at_end
echo "all ${#packages[@]} packages are installed"
