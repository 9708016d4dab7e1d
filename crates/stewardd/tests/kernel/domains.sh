# Domains on a real kernel: their shares, their life, and what a restart and a stop leave of them.
# It runs in the lab's machine, after prelude.sh.
reservations() { steward domain list --json; }
place() { sed -n 's/^0:://p' /proc/$1/cgroup; }

start_daemon
section created
try steward domain create a --cpu 60% --own-weight 300 --keep
try steward domain create a/child --cpu 50% --keep
try steward domain create b --cpu 30%
try steward domain create too-much --cpu 10%
ls -d /sys/fs/cgroup/steward.*

# Two loops in each, so that both always want more than they have. With more, each of b's would wait for more than nine
# tenths of the time, and what it wants would be told from its whole life, its start included (docs/forecasts.md).
section entered
for name in a b; do
    for each in 1 2; do
        steward run --domain $name -- busy-loops --loop &
        pids="$pids $!"
    done
    eval "in_$name=$!"
done
for pid in $pids; do wait_for "place $pid | grep -q steward"; done
place $in_a
place $in_b
steward domain show --pid $in_b
sleep 1
section before
reservations
sleep 6
section after
reservations
# Both are always behind others, and get what they were promised.
section kept
steward status b --json
section kept-in-words
steward status b
# To explain why one waits the daemon has loaded what counts disks, which takes seconds of this CPU; and of a loop that
# waits for long in one piece it is known only once it runs again.
sleep 8
section forecast
steward forecast --json
# What the kernel puts ahead of all domains takes from b's promise.
section behind-a-deadline
busy-loops --count $(nproc) --deadline 75ms/100ms --seconds 6
section broken
steward status b --json
kill -9 $pids
section ended
wait_for '! steward domain show b'
ls -d /sys/fs/cgroup/steward.*

# A program that ends soon, again and again: what the kernel counts for its cgroup and the time, before and after eight
# forecasts.
cat >/opt/brief <<'PROGRAM'
#!/bin/sh
i=0
while [ $i -lt 3000 ]; do i=$((i + 1)); done
PROGRAM
chmod +x /opt/brief
counted() { sed -n 's/usage_usec //p' /sys/fs/cgroup/steward.brief/cpu.stat; cut -d ' ' -f 1 /proc/uptime; }
steward run --create --domain brief -- sh -c 'while :; do /opt/brief; sleep 0.1; done' &
last=$!
wait_for 'steward forecast brief'
sleep 1.5
section brief
counted
for each in 1 2 3 4 5 6 7 8; do
    sleep 0.4
    steward forecast brief --domains --json | tr -d '\n'
    echo
done
counted
# What somebody else writes to a cgroup's files is noticed within a second.
section limited-by-others
echo "20000 100000" >/sys/fs/cgroup/steward.brief/cpu.max
sleep 1.2
steward forecast brief --domains --json
kill -9 $last
wait $last 2>/dev/null

# A cgroup that somebody else made: told to the scheduler, never written to; and removed under the daemon.
section foreign
mkdir -p /sys/fs/cgroup/foreign/inner
echo +cpu >/sys/fs/cgroup/foreign/cgroup.subtree_control
try steward domain set foreign/inner --cpu 10% --weight 50
cat /sys/fs/cgroup/foreign/inner/cpu.weight
rmdir /sys/fs/cgroup/foreign/inner
wait_for 'steward events | grep -q "foreign/inner is gone"'
steward events | grep 'foreign/inner'

# A user may divide what is theirs, and nothing else.
section user
steward domain create theirs --cpu 2% --user user --keep
try su user -c 'steward domain create theirs/part --cpu 100%'
try su user -c 'steward domain set theirs --cpu 5%'
try su user -c 'steward domain remove a'
try su user -c 'steward run --domain theirs/part -- steward domain show'

section killed
steward run --create --domain stays -- sleep 100000 &
last=$!
wait_for '[ "$(place $last)" = /steward.stays ]'
kill -9 $daemon
wait $daemon 2>/dev/null
wait_for 'grep -q disabled $state'
place $last
start_daemon
section restarted
reservations

section removed
try steward domain move $last a/child
place $last
try steward domain remove a/child
place $last
try steward domain remove a --kill
wait $last
echo "ended with $?"

section stopped
steward run --domain stays --create -- sleep 100000 &
last=$!
wait_for '[ "$(place $last)" = /steward.stays ]'
stop_daemon
place $last
ls -d /sys/fs/cgroup/steward.*
section reverted
kill -9 $last
wait $last
try steward revert
ls -d /sys/fs/cgroup/steward.*
