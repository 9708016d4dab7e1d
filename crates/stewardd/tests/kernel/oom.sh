# Does protection ever end a program that would have lived without it? Random histories on a machine of 512 MB, each
# once without the daemon and once with it: protected programs that hold pages of a file and grow, and others that take
# memory in bursts. All of it fits if pages of the file are given up, which is what the kernel does by itself, and not
# if they are kept at any price. It runs in the lab's machine, after prelude.sh, with a disk at /scratch. Half of the
# histories have no swap, the others a little.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
modprobe zram
echo 48M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
dd if=/dev/zero of=/scratch/book bs=1M count=200 2>/dev/null

histories=8
ended() { sed -n 's/^oom_kill //p' /proc/vmstat; }
clean() {
    for pid in $running; do
        kill -9 $pid 2>/dev/null
        for child in $(cat /sys/fs/cgroup/steward.run-$pid/cgroup.procs 2>/dev/null); do kill -9 $child; done
    done
    wait $running 2>/dev/null
    running=
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
start() { # start WORD...: in the background, without its output
    "$@" >/dev/null 2>&1 &
    running="$running $!"
}

# What happens in a history, in MB: what the two protected programs hold of their own, by how much both grow in each
# second, and the bursts of the two others.
numbers_of() { # numbers_of SEED
    awk -v seed=$1 -v room=$room 'BEGIN {
        srand(seed); own = 10 + int(rand() * 50); second = 10 + int(rand() * 60); grow = 1 + int(rand() * 3)
        left = int((room - own - second - 2 * 8 * grow) * (0.75 + rand() * 0.15)); one = int(left * (0.3 + rand() * 0.6))
        print own, second, grow, one, left - one }'
}

history() { # history OWN SECOND GROW ONE OTHER [WORD...]: the words before the commands of those that are protected
    own=$1 second=$2 grow=$3 one=$4 other=$5
    shift 5
    before=$(ended)
    start "$@" keystrokes --anonymous-mb $own --file /scratch/book --keys 8 --pause 1 --grow-mb $grow --exit
    start "$@" keystrokes --anonymous-mb $second --keys 8 --pause 1 --grow-mb $grow --exit
    sleep 3
    start memory-burst --mb $one --seconds 5 --interval 1
    start memory-burst --mb $other --seconds 5 --interval 0.7
    sleep 6
    count=$(($(ended) - before))
    clean
}

for seed in $(seq 1 $histories); do
    section history-$seed
    [ $((seed % 2)) = 0 ] && swapon /dev/zram0
    room=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 - 24))
    numbers=$(numbers_of $seed)
    history $numbers
    without=$count
    start_daemon --mechanism deadline
    history $numbers steward run --protect=30s --
    echo "$room MB of room, $numbers"
    echo "without $without"
    echo "with $count"
    steward status | grep 'no domain is protected'
    kill $daemon
    wait $daemon
    swapoff /dev/zram0 2>/dev/null
done

# Below a maximum, and where a limit keeps others out of the swap, the kernel finds nothing else to take either, however
# much the machine has left. Each beside a program that is not protected, so that the history itself ends nobody, and
# beside one that is; one that takes memory steadily, and one that takes it at once.
dd if=/dev/zero of=/scratch/pages bs=1M count=120 2>/dev/null
clean
lives() { # lives COMMAND...: whether it came to its end
    "$@" >/dev/null 2>&1 && echo "lived: $*" || echo "ended: $*"
}
limited=/sys/fs/cgroup/steward.limited
kept() { echo "kept $(($(cat $limited/reader/memory.min 2>/dev/null || echo 0) >> 20)) MiB"; }
begin_below() { # begin_below PROTECT: a domain of 200 MB, in which 130 are used
    start_daemon --mechanism deadline
    steward domain create limited --memory-max 200M --keep >/dev/null
    steward domain create limited/reader --protect=$1 --keep >/dev/null
    steward domain create limited/other --keep >/dev/null
    start steward run --domain limited/reader -- keystrokes --anonymous-mb 10 --file /scratch/pages --keys 1000 --pause 0.3
    wait_for "[ \$(sed -n 's/^file_mapped //p' $limited/memory.stat) -gt 120000000 ]"
    [ $1 = default ] || wait_for "[ \$(cat $limited/reader/memory.min) -gt 130000000 ]"
    kept
}
end_below() {
    sed -n 's/^oom_kill /all ended: /p' $limited/memory.events
    for pid in $(cat $limited/reader/cgroup.procs); do kill -9 $pid; done
    clean
    steward domain remove limited >/dev/null
    kill $daemon
    wait $daemon
}
for protect in default 60s; do
    section below-a-maximum-$protect
    begin_below $protect
    lives steward run --domain limited/other -- memory-ramp --mb 100 --rate 25 --hold 1
    kept
    lives steward run --domain limited/other -- memory-burst --mb 100 --seconds 3 --interval 1
    steward events | grep 'below it'
    # It may have less than what is kept of one below it, which gives that up.
    try steward domain set limited --memory-max 100M
    wait_for "[ \$(cat $limited/memory.max) = 104857600 ]"
    echo "used $(($(cat $limited/memory.current) >> 20)) of $(($(cat $limited/memory.max) >> 20)) MiB"
    wait_for 'test -z "$(steward domain show limited --json | grep failed)"'
    end_below
done
# Nor does it depend on how soon the daemon sees it: it looks at nothing for two seconds.
section below-a-maximum-unseen
begin_below 60s
kill -STOP $daemon
(sleep 2; kill -CONT $daemon) &
continues=$!
lives sh -c "echo \$\$ >$limited/other/cgroup.procs; exec memory-burst --mb 100 --seconds 1 --interval 2"
wait $continues
wait_for "steward events | grep -q 'below it'"
wait_for "[ \$(cat $limited/memory.high) = 196608000 ]"
# It goes with the maximum, also while nothing else changes: one that needs more than it had has it at once.
wait_for "[ \$(cat $limited/reader/memory.min) -gt 130000000 ]"
for maximum in 400M:393216000 none:max 200M:196608000 400M:393216000; do
    try steward domain set limited --memory-max ${maximum%:*}
    wait_for "[ \$(cat $limited/memory.high) = ${maximum#*:} ]"
done
slowed() { sed -n 's/^high //p' $limited/memory.events; }
before=$(slowed)
lives sh -c "echo \$\$ >$limited/other/cgroup.procs; exec memory-burst --mb 150 --seconds 1 --interval 2"
echo "slowed $(($(slowed) - before)) times with room"
end_below
# On a disk: what is swapped out to memory takes room there.
dd if=/dev/zero of=/scratch/swap bs=1M count=300 2>/dev/null
chmod 600 /scratch/swap
mkswap /scratch/swap >/dev/null
swapon /scratch/swap
for protect in default 60s; do
    section out-of-the-swap-$protect
    start_daemon --mechanism deadline
    steward domain create holder --protect=$protect --keep >/dev/null
    before=$(ended)
    start steward run --domain holder -- keystrokes --anonymous-mb 120 --keys 1000 --pause 0.3
    holder=/sys/fs/cgroup/steward.holder
    wait_for "[ \$(sed -n 's/^anon //p' $holder/memory.stat /sys/fs/cgroup/memory.stat | head -n 1) -gt 120000000 ]"
    [ $protect = default ] || wait_for "[ \$(cat $holder/memory.min) -gt 120000000 ]"
    service=/sys/fs/cgroup/service
    mkdir -p $service
    echo 0 >$service/memory.swap.max
    much=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 + 60))
    lives sh -c "echo \$\$ >$service/cgroup.procs; exec memory-ramp --mb $much --rate 100 --hold 2"
    echo "all ended: $(($(ended) - before))"
    echo "swapped $(($(sed -n 's/^SwapTotal: *//p' /proc/meminfo | sed 's/ kB//') - $(sed -n 's/^SwapFree: *//p' /proc/meminfo | sed 's/ kB//'))) KiB"
    steward events | grep 'no domain is protected'
    for pid in $(cat $holder/cgroup.procs); do kill -9 $pid; done
    clean
    steward domain remove holder >/dev/null
    kill $daemon
    wait $daemon
done
