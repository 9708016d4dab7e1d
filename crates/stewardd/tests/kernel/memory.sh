# Memory of domains and programs on a real kernel: promised, limited, refused, and put back however the daemon ends.
# It runs in the lab's machine, after prelude.sh.
cat >$specs/memory.toml <<'SPEC'
[[spec]]
path = "/opt/one/sleep"
memory_max = "48M"
SPEC
program one
# The scheduler takes long to load, and has no part in this.
start_daemon --mechanism deadline
cgroup=/sys/fs/cgroup/steward.a

section made
try steward domain create a --memory-min 64M --memory-max 128M --keep
cat $cgroup/memory.min $cgroup/memory.max
section nested
try steward domain create a/x --memory-min 48M --keep
cat $cgroup/x/memory.min $cgroup/.own/memory.min
section too-much
try steward domain create b --memory-min 100G
ls -d /sys/fs/cgroup/steward.b
section upside-down
try steward domain create b --memory-min 2M --memory-max 1M

# Of 3 MB that a shell has, nothing can be taken without swap.
section below-use
steward run --memory-max 64M -- sh -c '
    text=$(head -c 3000000 /dev/zero | tr "\0" x)
    steward domain set run-$$ --memory-max 2M
    echo "exit code $?"
    sleep 1
    steward domain show run-$$
    cat /sys/fs/cgroup/steward.run-$$/memory.max
    echo "alive with ${#text}"'
section above-use
steward run --memory-max 64M -- sh -c '
    steward domain set run-$$ --memory-max 32M >/dev/null
    cat /sys/fs/cgroup/steward.run-$$/memory.max'
section grows
steward run --memory-max 5M -- sh -c 'text=$(head -c 6000000 /dev/zero | tr "\0" x); echo "not reached ${#text}"'
echo "exit code $?"

section program
/opt/one/sleep 1000 &
program=$!
wait_for 'steward explain '$program' | grep -q "of its memory is in force"'
cat /sys/fs/cgroup/steward.program-$program/memory.max
cat /sys/fs/cgroup/steward.program-$program/cgroup.procs | grep -c "^$program$"
steward explain $program

# It holds 60 MiB by then: nobody reads what it writes.
section moved
cp /bin/busybox /opt/other/dd
mkfifo /tmp/unread
sleep 1000 </tmp/unread &
reader=$!
/opt/other/dd if=/dev/zero of=/tmp/unread bs=60M 2>/dev/null &
holder=$!
holds() { awk '/^RssAnon:/ { has = $2 } END { exit !(has >= 61440) }' /proc/$holder/status; }
wait_for holds
printf '[[spec]]\npath = "/opt/other/dd"\nmemory_max = "100M"\n' >$specs/moved.toml
wait_for 'steward explain '$holder' | grep -q "of its memory is in force"'
steward explain $holder
steward domain create elsewhere --keep
steward domain move $holder elsewhere
steward domain move $holder elsewhere
kill $holder $reader

section killed
kill -9 $daemon
wait $daemon 2>/dev/null
cat $cgroup/memory.min
section started-again
start_daemon --mechanism deadline
wait_for 'grep -q 67108864 '$cgroup/memory.min
steward domain show a | grep memory
cat $cgroup/memory.min $cgroup/memory.max
section stopped
sleep 1000 &
sleeper=$!
steward domain move $sleeper a
kill $daemon
wait $daemon
cat $cgroup/.own/memory.min $cgroup/memory.min $cgroup/memory.max
section reverted
steward revert
kill $program $sleeper
