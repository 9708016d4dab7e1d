# Background work on a real kernel: what becomes of suspended work when its controller or the daemon is killed.
# It runs in the lab's machine, after prelude.sh.
spin='while :; do :; done'
ticks() { cut -d' ' -f14 /proc/$1/stat; }
goes_on() {
    before=$(ticks $1)
    sleep 1
    [ "$(ticks $1)" -gt $((before + 20)) ] && echo "goes on" || echo "stands still"
}

# A loop that wants the whole CPU, and background work that is suspended because of it.
suspended_beside_a_loop() {
    sh -c "$spin" &
    hog=$!
    rm -f /tmp/control
    steward background --verbose --threshold 1.001 --name quiet -- sh -c "$spin" 2>/tmp/control &
    control=$!
    wait_for 'grep -q suspended /tmp/control'
    quiet=$(cat /sys/fs/cgroup/steward.background/quiet/cgroup.procs)
    goes_on $quiet
}

start_daemon
section controller-killed
suspended_beside_a_loop
kill -9 $control $hog
goes_on $quiet
steward domain show background/quiet | head -n 3
kill -9 $quiet
wait_for '! steward domain show background'

section daemon-killed
suspended_beside_a_loop
kill -9 $daemon
kill -9 $hog
goes_on $quiet
wait_for 'grep -q uncontrolled /tmp/control'
start_daemon
kill -9 $quiet
try wait $control
stop_daemon

section frozen
start_daemon --mechanism deadline
suspended_beside_a_loop
cat /sys/fs/cgroup/steward.background/quiet/cgroup.freeze
kill -9 $daemon
kill -9 $hog
wait_for 'grep -q 0 /sys/fs/cgroup/steward.background/quiet/cgroup.freeze'
goes_on $quiet
start_daemon --mechanism deadline
kill -9 $quiet
try wait $control
stop_daemon

# The guard that would thaw is killed too: the next daemon does it.
section guard-killed
start_daemon --mechanism deadline
suspended_beside_a_loop
for process in /proc/[0-9]*; do
    grep -q -e --guard $process/cmdline 2>/dev/null && guard=${process#/proc/}
done
kill -9 $guard $daemon $hog
goes_on $quiet
start_daemon --mechanism deadline
cat /sys/fs/cgroup/steward.background/quiet/cgroup.freeze
goes_on $quiet
kill -9 $quiet
wait $control
stop_daemon
