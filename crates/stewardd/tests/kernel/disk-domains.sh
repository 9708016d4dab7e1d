# What a domain is given of the disk: that what is in the background gives way and a fraction is had, on a real kernel,
# and what is left of that when its reason is gone, when the daemon is killed, and when it stops. It runs in the lab's
# machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 64 0 || exit 1
queue=/sys/block/nullb0/queue
order() { echo "$(sed 's/.*\[\(.*\)\].*/\1/' $queue/scheduler) with $(cat $queue/nr_requests)"; }
is_ordered() { grep -q '\[bfq\]' $queue/scheduler; }
weight() { echo "$1: $(cat /sys/fs/cgroup/steward.$1/io.bfq.weight 2>/dev/null || echo none)"; }
# Reads a page after the other from there on; each takes the disk 10 ms, wherever it is.
reads() { echo "dd if=/dev/nullb0 of=/dev/null bs=4096 iflag=direct skip=$1"; }
read_bytes() { sed -n 's/^read_bytes: //p' /proc/$1/io; }
# How many pages each of two has read in half a minute: in ten seconds what is due a tenth had 0.09, 0.09 and 0.22 of
# them. The elevator has what was given count within some seconds.
compare() {
    sleep 10
    one=$(read_bytes $1) other=$(read_bytes $2)
    sleep 30
    echo "first $((($(read_bytes $1) - one) / 4096))"
    echo "second $((($(read_bytes $2) - other) / 4096))"
}

# Whether the root hands the disk out.
hands_out() {
    echo "hands out: $(grep -cw io /sys/fs/cgroup/cgroup.subtree_control)"
}

# As on a machine where nobody hands the disk out.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
section before
order
start_daemon --mechanism deadline
steward domain create usual --keep >/dev/null
steward domain create batch --keep >/dev/null
steward run --domain usual -- $(reads 0) 2>/dev/null &
usual=$!
steward run --domain batch -- $(reads 6000) 2>/dev/null &
batch=$!
wait_for "grep -q $batch /sys/fs/cgroup/steward.batch/cgroup.procs"
sleep 1
section alike
order
compare $usual $batch

steward set batch --io background >/dev/null
wait_for is_ordered
wait_for 'grep -q "default 10$" /sys/fs/cgroup/steward.batch/io.bfq.weight'
section background
order
weight batch
weight usual
compare $usual $batch
grep -H . $queue/iosched/strict_guarantees
steward domain show batch | grep -i disk

section fraction
# Another one: whoever was served with a small weight is behind for as long as its queue is never empty.
kill $batch
steward domain create half --io-fraction 50% --keep >/dev/null
steward run --domain half -- $(reads 9000) 2>/dev/null &
half=$!
wait_for 'grep -q "default 300$" /sys/fs/cgroup/steward.half/io.bfq.weight'
weight half
compare $usual $half
kill $usual $half
wait_for '! is_ordered'
wait_for '! test -e /sys/fs/cgroup/steward.half/io.bfq.weight'
section left-by-all
order
hands_out

# Three that come first by their weights and take all that there is, beside one that does not.
section first
for name in a b c; do
    steward domain create $name --io interactive --keep >/dev/null
    steward run --domain $name -- $(reads 1000) 2>/dev/null &
    greedy="$greedy $!"
done
steward run --domain usual -- $(reads 9000) 2>/dev/null &
usual=$!
for name in a b c; do
    wait_for "grep -q 'default 1000$' /sys/fs/cgroup/steward.$name/io.bfq.weight"
    weight $name
done
ionice -p ${greedy##* }
lost() { grep -o 'decision="disk-set-back".*' /tmp/log | grep -c 'disk="nullb0"'; }
wait_for '[ $(lost) -gt 0 ]'
echo "lost $(lost)"
weights() { for name in a b c; do weight $name; done; }
wait_for 'weights | grep -q "default 100$"'
weights | grep 'default 100$'
kill $greedy $usual
wait_for '! is_ordered'
wait_for '! test -e /sys/fs/cgroup/steward.a/io.bfq.weight'

# One program after the other in a domain that comes first, which nobody there has started, beside one in the
# background.
section short-lived
lost_together() { grep -o 'decision="disk-set-back".*' /tmp/log | grep 'cgroup="steward.a"'; }
in_a() { sh -c "echo \$\$ >/sys/fs/cgroup/steward.a/cgroup.procs; exec $(reads $1) count=20" 2>/dev/null; }
one_after_the_other() { while :; do in_a $1; done; }
steward run --domain batch -- $(reads 9000) 2>/dev/null &
batch=$!
one_after_the_other 1000 &
one=$!
one_after_the_other 3000 &
other=$!
wait_for 'weight a | grep -q "default 1000$"'
weight a
wait_for lost_together
lost_together | head -n 1
wait_for 'weight a | grep -q "default 100$"'
weight a
kill $one $other $batch
wait_for '! pidof dd'
wait_for '! is_ordered'
wait_for '! test -e /sys/fs/cgroup/steward.a/io.bfq.weight'

section limit
steward domain create held --io-max 20/s --keep >/dev/null
steward run --domain held -- $(reads 12000) 2>/dev/null &
held=$!
wait_for 'grep -q "riops=20 wiops=20" /sys/fs/cgroup/steward.held/io.max'
order
one=$(read_bytes $held)
sleep 5
echo "pages $((($(read_bytes $held) - one) / 4096))"
steward set held --io-max default >/dev/null
wait_for '! grep -q riops=20 /sys/fs/cgroup/steward.held/io.max'
steward domain show held | grep -c 'disk at most'
kill $held

steward run --io background -- $(reads 0) 2>/dev/null &
program=$!
wait_for is_ordered
wait_for 'grep -q "default 10$" /sys/fs/cgroup/steward.run-$program/io.bfq.weight'
section run
weight run-$program
section killed
kill -9 $daemon
wait $daemon
order
weight run-$program
start_again() {
    start_daemon --mechanism deadline
    wait_for is_ordered
    wait_for 'grep -q "default 10$" /sys/fs/cgroup/steward.run-$program/io.bfq.weight'
}
start_again
section started-again
weight run-$program
section stopped
stop_daemon
order
hands_out
weight run-$program
start_again
kill -9 $daemon
wait $daemon
section reverted
try steward revert >/dev/null
order
hands_out
weight run-$program
kill $program
