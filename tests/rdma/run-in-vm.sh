#!/usr/bin/env bash
# Boots a virtual machine with two Soft-RoCE (rdma_rxe) rails and runs what needs an RDMA device in it.
#
#   tests/rdma/run-in-vm.sh --build build                      all stages
#   tests/rdma/run-in-vm.sh --build build --stages conformance,rails
#   tests/rdma/run-in-vm.sh --build build --stages serving --model FILE.gguf --limit 900   (default: random weights)
#   tests/rdma/run-in-vm.sh --build build --stages figures --cpus 1 --limit 600            beside perftest; only when asked for
#
# Figures want one processor: between two emulated ones a wake-up costs milliseconds, which no real machine knows.
# Needs QEMU (examples/install_packages.sh --tests); no KVM, no root, and nothing of the host's kernel. The kernel package is fetched once into ~/.cache/mooncaf/kernel.
# Exit: 0 passed, 77 skipped (no QEMU, or no kernel can be had), else failed. A hang or a panic is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build
stages=
limit=500
cpus=2
model=
while (($#)); do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --stages) stages=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    --cpus) cpus=$2; shift 2 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run-in-vm.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done
fake_driver=$build/tests/support/simt/libcuda.so.1
python=/usr/bin/python3
python_extension=$build/storage/python/_store$($python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))' 2>/dev/null) || true
[[ -e $python_extension ]] || python_extension=
if [[ -z $stages ]]; then
  stages=conformance,rails,groups,serving,device,store
  [[ -n $python_extension ]] || { stages=${stages/,store/}; echo "no stage store: the Python package is not built, or for another Python than the system's"; }
  [[ -e $fake_driver ]] || { stages=${stages/,device/}; echo "no stage device: its GPU needs a build with nvcc"; }
fi
want() { [[ ,$stages, == *,$1,* ]]; }

skip() {
  printf '\n******** SKIPPED: the RDMA tests did not run: %s ********\n' "$1"
  exit 77
}
for tool in qemu-system-x86_64 busybox modprobe depmod cpio rdma ibv_devinfo; do
  command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
    skip "$tool is missing (examples/install_packages.sh --tests)"
done
export PATH=$PATH:/usr/sbin:/sbin

# ---- kernel ----------------------------------------------------------------------------------------------------------

cache=${XDG_CACHE_HOME:-$HOME/.cache}/mooncaf/kernel
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if ! compgen -G "$cache/root/boot/vmlinuz-*" >/dev/null; then
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -1)
  [[ -n $package ]] || skip "apt knows no kernel package"
  (cd "$cache" && { compgen -G "$package"_*.deb >/dev/null || apt-get download "$package"; }) || skip "$package cannot be downloaded"
  rm -rf "$cache/unpacked"
  dpkg -x "$cache/$package"_*.deb "$cache/unpacked"
  depmod -b "$cache/unpacked" "$(ls "$cache/unpacked/lib/modules")"
  rm -rf "$cache/root"
  mv "$cache/unpacked" "$cache/root"
fi
flock -u 9
version=$(ls "$cache/root/lib/modules")
kernel=$cache/root/boot/vmlinuz-$version

# ---- what runs in it -------------------------------------------------------------------------------------------------

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,lib64,etc/libibverbs.d,tests,modules}

copy_libraries() {  # of one binary, with the loader, to the same places
  local library
  while read -r library; do
    [[ -e $root$library ]] || install -D "$library" "$root$library"
  done < <(ldd "$1" 2>/dev/null | grep -o '/[^ ]*')
}
add_binary() {  # source target
  install -D "$1" "$root$2"
  strip --strip-debug "$root$2" 2>/dev/null || true
  copy_libraries "$1"
}

cp "$(command -v busybox)" "$root/bin/busybox"
add_binary "$(command -v ip)" /usr/sbin/ip
add_binary "$(command -v rdma)" /usr/sbin/rdma
add_binary "$(command -v ibv_devinfo)" /usr/bin/ibv_devinfo
providers=/usr/lib/x86_64-linux-gnu/libibverbs
for provider in "$providers"/librxe*.so; do
  install -D "$provider" "$root$provider"
  copy_libraries "$provider"
done
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
cp tests/rdma/init.sh "$root/init"
cp tests/rdma/guest.sh "$root/guest.sh"
chmod +x "$root/init"
echo "$stages" >"$root/stages"

for module in udp_tunnel ip6_udp_tunnel ib_core ib_uverbs crc32_generic rdma_rxe veth; do
  modprobe -d "$cache/root" -S "$version" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
  cp "$file" "$root/modules/"
  echo "/modules/$(basename "$file")" >>"$root/modules.txt"
done

if want conformance; then add_binary "$build/tests/rdma/mooncaf_rdma_conformance_tests" /tests/conformance; fi
if want rails; then
  add_binary "$build/tests/rdma/mooncaf_rdma_rails_tests" /tests/rails
  add_binary "$build/tests/transport/mooncaf_transport_peer" /tests/transport_peer
fi
if want groups; then add_binary "$build/tests/rdma/mooncaf_rdma_ranks_tests" /tests/groups; fi
if want figures; then
  add_binary "$build/tests/rdma/mooncaf_rdma_bench" /tests/bench
  for tool in ib_write_bw ib_read_bw ib_write_lat ib_send_lat; do add_binary "$(command -v $tool)" /usr/bin/$tool; done
fi
if want device; then add_binary "$fake_driver" /tests/driver/libcuda.so.1; fi
if want store; then  # the package, and what it and the stage import of the system's Python
  mkdir -p "$root/tests/python"
  cp -r storage/python/mooncaf storage/python/compat/mooncake tests/rdma/store_stage.py "$root/tests/python"
  cp "$python_extension" "$root/tests/python/mooncaf"
  copy_libraries "$python_extension"
  add_binary "$(readlink -f $python)" /usr/bin/python3
  PYTHONPATH=$root/tests/python PYTHONDONTWRITEBYTECODE=1 $python - <<'END' | grep '^/usr/lib' | while read -r file; do
import encodings.ascii, encodings.idna, encodings.latin_1, selectors, sys, store_stage
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None), getattr(module, "__cached__", None), sep="\n")
END
    install -D "$file" "$root$file"
    [[ $file != *.so ]] || copy_libraries "$file"
  done
fi
if want serving || want device || want store; then
  add_binary "$build/actors/mooncaf" /tests/mooncaf
  if [[ -n $model ]]; then
    cp "$model" "$root/model.gguf"
    echo /model.gguf >"$root/model"
  else
    echo "dummy:layers=4,dim=256,heads=8,kv_heads=4,ffn=512,vocab=512,ctx=1024" >"$root/model"
  fi
fi

# Not compressed: the machine below unpacks slower than it is given bytes.
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initrd"

# ---- the machine -----------------------------------------------------------------------------------------------------

log=$build/rdma-vm.log
echo "kernel $version, initramfs $(($(stat -c %s "$work/initrd") >> 20)) MiB, stages $stages"
begin=$SECONDS
# Emulated: /dev/kvm exists on some hosts and hangs there. The time stamp counter, or else reading the clock is a trip
# into the emulator.
timeout --foreground "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "$cpus" -m 3G -kernel "$kernel" \
  -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc" -nographic -no-reboot -nic none </dev/null 2>&1 |
  tr -d '\r' | tee "$log" || true
printf 'virtual machine: %d s\n' $((SECONDS - begin))

# Each stage prints one line; a machine that hung or panicked lacks some.
failed=0
for stage in ${stages//,/ }; do
  grep -q "^GUEST: $stage passed" "$log" || { echo "RDMA stage $stage: FAILED"; failed=1; }
done
grep -q "^GUEST: closing" "$log" || { echo "the virtual machine did not reach its end"; failed=1; }
((failed == 0)) && echo "RDMA in the virtual machine: all stages passed"
exit $failed
