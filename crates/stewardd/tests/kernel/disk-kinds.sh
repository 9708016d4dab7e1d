# What is said of devices that stand for others or for memory (device-mapper, loop, zram), that nothing is changed of
# them, and that whoever is served first is so through them on the disk below. It runs in the lab's machine, after
# prelude.sh.
sh /lab/timed-disk.sh 5400rpm 128 64 || exit 1
# As on a machine where nobody hands the disk out.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
swapoff /dev/nullb0p2
for module in dm_mod loop zram; do modprobe $module; done
/lab/bin/dmsetup --noudevsync --noudevrules create line \
    --table "0 $(blockdev --getsz /dev/nullb0p2) linear /dev/nullb0p2 0"
dd if=/dev/zero of=/timed/image bs=1M count=60 2>/dev/null
sync
/lab/bin/losetup --direct-io=on /dev/loop0 /timed/image
echo 16M >/sys/block/zram0/disksize
# All that could be changed of them.
settings() {
    for device in dm-0 loop0 zram0; do
        cd /sys/block/$device/queue
        for file in scheduler nr_requests wbt_lat_usec rotational iosched/*; do
            [ -f $file ] && echo "$device $file: $(cat $file 2>&1)"
        done
    done
}
disks() { steward doctor | tr '\n' ' ' | sed 's/  */ /g' | grep -o 'Disk [a-z0-9-]*: [^.]*'; }
section before
settings
section doctor
disks

read_bytes() { sed -n 's/^read_bytes: //p' /proc/$1/io; }
# How many pages one reads in ten seconds, each at a place of its own and none of them from memory.
reads() { # reads COMMAND... DEVICE
    echo 3 >/proc/sys/vm/drop_caches
    "$@" &
    reader=$!
    wait_for '[ $(read_bytes $reader) -gt 0 ]'
    sleep 2
    had=$(read_bytes $reader)
    sleep 10
    echo "$((($(read_bytes $reader) - had) / 4096))"
    kill $reader
}
places='plain:/dev/nullb0p2 line:/dev/dm-0 loop:/dev/loop0'
read_all() {
    for place in $places; do
        echo "${place%%:*} $(reads "$@" dd if=${place#*:} of=/dev/null bs=4096 iflag=direct skip=2000 2>/dev/null)"
    done
}
# Eight that read from the disk itself.
disk-load random-read --file /timed/load --mb 32 --seconds 1 >/dev/null
disk-load random-read --file /timed/load --mb 32 --threads 8 --seconds 100000 >/dev/null &
section stock
read_all

start_daemon --mechanism deadline
steward domain create desk --io interactive --keep >/dev/null
section first
read_all steward run --domain desk --
steward run --domain desk -- sleep 1000 &
wait_for 'grep -q "\[bfq\]" /sys/block/nullb0/queue/scheduler'
section during
settings
section explain
steward explain --domain desk | tr '\n' ' '
echo
disks
section gone
# What they stood on is taken away under them.
losetup -d /dev/loop0
/lab/bin/dmsetup --noudevsync --noudevrules remove line
sleep 2
disks
stop_daemon
