#!/bin/sh
# Makes, inside the guest, a disk whose speed is in the guest's own time: its contents are in memory, and each request
# takes as long as that kind of disk would (null_blk). A disk of the host is no measure where instructions are counted.
#
# Usage: timed-disk.sh 5400rpm|ncq|flash|ssd FILES_MIB SWAP_MIB|zram [ext4|xfs]
# One part of it is a file system at /timed, the other is swap, unless that is 0; with zram, swap is compressed memory
# instead. For xfs its tools must be there (xfsprogs).
# What the disk holds counts in the guest's MemTotal, so it is filled once: it must not take memory later, under
# pressure.
# By hand: lab/shell.sh --icount 3 --memory 2200 --file lab/machine/timed-disk.sh:/lab/timed-disk.sh \
#              --file /usr/sbin/mke2fs:/lab/bin/mke2fs 'sh /lab/timed-disk.sh 5400rpm 64 1024; free -m'
set -eu
kind=$1 files_mib=$2 swap=$3 file_system=${4:-ext4}
fail() {
    echo "timed-disk.sh: $*" >&2
    exit 1
}
case $swap in
zram) swap_mib=0 ;;
*) swap_mib=$swap ;;
esac
# One request at a time and 10 ms for each: 44 MB/s in pieces of 512 KiB, 10 ms for a page wherever it is. The one with
# a queue of its own (ncq) takes 32 and serves them one after the other, in the order in which they came: what such a
# disk gains by choosing among them it does not, and who comes last waits for all of them. Flash takes
# four at a time and 1 ms for each: what it does not do, one CPU of the guest could. Of the fast one the CPU is what is
# waited for as much as the disk.
case $kind in
5400rpm | ncq) speed="completion_nsec=10000000 hw_queue_depth=1 rotational=1" ;;
flash) speed="completion_nsec=1000000 hw_queue_depth=4 rotational=0 mbps=200" ;;
ssd) speed="completion_nsec=100000 hw_queue_depth=4 rotational=0 mbps=500" ;;
*) fail "there is no disk of the kind $kind" ;;
esac

modprobe null_blk nr_devices=0
modprobe mq_deadline
modprobe bfq
grep -q " /sys/kernel/config " /proc/mounts || mount -t configfs configfs /sys/kernel/config
disk=/sys/kernel/config/nullb/nullb0
mkdir "$disk"
size_mib=$((1 + files_mib + swap_mib))
for setting in memory_backed=1 irqmode=2 queue_mode=2 submit_queues=1 blocksize=4096 max_sectors=1024 \
    size=$size_mib $speed power=1; do
    echo "${setting#*=}" >"$disk/${setting%%=*}" || fail "null_blk does not take $setting"
done
# The number of tags is that of the device without an elevator, and 2 with one: then it has nothing to choose from.
# Before it is filled: filled without, the flash disk serves a save beside writers two to three times as late.
# A disk that has just come takes no elevator for a moment.
give_places() {
    tries=0
    until echo mq-deadline 2>/dev/null >"/sys/block/$1/queue/scheduler"; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "$1 takes no elevator"
        sleep 0.1
    done
    echo 128 >"/sys/block/$1/queue/nr_requests"
}
give_places nullb0
dd if=/dev/zero of=/dev/nullb0 bs=1M count="$size_mib" oflag=direct 2>/dev/null || fail "the disk cannot be filled"
name=nullb0 part=nullb0p
if [ "$kind" = ncq ]; then
    # A SCSI disk before it, through the kernel's own target: what it is given goes to that one in turn. Nobody outside
    # is to order what is within it: nothing does, and Steward is told to leave that one alone.
    echo none >/sys/block/nullb0/queue/scheduler
    echo 0 >/sys/block/nullb0/queue/wbt_lat_usec
    mkdir -p /etc/steward
    printf '[disk.devices]\nnullb0 = "keep"\n' >>/etc/steward/steward.toml
    for module in sd_mod target_core_iblock tcm_loop; do modprobe "$module"; done
    target=/sys/kernel/config/target
    store=$target/core/iblock_0/disk port=$target/loopback/naa.6001405000000001/tpgt_1
    mkdir -p "$store"
    echo "udev_path=/dev/nullb0" >"$store/control"
    echo 1 >"$store/enable"
    echo 0 >"$store/attrib/is_nonrot"
    mkdir -p "$port/lun/lun_0"
    echo naa.6001405000000002 >"$port/nexus"
    ln -s "$store" "$port/lun/lun_0/port"
    name=sda part=sda
    tries=0
    until [ -e /sys/block/sda/queue/scheduler ] && [ -b /dev/sda ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "the kernel makes no disk of its target"
        sleep 0.1
    done
    echo 32 >/sys/block/sda/device/queue_depth
    echo 512 >/sys/block/sda/queue/max_sectors_kb
    give_places sda
fi

# A partition table as the kernel reads it (block/partitions/msdos.c), in blocks of 4 KiB from the first MiB on.
number() { # number N: its 4 bytes, the lowest first
    printf '\\%03o\\%03o\\%03o\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255))
}
partition() { # partition TYPE FIRST COUNT
    printf '\\000\\000\\000\\000\\%03o\\000\\000\\000%s%s' "$1" "$(number "$2")" "$(number "$3")"
}
table=/run/lab/partitions
{
    head -c 446 /dev/zero
    printf "$(partition 131 256 $((files_mib * 256)))"
    if [ "$swap_mib" -gt 0 ]; then
        printf "$(partition 130 $((256 + files_mib * 256)) $((swap_mib * 256)))"
    else
        head -c 16 /dev/zero
    fi
    head -c 32 /dev/zero
    printf '\125\252'
    head -c 3584 /dev/zero
} >"$table"
dd if="$table" of=/dev/$name bs=4096 count=1 oflag=direct 2>/dev/null
rm "$table"
blockdev --rereadpt /dev/$name

# Everything is written now: what ext4 puts off would be written beside the experiment.
case $file_system in
ext4) /lab/bin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "/dev/${part}1" ;;
xfs) modprobe xfs && mkfs.xfs -q -f -K "/dev/${part}1" ;;
*) fail "there is no file system $file_system" ;;
esac
mkdir -p /timed
mount -t "$file_system" -o noatime "/dev/${part}1" /timed
[ "$swap" = 0 ] && exit
if [ "$swap" = zram ]; then
    modprobe zram
    echo lz4 >/sys/block/zram0/comp_algorithm
    # As much as people give it: the memory itself. What it holds takes room there.
    echo "$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)K" >/sys/block/zram0/disksize
    swap_on=/dev/zram0
else
    swap_on=/dev/${part}2
fi
mkswap "$swap_on" >/dev/null
swapon "$swap_on"
