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
