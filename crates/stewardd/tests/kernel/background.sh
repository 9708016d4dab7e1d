# Background work on a real kernel: its place behind everybody, what it is suspended for, how it ends, and what becomes
# of it when its controller or the daemon is killed. It runs in the lab's machine, after prelude.sh.
spin='exec busy-loops --loop'
ticks() { cut -d' ' -f14 /proc/$1/stat; }

# How many hundredths of a second a process gets of the next two seconds.
gets() {
    before=$(ticks $1)
    sleep 2
    echo "$2 $(($(ticks $1) - before))"
}

# A loop that wants the whole CPU.
loop() {
    sh -c "$spin" &
    hog=$!
}

control_with() {
    rm -f /tmp/control
    steward background --verbose --threshold "$1" --name quiet -- sh -c "$2" 2>/tmp/control &
    control=$!
    wait_for 'grep -q . /sys/fs/cgroup/steward.quiet/cgroup.procs'
    quiet=$(head -n 1 /sys/fs/cgroup/steward.quiet/cgroup.procs)
    wait_for 'steward domain show quiet --json | grep -q "\"lowered\": true"'
}

# The place that the work has, and whether it stands still.
place() {
    steward domain show quiet --json | grep -e '"lowered"' -e '"priority"' | tr -d ' ,\n'
    echo " frozen $(cat /sys/fs/cgroup/steward.quiet/cgroup.freeze) weight $(cat /sys/fs/cgroup/steward.quiet/cpu.weight)"
}

# Ends the work, and waits until its domain has gone.
end_work() {
    kill -9 $quiet
    wait_for '! test -e /sys/fs/cgroup/steward.quiet'
    ls -d /sys/fs/cgroup/steward.* 2>/dev/null
}

start_daemon
section behind-a-loop
loop
control_with 1.001 "$spin"
gets $quiet work
place
grep -c suspended /tmp/control

section controller-killed
kill -9 $control
wait_for 'steward domain show quiet --json | grep -q "\"lowered\": false"'
place
gets $quiet work
end_work

# Beside two loops: it gets the CPU that it needs in order to end.
section asked-to-end
first=$hog
loop
control_with 1.001 "$spin"
begun=$(cut -d. -f1 /proc/uptime)
kill -TERM $control
try wait $control
echo "seconds $(($(cut -d. -f1 /proc/uptime) - begun))"
kill -9 $hog $first

# A disk that does one thing at a time, and takes 4 ms for it.
modprobe null_blk nr_devices=1 gb=1 queue_mode=2 irqmode=2 completion_nsec=4000000 hw_queue_depth=1 submit_queues=1
disk=/dev/nullb0
reads() { awk '{ print $1 }' /sys/block/nullb0/stat; }
floods_on() {
    before=$(reads)
    sleep 1
    echo "$1 reads $(($(reads) - before))"
}
mkdir /sys/fs/cgroup/victim
sh -c "echo \$\$ >/sys/fs/cgroup/victim/cgroup.procs
    while :; do dd if=$disk of=/dev/null bs=4096 count=1 iflag=direct; sleep 0.1; done" 2>/dev/null &
victim=$!
flood="for each in 1 2 3 4 5 6 7 8; do while :; do dd if=$disk of=/dev/null bs=4096 iflag=direct; done & done 2>/dev/null; wait"
kill_flood() { echo 1 >/sys/fs/cgroup/steward.quiet/cgroup.kill; }

section disk
control_with 1.1 "$flood"
wait_for 'grep -q suspended /tmp/control'
grep suspended /tmp/control | head -n 1
wait_for 'tail -n 1 /tmp/control | grep -q suspended'
kill -9 $control
wait_for 'steward domain show quiet --json | grep -q "\"lowered\": false"'
floods_on controller-killed
kill_flood
wait_for '! test -e /sys/fs/cgroup/steward.quiet'

section daemon-killed
control_with 1.1 "$flood"
wait_for 'grep -q suspended /tmp/control && tail -n 1 /tmp/control | grep -q suspended'
kill -9 $daemon
floods_on work
wait_for 'grep -q uncontrolled /tmp/control'
start_daemon
wait_for 'steward domain show quiet --json | grep -q "\"lowered\": true"'
place

# The next daemon finds an ordinary domain, whatever its mechanism.
section both-killed
kill -9 $daemon $control
wait_for 'grep -q disabled $state'
cat $state
start_daemon --mechanism deadline
place
floods_on work
kill_flood
wait_for '! test -e /sys/fs/cgroup/steward.quiet'
kill -9 $victim

section frozen
loop
control_with 1.001 "$spin"
wait_for 'grep -q 1 /sys/fs/cgroup/steward.quiet/cgroup.freeze'
frozen=$(cat /sys/fs/cgroup/steward.quiet/cgroup.freeze /sys/fs/cgroup/steward.quiet/cpu.weight)
kill -9 $daemon
echo "in force" $frozen
wait_for 'grep -q 0 /sys/fs/cgroup/steward.quiet/cgroup.freeze && grep -q 100 /sys/fs/cgroup/steward.quiet/cpu.weight'
gets $quiet work
kill -9 $control
start_daemon --mechanism deadline
place
end_work

# The guard that would put it back is killed too: the next daemon does it.
section guard-killed
control_with 1.001 "$spin"
# Of the daemon's own: this script's own command line has the word, too.
for process in /proc/[0-9]*; do
    grep -q stewardd $process/comm 2>/dev/null && grep -q -e --guard $process/cmdline && guard=${process#/proc/}
done
wait_for 'grep -q 1 /sys/fs/cgroup/steward.quiet/cgroup.freeze'
kill -9 $guard $daemon $control
gets $quiet left
start_daemon --mechanism deadline
place
gets $quiet work
kill -9 $hog
end_work
stop_daemon
