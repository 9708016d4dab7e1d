# What goes wrong around protected memory, one fault after the other, each with a daemon of its own: on a machine of 512
# MB. It runs in the lab's machine, after prelude.sh.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
journal=/var/lib/steward
cgroups=/sys/fs/cgroup

# A program that holds 60 MB, protected in a cgroup of its own; $held is its cgroup, $holder its process.
protect() { # protect PERIOD
    steward run --protect=$1 -- keystrokes --anonymous-mb 60 --keys 0 &
    holder=$!
    held=$cgroups/steward.run-$holder
    wait_for '[ "$(cat $held/memory.current)" -gt 60000000 ]'
}
kept() { echo "kept $(($(cat $held/memory.min) >> 20)) MiB"; }
is_kept() { [ "$(cat $held/memory.min)" -gt 60000000 ]; }
let_go() { # let_go PID...: ends them with their children
    for pid in "$@"; do
        for child in $pid $(cat /sys/fs/cgroup/steward.run-$pid/cgroup.procs 2>/dev/null); do kill -9 $child 2>/dev/null; done
    done
    wait "$@" 2>/dev/null
}
end_daemon() {
    kill $daemon 2>/dev/null
    wait $daemon
    echo "exit code $?"
}
taken() { steward domain list --json | tr ',{' '\n\n' | sed -n 's/.*"taken": *\([0-9]*\).*/\1/p' | sort -n | tail -n 1; }

modprobe zram
echo 500M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0

section killed
start_daemon --mechanism deadline
protect 60s
wait_for is_kept
steward run --memory-max 2G -- memory-hog --mb 500 --rounds 1000 >/dev/null &
hog=$!
# It is taking memory from the hog, and goes on to: there is never enough.
wait_for '[ "$(taken)" -gt 20000000 ]'
kill -9 $daemon
wait $daemon 2>/dev/null
kept
cat $cgroups/steward.run-$hog/memory.max
let_go $hog
section started-again
start_daemon --mechanism deadline
wait_for is_kept
kept
echo "reverted $(grep -c 'decision="reverted"' /tmp/log)"
section killed-again
kill -9 $daemon
wait $daemon 2>/dev/null
try steward revert
echo "minimum $(cat $held/memory.min)"
[ -d /proc/$holder ] && echo alive
let_go $holder
rm -rf $journal

section own-memory
# What the daemon uses itself is locked, also what its threads have that were made later: nothing of it is swapped out
# while everything else is.
start_daemon --mechanism deadline
protect 60s
wait_for is_kept
memory-hog --mb 500 --rounds 2 >/dev/null &
hog=$!
wait_for '[ "$(sed -n "s/^SwapFree: *\([0-9]*\) kB/\1/p" /proc/meminfo)" -lt 450000 ]'
awk '$1 == "VmLck:" { print "locked kB " $2 } $1 == "VmSwap:" { print "swapped kB " $2 }' /proc/$daemon/status
# Of the mappings that are written to and nobody else's, those whose pages the kernel does not lock.
awk '/^[0-9a-f]+-[0-9a-f]+ / { own = $2 ~ /^rw.p/ } /^VmFlags:/ && own { mappings++; if ($0 !~ / lo( |$)/) unlocked++ }
    END { print "mappings " mappings + 0; print "unlocked " unlocked + 0 }' /proc/$daemon/smaps
let_go $hog $holder
end_daemon
rm -rf $journal

section out-of-memory
swapoff /dev/zram0
start_daemon --mechanism deadline
protect 60s
wait_for is_kept
before=$(sed -n 's/^oom_kill //p' /proc/vmstat)
# More than there is, together: the kernel would not even give it to one. The daemon is started by hand here: it has not
# even what its unit file gives it (OOMScoreAdjust, MemoryMin).
hogs=
for hog in 1 2 3; do
    memory-hog --mb 250 --rounds 1 >/dev/null &
    hogs="$hogs $!"
done
wait $hogs
echo "hogs ended $(($(sed -n 's/^oom_kill //p' /proc/vmstat) - before))"
[ -d /proc/$daemon ] && steward status >/dev/null && echo "daemon $daemon answers as $(steward status --json | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p' | head -n 1)"
[ -d /proc/$holder ] && echo "protected lives"
grep -E 'VmLck|VmRSS|VmSwap' /proc/$daemon/status

section no-swap
wait_for is_kept
kept
steward doctor | grep -i swap
let_go $holder
end_daemon
rm -rf $journal

section full-disk
mkdir -p $journal
mount -t tmpfs -o size=32k none $journal
dd if=/dev/zero of=$journal/filler bs=4k count=100 2>/dev/null
start_daemon --mechanism deadline
protect 60s
wait_for 'steward status | grep -q "No space left"'
kept
steward status
section room-again
rm $journal/filler
wait_for is_kept
kept
let_go $holder
end_daemon
umount $journal

section made-anew
start_daemon --mechanism deadline
try steward domain create a --protect=60s --keep
mkdir -p $cgroups/steward.a/.x
rmdir $cgroups/steward.a/.x $cgroups/steward.a/.own $cgroups/steward.a 2>&1
mkdir $cgroups/steward.a
sh -c 'echo 0 >/sys/fs/cgroup/steward.a/cgroup.procs; exec keystrokes --anonymous-mb 60 --keys 0' &
stranger=$!
wait_for '[ "$(cat $cgroups/steward.a/memory.current)" -gt 60000000 ]'
sleep 5
steward domain show a
echo "minimum $(cat $cgroups/steward.a/memory.min)"
protect 60s
wait_for is_kept
kept
let_go $holder $stranger
kill -9 $stranger 2>/dev/null
end_daemon
rm -rf $journal

section no-page-ages
echo n >/sys/kernel/mm/lru_gen/enabled
cat /sys/kernel/mm/lru_gen/enabled
start_daemon --mechanism deadline
protect 2s
wait_for is_kept
# All that is charged counts as used: it stays, though it was not used within the period.
sleep 6
kept
steward doctor | grep -i 'page ages'
steward status
let_go $holder
end_daemon
echo y >/sys/kernel/mm/lru_gen/enabled
rm -rf $journal

section not-delegated
sleep 1
rmdir $cgroups/steward.*/.* $cgroups/steward.* 2>/dev/null
echo -memory >$cgroups/cgroup.subtree_control
cat $cgroups/cgroup.subtree_control
start_daemon --mechanism deadline
# Nobody counts what is in cgroups: it has that done, as for a minimum.
protect 60s
wait_for is_kept
kept
cat $cgroups/cgroup.subtree_control
let_go $holder
section handed-back
end_daemon
cat $cgroups/cgroup.subtree_control
