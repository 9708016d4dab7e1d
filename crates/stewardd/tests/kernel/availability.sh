# How much memory a domain may use, as a program in it is told while another one takes memory and while the daemon
# starts again. It runs in the lab's machine, after prelude.sh. The scheduler takes long to load, and has a part in the
# last sections alone: it holds back who takes memory faster than it can be taken from others.
start_daemon --mechanism deadline
try steward domain create a --memory-min 16M --keep
try steward domain create b --memory-max 400M --keep

section told
steward run --domain a -- availability-check watch >/tmp/told &
watcher=$!
wait_for 'grep -q told /tmp/told'
cat /tmp/told
availability-check poll /run/steward/domains/a/memory.available >/tmp/polled &
poller=$!
wait_for 'grep -q told /tmp/polled'

section taken
steward run --domain b -- availability-check take 160 >/tmp/taken &
taker=$!
wait_for 'grep -q took /tmp/taken'
# Whatever is still to be told is told by then.
sleep 1
cat /tmp/taken /tmp/told
section polled
cat /tmp/taken /tmp/polled
kill $poller
section available
steward available a --json
cat /run/steward/domains/a/memory.available

section idle
# The daemon looks four times a second while somebody watches, and not at all for that when nobody does.
switches() { awk '/^voluntary_ctxt_switches/ { print $2 }' /proc/$daemon/status; }
before=$(switches)
sleep 4
echo "watched $(($(switches) - before))"
kill $watcher
sleep 1
before=$(switches)
sleep 4
echo "idle $(($(switches) - before))"

section again
steward run --domain a -- availability-check watch >/tmp/again &
watcher=$!
wait_for 'grep -q told /tmp/again'
kill -9 $daemon
wait $daemon 2>/dev/null
# What it was told before is not what it is told by the next one.
kill $taker
start_daemon
wait_for '[ $(grep -c told /tmp/again) -ge 2 ]'
cat /tmp/again
kill $watcher

section part
# With less than what both want: who goes by what it is told keeps its part, though it used that before the other came.
# The loop runs while anybody is protected.
modprobe zram
echo 300M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
try steward domain create c --keep
steward run --protect=10s -- sh -c 'while :; do sleep 1000; done' &
protected=$!
steward run --domain a -- availability-check watch >/tmp/part &
watcher=$!
steward run --domain a -- availability-check take 150 >/tmp/has &
taker=$!
wait_for 'grep -q took /tmp/has'
# Programs that know systemd's pressure protocol, as it has them do.
listen() { # listen DOMAIN FILE
    steward run --domain $1 -- sh -c 'exec 3<>"$MEMORY_PRESSURE_WATCH"
        echo "$MEMORY_PRESSURE_WRITE" | base64 -d >&3
        read -r own <&3
        echo listening
        while read -r line <&3; do echo told; done' >$2 &
    wait_for "grep -q listening $2"
}
listen a /tmp/pressure-a
listener=$!
listen c /tmp/pressure-c
listeners="$listener $!"
much=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 + 80))
steward run --domain c -- availability-check take $much >/tmp/taken &
other=$!
wait_for 'grep -q took /tmp/taken'
wait_for 'grep -q told /tmp/pressure-c'
for domain in a c; do
    echo "pressure $domain $(grep -c told /tmp/pressure-$domain)"
    echo "$domain: $(($(cat /sys/fs/cgroup/steward.$domain/memory.swap.current) >> 20)) MiB in the swap"
    echo "taken from $domain: $(sed -n 's/^pgsteal_proactive //p' /sys/fs/cgroup/steward.$domain/memory.stat) pages"
done
kill $watcher $taker $other $protected $listeners

section swap-limited
# What one with nearly all of the weight may use, beside 200 MiB that may be swapped out, and that may not.
wait_for '[ $(cat /sys/fs/cgroup/steward.a/cgroup.procs /sys/fs/cgroup/steward.c/cgroup.procs | wc -l) -eq 0 ]'
steward domain set a --weight 10000 >/dev/null
steward domain create d --weight 1 --keep >/dev/null
steward run --domain d -- availability-check take 200 >/tmp/limited &
wait_for 'grep -q took /tmp/limited'
available() { sleep 1; echo "$1: $(($(tail -n 1 /run/steward/domains/a/memory.available) >> 20)) MiB"; }
available unlimited
echo 0 >/sys/fs/cgroup/steward.d/memory.swap.max
available limited
echo max >/sys/fs/cgroup/steward.d/memory.swap.max
available unlimited-again
kill $!
