# Whose disk requests come first, what orders them, and what is left of that when its reason is gone, when the daemon is
# killed, and when it stops. It runs in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 32 0 || exit 1
queue=/sys/block/nullb0/queue
for file in /proc/[0-9]*/comm; do
    case $(cat "$file") in jbd2/nullb0*) journal=${file#/proc/} journal=${journal%/comm} ;; esac
done
program one
cp /bin/busybox /opt/other/sh
mkdir /opt/waiter
cp /bin/busybox /opt/waiter/dd
{
    row one 5ms/30ms
    printf 'io = "interactive"\n'
    printf '[[spec]]\npath = "/opt/other/sh"\ncpu = "5ms/100ms"\nio = "interactive"\n'
    printf '[[spec]]\npath = "/opt/waiter/dd"\ncpu = "5ms/100ms"\nio = "interactive"\n'
    printf '[[spec]]\npath = "[jbd2]"\ncpu = "10ms/100ms"\nrevocable = false\nio = "interactive"\n'
} >$specs/a.toml
priority() { echo "$1: $(ionice -p "$2")"; }
order() { echo "$(sed 's/.*\[\(.*\)\].*/\1/' $queue/scheduler) with $(cat $queue/nr_requests)"; }
is_ordered() { grep -q '\[bfq\]' $queue/scheduler; }

section before
order
priority journal $journal
start_daemon
section nobody-interactive
sleep 2
order
priority journal $journal

steward run -- /opt/one/sleep 1000 &
player=$!
tuned() { grep . $queue/iosched/strict_guarantees $queue/iosched/slice_idle_us $queue/iosched/low_latency; }
stays_idle() { grep -q 2000 $queue/iosched/slice_idle_us; }
# As it is set first it is for somebody who waits.
is_settled() { [ "$(cat $queue/iosched/strict_guarantees) $(cat $queue/iosched/slice_idle_us)" = "0 0" ]; }
wait_for is_ordered
wait_for is_settled
wait_for 'ionice -p $player | grep -q realtime'
section interactive
order
tuned
priority player $player
priority journal $journal

# One request after the other, for as long as it is not found to take the disk for itself, beside somebody else's.
section while-one-waits
dd if=/dev/nullb0 of=/dev/null bs=4096 iflag=direct skip=4000 2>/dev/null &
other=$!
steward run -- /opt/waiter/dd if=/dev/nullb0 of=/dev/null bs=4096 iflag=direct 2>/dev/null &
waiter=$!
wait_for stays_idle
tuned
kill $waiter $other
wait_for '! stays_idle'
section after-the-wait
tuned
priority journal $journal

# What an interactive program starts.
steward run -- /opt/other/sh -c '/bin/busybox sleep 1000 & echo $! >/tmp/child; while :; do sleep 1; done' &
shell=$!
wait_for 'test -s /tmp/child'
child=$(cat /tmp/child)
wait_for 'ionice -p $shell | grep -q realtime'
# One that is started when its parent has the priority.
kill $child $shell
cat >/tmp/starts <<'SCRIPT'
/bin/busybox sleep 3
/bin/busybox sleep 1000 &
echo $! >/tmp/heir
# One of whom nobody is left that started it, and one that never executes a program.
/bin/busybox sh -c '/bin/busybox sleep 1000 & echo $! >/tmp/orphan; (while :; do read word </tmp/never; done) & echo $! >/tmp/forked'
while :; do /bin/busybox sleep 1; done
SCRIPT
mkfifo /tmp/never
steward run -- /opt/other/sh /tmp/starts &
shell=$!
wait_for 'test -s /tmp/forked'
heir=$(cat /tmp/heir) orphan=$(cat /tmp/orphan) forked=$(cat /tmp/forked)
sleep 1
section heir
priority parent $shell
priority heir $heir
priority orphan $orphan
priority forked $forked
kill $shell $heir $orphan $forked

# By its first request: an elevator would go by what it had then for as long as it has others under way.
section first-request
weight=$(steward run --io interactive -- sh -c 'ionice -p $$ >/tmp/first; cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/io.bfq.weight')
cat /tmp/first
echo "weight ${weight#default }"

# Two that are served first and want all of the disk, beside one that is not: each request takes 10 ms.
section nobody-is-kept-out
reads() { echo "dd if=/dev/nullb0 of=/dev/null bs=4096 iflag=direct skip=$1"; }
pages() { echo $(($(sed -n 's/^read_bytes: //p' /proc/$1/io) / 4096)); }
lost() { grep 'decision="disk-set-back"' /tmp/log | grep -c 'disk="nullb0"'; }
before=$(lost)
$(reads 6000) 2>/dev/null &
patient=$!
steward run -- /opt/waiter/$(reads 1000) 2>/dev/null &
one=$!
steward run -- /opt/waiter/$(reads 3000) 2>/dev/null &
other=$!
wait_for 'ionice -p $one | grep -q realtime'
wait_for 'ionice -p $other | grep -q realtime'
had=$(pages $patient)
sleep 8
echo "patient $(($(pages $patient) - had))"
echo "lost $(($(lost) - before))"
priority one $one
priority other $other
kill $patient $one $other

# The same with one program after the other, of which none is there for two looks.
section nor-by-short-lived-ones
before=$(lost)
one_after_the_other() {
    exec steward run -- /opt/other/sh -c "while :; do /opt/waiter/$(reads $1) count=20 2>/dev/null; done"
}
$(reads 6000) 2>/dev/null &
patient=$!
one_after_the_other 1000 &
one=$!
one_after_the_other 3000 &
other=$!
wait_for '[ $(lost) -gt $before ]'
had=$(pages $patient)
sleep 8
echo "patient $(($(pages $patient) - had))"
echo "lost $(($(lost) - before))"
grep -o 'decision="disk-set-back".*' /tmp/log | tail -n 1
for each in $(pidof dd); do [ $each = $patient ] || priority short-lived $each; done
kill $patient $one $other
wait_for '! pidof dd'

# A disk that comes while somebody is served first, goes, and comes again.
section plugged
plugged=/sys/kernel/config/nullb/nullb1
mkdir $plugged
for setting in memory_backed=1 irqmode=0 queue_mode=2 submit_queues=1 hw_queue_depth=1 rotational=1 size=8; do
    echo "${setting#*=}" >$plugged/${setting%%=*}
done
elevator() { sed 's/.*\[\(.*\)\].*/\1/' /sys/block/nullb1/queue/scheduler; }
for each in 1 2; do
    echo 1 >$plugged/power
    wait_for 'elevator | grep -q bfq'
    echo "$each is given $(elevator)"
    [ $each = 2 ] || echo 0 >$plugged/power
    sleep 2
done
grep -c 'decision="disk-ordered".*device="nullb1"' /tmp/log

section chosen
steward run -- /opt/one/sleep 1000 &
own=$!
ionice -c 3 -p $own
sleep 2
priority own $own

section killed
kill -9 $daemon
wait $daemon
order
priority player $player
start_daemon
section started-again
wait_for is_ordered
wait_for 'ionice -p $player | grep -q realtime'
grep -c 'decision="reverted"' /tmp/log
priority player $player
section left-by-all
kill $player $own
wait_for '! is_ordered'
# One after the other.
wait_for '! elevator | grep -q bfq'
order
echo "the plugged one: $(elevator)"
priority journal $journal
steward run -- /opt/one/sleep 1000 &
player=$!
wait_for is_ordered
section somebody-else-chose
# The kernel refuses it while the daemon's own choice is still under way.
wait_for 'echo mq-deadline >$queue/scheduler'
sleep 2
order
kill $player
sleep 3
order
# A kernel without the first elevator.
section second-before
# Until the daemon has forgotten that somebody else chose.
sleep 35
wait_for 'echo none >$queue/scheduler'
wait_for 'rmmod bfq'
find /lib/modules -name 'bfq.ko*' -exec mv {} /tmp/ \;
sed -i '/bfq\.ko/d' /lib/modules/*/modules.dep
order
steward run -- /opt/one/sleep 1000 &
player=$!
section second
wait_for 'order | grep -q "mq-deadline with 1024"'
wait_for 'ionice -p $player | grep -q realtime'
order
priority player $player
steward doctor
kill $player
section second-left
wait_for 'order | grep -q "^none"'
order
section stopped
steward run -- /opt/one/sleep 1000 &
player=$!
wait_for 'ionice -p $player | grep -q realtime'
stop_daemon
priority player $player
priority journal $journal
