# A protected domain beside one that takes all memory there is, on a real kernel with a swap of 600 MB in memory. It
# runs in the lab's machine, after prelude.sh.
modprobe zram
echo 600M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mkdir /tmp/store
mount -t tmpfs -o size=800M none /tmp/store
# The scheduler has no part in it, and takes long to load.
start_daemon --mechanism deadline
# What of a cgroup is in memory, and in the swap, in MiB; and the bytes of its programs' own. The first has also what
# the kernel took for it ahead, up to 64 pages a processor, and gives back when memory is short.
held() {
    echo "$1: $(($(cat $2/memory.current) >> 20)) MiB, swapped $(($(cat $2/memory.swap.current) >> 20)) MiB"
    echo "$1's own: $(sed -n 's/^anon //p' $2/memory.stat)"
}

section kept
steward run --protect=10s -- sh -c 'text=$(head -c 60000000 /dev/zero | tr "\0" x); touch /tmp/holds; while :; do sleep 1000; done' &
protected=/sys/fs/cgroup/steward.run-$!
wait_for 'test -e /tmp/holds'
wait_for "[ \$(cat $protected/memory.min) -gt 60000000 ]"
held protected $protected
section hog
steward run --memory-max 2G -- sh -c 'dd if=/dev/zero of=/tmp/store/hog bs=1M count=600 2>/dev/null; touch /tmp/full; while :; do sleep 1000; done' &
hog=/sys/fs/cgroup/steward.run-$!
wait_for 'test -e /tmp/full'
held protected $protected
held hog $hog
grep -E 'oom_kill |allocstall_normal|allocstall_dma32' /proc/vmstat
section service
# A service of 64 MB without swap has read a file that a protected program maps. What is held of it would be missing
# when the service wants 50 MB of its own: it gives the file up, and lives.
service=/sys/fs/cgroup/service
mkdir $service
echo 64M >$service/memory.max
echo 0 >$service/memory.swap.max
serve() { sh -c "echo \$\$ >$service/cgroup.procs; exec $1"; }
dd if=/dev/urandom of=/scratch/book bs=1M count=30 2>/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches
for who in nobody somebody; do
    serve 'cat /scratch/book' >/dev/null
    echo "$who: $(sed -n 's/^file //p' $service/memory.stat)"
    if [ $who = somebody ]; then
        steward run --protect=10s -- keystrokes --file /scratch/book --keys 1000 --pause 0.1 --exit >/dev/null &
        wait_for "grep -q 'file_mapped [1-9][0-9]\{7\}' $service/memory.stat"
        sleep 8
    fi
    serve 'memory-burst --mb 50 --seconds 1' >/dev/null && echo "lives beside $who"
done
echo "unevictable: $(sed -n 's/^unevictable //p' $service/memory.stat)"
grep 'oom_kill ' $service/memory.events
section lapses
# It sleeps: what it has is idle after ten seconds, and is not kept for longer than that asks for.
# What is idle is covered as long as there is enough without, but not kept: it can be taken.
kept() { steward domain show --json ${protected##*/steward.} | tr -d ' \n' | sed -n 's/.*"kept":\([0-9]*\).*/\1/p'; }
wait_for '[ $(kept) -lt 30000000 ]'
echo "kept $(($(kept) >> 20)) MiB"
section stopped
kill $daemon
wait $daemon
echo "exit code $?"
cat $protected/memory.min
