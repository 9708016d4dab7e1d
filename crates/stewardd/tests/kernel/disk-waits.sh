# Who waits for the disk, where, and for whom, as it is told on a real kernel; and how long requests take. It runs in
# the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 200 0 || exit 1
cd /timed
for number in 1 2; do dd if=/dev/zero of=large$number bs=1M count=20 2>/dev/null; done
sync
start_daemon --mechanism deadline
steward domain create editing --keep >/dev/null
steward domain create batch --keep >/dev/null
editing=/sys/fs/cgroup/steward.editing/cgroup.procs
batch=/sys/fs/cgroup/steward.batch/cgroup.procs
# It is counted while somebody asks.
wait_for 'steward explain --domain editing | grep -q "last.*disk requests"'
# Each in a process of its own, until it is told to end.
begin() {
    rm -f /tmp/end
    for number in $2; do
        number=$number sh -c "echo \$\$ >$batch; while ! [ -e /tmp/end ]; do dd if=/dev/zero $1 2>/dev/null; done" &
    done
    sleep 2
}
end() {
    touch /tmp/end
    wait_for '! grep -q . '$batch
}
saves() {
    sh -c "echo \$\$ >$editing; for save in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/timed/saved bs=30k count=1 conv=fsync 2>/dev/null; sleep 0.5; done"
    sleep 2
    steward explain --domain editing
    steward explain --domain editing --json | grep '"reason"'
}

section alone
saves
section direct
begin 'of=/timed/large$number bs=1M count=20 conv=notrunc oflag=direct' '1 2'
saves
steward domain show batch | grep disk
end
section fsync
begin 'of=/timed/small$number bs=4k count=1 conv=fsync,notrunc' '1 2 3 4 5 6 7 8'
saves
end
section buffered
begin 'of=/timed/large$number bs=1M count=40' '1 2 3 4'
sleep 8
steward explain --domain batch
steward domain show batch | grep -i disk
end
stop_daemon
# How often commits wait for data of others: by default, and where blocks that are written later are given out as
# written.
section commits
trace=/sys/kernel/tracing
echo 'p:waited jbd2_journal_finish_inode_data_buffers' >>$trace/kprobe_events
echo 1 >$trace/events/kprobes/waited/enable
count() {
    rm -f large1 large2
    sync
    echo >$trace/trace
    for number in 1 2; do dd if=/dev/zero of=large$number bs=1M count=30 2>/dev/null & done
    for save in 1 2 3 4 5 6; do
        dd if=/dev/zero of=saved bs=30k count=1 conv=fsync 2>/dev/null
        sleep 0.5
    done
    sync
    echo "$1 $(grep -c waited: $trace/trace)"
}
count default
mount -o remount,nodioread_nolock /timed
count without
