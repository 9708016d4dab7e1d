# SCHED_DEADLINE and what it does to the kernel's own books: CPUs that go and come, reservations taken from sleepers, a
# disk that is full, and a journal with a wrong byte. It runs in the lab's machine, after prelude.sh.
online=/sys/devices/system/cpu/cpu1/online
undo=/var/lib/steward/undo.journal

# What the kernel counts as reserved, in parts of 2^20 of a CPU.
booked() { sed -n 's/.*dl_bw->total_bw *: *//p' /sys/kernel/debug/sched/debug | head -n 1; }

# A field of proc_pid_stat(5), counted after the name: 17 is the nice value, 39 the policy.
stat_field() { sed 's/.*) //' /proc/$1/stat | cut -d ' ' -f $2; }

program one
printf '[[spec]]\npath = "/opt/one/sleep"\ncpu = "1ms/100ms"\n[[spec]]\npath = "[kworker]"\ncpu = "1ms/100ms"\n' >$specs/50-one.toml
before=$(booked)
programs=
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    /opt/one/sleep 100000 &
    programs="$programs $!"
done
count_admitted() { steward status --json | grep -c '"standing": "admitted"'; }

start_daemon --mechanism deadline
wait_for '[ $(count_admitted) = 20 ]'
section admitted
echo "reserved $(($(booked) - before))"
echo "stewardd: nice $(stat_field $daemon 17), policy $(stat_field $daemon 39)"

# CPU 1 goes and comes while a reservation is asked for its workers again and again.
section hotplug
ask_for_workers() {
    for process in /proc/[0-9]*; do
        read -r name <$process/comm || continue
        case $name in kworker/1:*) steward set ${process#/proc/} --cpu 1ms/100ms >/dev/null 2>&1 ;; esac
    done
}
for round in 1 2 3 4; do
    echo 0 >$online
    ask_for_workers
    echo 1 >$online
    ask_for_workers
done
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    read -r name <$process/comm || continue
    case $name in kworker*) [ "$(stat_field $pid 39)" != 6 ] || echo "$name has SCHED_DEADLINE" ;; esac
done
dmesg | grep -E 'divide|Oops' || echo "no fault"

section restarts
kill $daemon; wait $daemon
echo "left by a stop $(($(booked) - before))"
# Each time the daemon is killed while it keeps background work suspended beside some loops; the work goes on.
quiet=/sys/fs/cgroup/steward.quiet
for loop in 1 2 3; do busy-loops --loop & loops="$loops $!"; done
frozen=0 resumed=0
for round in $(seq ${ROUNDS:-3}); do
    start_daemon --mechanism deadline
    [ -n "$control" ] || { steward background --threshold 1.001 --name quiet -- busy-loops --loop 2>/dev/null & control=$!; }
    wait_for '[ $(count_admitted) = 20 ]'
    wait_for 'grep -q 1 $quiet/cgroup.freeze' && frozen=$((frozen + 1))
    kill -9 $daemon; wait $daemon 2>/dev/null
    wait_for 'grep -q 0 $quiet/cgroup.freeze && grep -q 100 $quiet/cpu.weight' && resumed=$((resumed + 1))
done
echo "suspended $frozen of ${ROUNDS:-3}, resumed $resumed"
kill -9 $control $loops
echo 1 >$quiet/cgroup.kill
wait_for 'rmdir $quiet'
steward revert | grep -c 'put back'
echo "left by kills and revert $(($(booked) - before))"

# The journal's disk takes no more, and then a byte of the journal flips.
section full-disk
mount -t tmpfs -o size=64k none /mnt
start_daemon --mechanism deadline --state-directory /mnt
wait_for '[ $(count_admitted) = 20 ]'
dd if=/dev/zero of=/mnt/filler bs=1k 2>/dev/null
# What is left of the last page takes some more lines.
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    /opt/one/sleep 100001 &
    programs="$programs $!"
    said=$(steward set $! --cpu 1ms/100ms 2>&1) || break
done
echo "$said"
kill -9 $daemon; wait $daemon 2>/dev/null
start_daemon --mechanism deadline --state-directory /mnt
steward status | grep -o 'No space left' | head -n 1
rm /mnt/filler
kill -9 $daemon; wait $daemon 2>/dev/null
start_daemon --mechanism deadline --state-directory /mnt
wait_for '[ $(count_admitted) -ge 20 ]'
kill -9 $daemon; wait $daemon 2>/dev/null
printf '#' | dd of=/mnt/undo.journal bs=1 seek=500 conv=notrunc 2>/dev/null
section flipped
# SCHED_DEADLINE is policy 6, the 41st figure of proc_pid_stat(5).
count_deadline() { for pid in $programs; do cut -d ' ' -f 41 /proc/$pid/stat; done | grep -c '^6$'; }
echo "deadline before $(count_deadline)"
start_daemon --mechanism deadline --state-directory /mnt
steward status | grep -o 'undo.journal is damaged.*line [0-9]* is not' | head -n 1
ls /mnt | grep damaged
kill $daemon; wait $daemon
echo "exit code $?"
steward revert --state-directory /mnt >/dev/null
echo "deadline after $(count_deadline)"
for pid in $programs; do kill -9 $pid; wait $pid 2>/dev/null; done
wait_for '[ $(($(booked) - before)) -lt 12000 ]'
