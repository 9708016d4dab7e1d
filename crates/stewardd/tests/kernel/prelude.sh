# What the scripts of tests/kernel.rs share. It runs in the lab's machine, before each of them; what they print
# under a heading `== NAME` is what the test looks at.
exec >/run/lab/results 2>&1
state=/sys/kernel/sched_ext/state
specs=/etc/steward/specs
export STEWARD_LOG=info
mkdir -p $specs /opt/one /opt/other
modprobe fuse 2>/dev/null

section() { echo "== $1"; }

# What a test shows that finds something else than it wants.
trap 'section in-the-end; tail -n 40 /tmp/log; dmesg | grep -A 20 sched_ext | tail -n 40' EXIT

# Waits until a command succeeds, two minutes of the guest's time at most.
wait_for() {
    tries=0
    until eval "$1" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || { echo "never: $1"; tail -n 5 /tmp/log; return 1; }
        sleep 0.1
    done
}

start_daemon() {
    stewardd "$@" >>/tmp/log 2>&1 &
    daemon=$!
    wait_for 'steward status'
}

# Ends the daemon, and says how it ended and what it left.
stop_daemon() {
    kill $daemon
    wait $daemon
    echo "exit code $?"
    cat $state
    ls /run/steward
}

# Runs a command and says how it ended.
try() {
    "$@"
    echo "exit code $?"
}

# Waits until the daemon lists a process.
wait_until_listed() { wait_for "steward status --json | grep -q '\"pid\": $1'"; }

# Waits until the daemon has loaded its scheduler again so many times.
wait_until_reloaded() { wait_for "steward status --json | grep -q '\"restarts\": $1'"; }

# A program of its own, which nothing else in the machine runs.
program() { cp /bin/busybox "/opt/$1/sleep"; }

row() { printf '[[spec]]\npath = "/opt/%s/sleep"\ncpu = "%s"\n' "$1" "$2"; }

# Makes the kernel take a sched_ext scheduler out.
eject() { echo S >/proc/sysrq-trigger; }
