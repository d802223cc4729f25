#!/bin/busybox sh
# First process of the virtual machine: brings up two Soft-RoCE rails, runs /guest.sh, powers off.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /dev/shm /dev/pts
/bin/busybox mount -t tmpfs shm /dev/shm
/bin/busybox --install -s /bin
# The real ones, not busybox's applets of the same name.
export PATH=/usr/sbin:/usr/bin:/bin
while read -r module; do insmod "$module" || echo "GUEST: cannot load $module"; done < /modules.txt
/usr/sbin/ip link set lo up
for n in 0 1; do
  /usr/sbin/ip link add "v$n" mtu 4200 type veth peer name "w$n" mtu 4200
  /usr/sbin/ip addr add "10.7.$n.1/24" dev "v$n"
  /usr/sbin/ip link set "v$n" up
  /usr/sbin/ip link set "w$n" up
  /usr/sbin/rdma link add "rxe$n" type rxe netdev "v$n" || echo "GUEST: no rxe$n"
done
# The port becomes active with the link; a bound, not a wait.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && grep -q ACTIVE /sys/class/infiniband/rxe1/ports/1/state && break
  usleep 200000
done
ulimit -l unlimited
ulimit -n 65536  # a region backed by shared memory keeps a descriptor
sh /guest.sh
echo "GUEST: closing"
poweroff -f
