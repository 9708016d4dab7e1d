# What is written back when a cgroup begins to hand the disk out, and when it ceases: by hand, and by Steward. It runs
# in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh ssd 448 0 || exit 1
echo none >/sys/block/nullb0/queue/scheduler
control=/sys/fs/cgroup/cgroup.subtree_control
echo -io >$control
echo +cpu +memory >$control
echo 777 >/proc/sys/vm/dirty_writeback_centisecs
for n in 1 2 3 4; do disk-load buffered --file /timed/writer-$n --mb 40 --seconds 0 >/dev/null; done
sync
for n in 1 2 3 4; do
    mkdir /sys/fs/cgroup/writer-$n
    sh -c "echo \$\$ >/sys/fs/cgroup/writer-$n/cgroup.procs
        exec disk-load buffered --file /timed/writer-$n --mb 40 --seconds 120" >/dev/null &
    eval "writer_$n=$!"
done
# Writes how much the disk takes in four seconds, in KiB.
written() {
    before=$(awk '$3 == "nullb0" { print $10 }' /proc/diskstats)
    sleep 4
    awk -v before="$before" -v what="$1" '$3 == "nullb0" { print what, int(($10 - before) / 2) }' /proc/diskstats
}
hands_out() { grep -qw io $control; }
sleep 4
section stock
written usual
echo +io >$control
written begun
echo -io >$control
sleep 8
start_daemon --mechanism deadline
section steward
sleep 4
written usual
steward domain create desk --io-max 20/s --keep >/dev/null
steward run --domain desk -- sleep 1000 &
wait_for hands_out
written begun
sleep 4
kill -9 $daemon
wait $daemon
sleep 1
written killed
steward revert
hands_out && echo "still handed out"
written reverted
section left
cat /proc/sys/vm/dirty_writeback_centisecs
kill $writer_1 $writer_2 $writer_3 $writer_4
