# A protected domain whose memory is taken behind Steward's back while somebody else takes memory, on a real kernel with
# a swap on a disk of 10 ms: whose promise was broken, by whom, and what is said of that. It runs in the lab's machine,
# after prelude.sh.
# The swap has room for all that is taken within the fifth of a second for which Steward looks ahead: where it sees all
# used up before that, nobody is protected any more.
sh /lab/timed-disk.sh 5400rpm 64 600 >/dev/null
mkdir /tmp/store
mount -t tmpfs -o size=200M none /tmp/store
start_daemon
held_back() { cat /sys/block/nullb0/queue/wbt_lat_usec; }
section held-back
held_back

# What it holds is no row of zeros, which need no room in the swap.
cat >/tmp/holder <<'PROGRAM'
cat /bin/busybox /bin/busybox /bin/busybox /bin/busybox >/tmp/store/held
while :; do
    [ -e /tmp/touch ] && rm /tmp/touch && cat /tmp/store/held >/dev/null && touch /tmp/touched
    sleep 0.1
done
PROGRAM
steward domain create editor --protect=60s --keep >/dev/null
steward run --domain editor -- sh /tmp/holder &
wait_for 'test -s /tmp/store/held'
protected=/sys/fs/cgroup/steward.editor
wait_for "[ \$(cat $protected/memory.min) -gt 1000000 ]"
wait_for '[ $(held_back) = 0 ]'
held_back
section calm
wait_for "steward status editor | grep -q 'promise of memory was kept'"
steward status editor
section stalled
steward domain create hog --keep >/dev/null
# It takes memory all the time, and gives it back.
steward run --domain hog -- sh -c 'while :; do dd if=/dev/zero of=/tmp/store/hog bs=1M count=40 2>/dev/null; sleep 0.2; rm /tmp/store/hog; done' &
hog=$!
wait_for 'test -s /tmp/store/hog'
# A second at whose end it happens to have given all back has no name.
for round in $(seq 30); do
    [ $round -gt 3 ] && steward events | grep -q 'hog took the most memory then' && break
    echo 8M >$protected/memory.reclaim 2>/dev/null
    echo "in the swap: $(($(cat $protected/memory.swap.current) >> 10)) KiB"
    rm -f /tmp/touched
    touch /tmp/touch
    wait_for 'test -e /tmp/touched'
done
wait_for "steward status editor | grep -q 'promise of memory was broken'"
steward status editor
section pressure
cat $protected/memory.pressure $protected/io.pressure
grep -E 'workingset_refault|pswpin' $protected/memory.stat
section json
steward status editor --json
section events
steward events | grep 'promise of memory'
section explain
steward explain --domain editor
steward explain --domain hog
kill $hog

section writers
# One that takes more memory than there is at once, again and again, and is held back for it, beside one that changes a
# file over and over, faster than the disk writes it: a protected program that takes 8 MB each second, and gives them
# back, never has to take memory from others itself.
cgroups=/sys/fs/cgroup
rm -f /tmp/store/hog
head -c 24000000 /dev/zero >/timed/changed
sync
for domain in burst writer taker; do steward domain create $domain --keep >/dev/null; done
steward domain set burst --protect=60s >/dev/null
steward run --domain burst -- memory-burst --mb 8 --seconds 24 >/tmp/bursts &
burst=$!
wait_for "[ \$(cat $cgroups/steward.burst/memory.min) -gt 4000000 ]"
steward run --domain writer -- sh -c 'while :; do dd if=/dev/zero of=/timed/changed bs=1M count=24 conv=notrunc 2>/dev/null; echo >>/tmp/written; sleep 0.1; done' &
writer=$!
# Where it waits, for whoever finds that it did.
tracing=/sys/kernel/tracing
mount -t tracefs none $tracing 2>/dev/null
echo "stacktrace if prev_pid==$burst&&prev_state==2" >$tracing/events/sched/sched_switch/trigger
compacted() { sed -n 's/^compact_stall //p' /proc/vmstat; }
compacted_before=$(compacted)
stalled() { sed -n 's/^allocstall[a-z0-9_]* //p' /proc/vmstat | awk '{ all += $1 } END { print all }'; }
before=$(stalled)
much=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 + 30))
steward run --domain taker -- memory-burst --mb $much --seconds 24 --interval 6 >/dev/null &
taker=$!
wait $burst
echo "bursts $(grep -c '^r ' /tmp/bursts)"
echo "direct reclaims of all $(($(stalled) - before))"
echo "scanned directly $(sed -n 's/^pgscan_direct //p' $cgroups/steward.burst/memory.stat)"
echo "stood still us $(sed -n 's/^some .*total=//p' $cgroups/steward.burst/memory.pressure)"
echo "swapped $(cat $cgroups/steward.burst/memory.swap.current)"
echo "compacted directly by all $(($(compacted) - compacted_before))"
grep refault $cgroups/steward.burst/memory.stat
grep -v '^#' $tracing/trace | head -n 60
echo "written $(wc -l </tmp/written)"
sort -n -k 2 /tmp/bursts | grep '^r ' | tail -n 2
for domain in writer taker burst; do
    echo "$domain:"
    steward explain --domain $domain | grep 'held back'
done
kill $writer $taker
kill $daemon
wait $daemon
section held-back-again
held_back
