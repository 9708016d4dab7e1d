# What is made of a disk that does not rotate and takes several requests at a time: that it can be calibrated, that
# domains are charged by that, and what is left of it when the daemon is killed. It runs in the lab's machine, after
# prelude.sh.
sh /lab/timed-disk.sh flash 192 0 || exit 1
number=$(cat /sys/block/nullb0/dev)
line() { grep "^$number " "/sys/fs/cgroup/io.cost.$1" || echo "nothing of $1"; }
lines() { line qos; line model; }
weight() { echo "$1: $(cat "/sys/fs/cgroup/steward.$1/$2" 2>/dev/null || echo none)"; }
is_charged() { line qos | grep -q enable=1; }
order() { sed 's/.*\[\(.*\)\].*/\1/' /sys/block/nullb0/queue/scheduler; }
calibrate() { try steward disk calibrate "$@" 2>&1; }
# As on a machine where nobody hands the disk out, and whose owner has chosen no elevator.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
echo none >/sys/block/nullb0/queue/scheduler
# As a disk of a virtual machine does, whatever it is.
echo 1 >/sys/block/nullb0/queue/rotational

section before
lines
order
section refused
calibrate /proc
calibrate /tmp
calibrate nowhere
mount -o remount,ro /timed
calibrate /timed
calibrate nullb0
mount -o remount,rw /timed
dd if=/dev/zero of=/timed/full bs=1M count=120 2>/dev/null
calibrate /timed
rm /timed/full
try su user -c 'steward disk calibrate /timed' 2>&1
disk-load random-read --file /timed/other --mb 8 --seconds 60 >/dev/null &
other=$!
sleep 1
calibrate /timed
kill $other
rm /timed/other
# An ordinary user who takes the CPU.
su user -c 'busy-loops --count 3 --delay 0 --seconds 60' >/dev/null 2>&1 &
wait_for 'pidof busy-loops'
calibrate /timed
kill -9 $(pidof busy-loops)
# Stopped in the middle of it: a second after its requests have begun, those of two seconds count.
reads() { awk '{ print $1 }' /sys/block/nullb0/stat; }
steward disk calibrate /timed >/tmp/said 2>&1 &
one=$!
wait_for 'grep -q "reading large" /tmp/said'
before=$(reads)
wait_for '[ $(reads) -gt $((before + 8)) ]'
sleep 1
kill -STOP $one
sleep 4
kill -CONT $one
wait $one
echo "exit code $?"
tail -n 1 /tmp/said
# Requests that do not come to the disk, because the cache of a loop device's file answers them.
modprobe loop
dd if=/dev/zero of=/timed/image bs=1M count=125 2>/dev/null
losetup /dev/loop0 /timed/image
/lab/bin/mke2fs -q -F -t ext4 /dev/loop0
mkdir /tmp/loop
mount /dev/loop0 /tmp/loop
calibrate /tmp/loop
umount /tmp/loop
losetup -d /dev/loop0
rm /timed/image
# What is limited for this command.
echo +io >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/limited
echo "$number riops=1000" >/sys/fs/cgroup/limited/io.max
calibrate_in() { sh -c 'echo $$ >"$0/cgroup.procs"; exec steward disk calibrate /timed' "$1" 2>&1; }
try calibrate_in /sys/fs/cgroup/limited
rmdir /sys/fs/cgroup/limited
echo -io >/sys/fs/cgroup/cgroup.subtree_control
ls -A /timed /var/lib/steward 2>/dev/null
df /timed | sed -n '$s/ \+/ /gp' >/tmp/free-before

# Ended in the middle of it.
section interrupted
steward disk calibrate /timed 2>/tmp/said &
one=$!
wait_for 'grep -q "reading pages" /tmp/said'
kill -9 $one
wait $one 2>/dev/null
sleep 1
df /timed | sed -n '$s/ \+/ /gp' | cmp - /tmp/free-before && echo "all room is free again"
ls -A /timed

start_daemon --mechanism deadline
section calibrated
# Meanwhile somebody calibrates another disk.
way='"bytes_per_second": 500000000, "sequential_per_second": 22000, "random_per_second": 22000'
other='"identity": "wwid other", "name": "sdq", "measured_at": 7'
while_measuring() {
    wait_for 'grep -q "writing pages" /tmp/said'
    echo "{\"schema\": 1, \"disks\": [{$other, \"model\": {\"read\": {$way}, \"write\": {$way}}}]}" >/var/lib/steward/disks.json
}
: >/tmp/said
while_measuring &
steward disk calibrate nullb0 >/tmp/said 2>&1
echo "exit code $?"
tail -n 4 /tmp/said
try steward disk forget "wwid other"
cat /var/lib/steward/disks.json
df /timed | sed -n '$s/ \+/ /gp' | cmp - /tmp/free-before && echo "all room is free again"
lines
section told
cat /sys/block/nullb0/queue/rotational
steward doctor | grep -A 6 'Disk nullb0'
steward status

steward domain create desk --io interactive --keep >/dev/null
steward domain create batch --io background --keep >/dev/null
reads() { echo "disk-load random-read --file /timed/$1 --mb 16 --threads $2 --seconds 600"; }
# As many at a time as keep the disk busy by themselves, also while some of them wait for the CPU: what a domain leaves,
# another one has.
steward run --domain desk -- $(reads one 16) >/dev/null 2>&1 &
first=$!
steward run --domain batch -- $(reads two 4) >/dev/null 2>&1 &
second=$!
wait_for is_charged
wait_for 'grep -q "default 10$" /sys/fs/cgroup/steward.batch/io.weight'
section charged
lines
order
weight desk io.weight
weight batch io.weight
steward status | grep 'Disk nullb0'
steward explain --domain batch | grep nullb0
sleep 2
read_bytes() { sed -n "s/^$number rbytes=\([0-9]*\) .*/\1/p" /sys/fs/cgroup/steward.$1/io.stat; }
one=$(read_bytes desk) two=$(read_bytes batch)
sleep 5
echo "desk $((($(read_bytes desk) - one) / 4096))"
echo "batch $((($(read_bytes batch) - two) / 4096))"
calibrate nullb0

# Forgotten, and found again.
section forgotten
cp /var/lib/steward/disks.json /tmp/disks.json
try su user -c 'steward disk forget nullb0' 2>&1
try steward disk forget /timed
wait_for '! is_charged'
lines
# Of what nobody has found anything else, it is believed that it rotates.
wait_for 'test "$(order)" = bfq'
try steward disk forget nullb0 2>&1
cp /tmp/disks.json /var/lib/steward/disks.json
steward reload >/dev/null
wait_for is_charged
section found-again
order
lines

section killed
kill -9 $daemon
wait $daemon 2>/dev/null
lines
section reverted
steward revert >/dev/null
echo "exit code $?"
lines
weight batch io.weight
kill $first $second
