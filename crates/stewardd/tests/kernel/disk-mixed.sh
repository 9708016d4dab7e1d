# What half of a disk's time is where one reads pages far from each other and another one large pieces. It runs in the
# lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 200 0 || exit 1
# As on a machine where nobody hands the disk out.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
small="--file /timed/small --mb 64" large="--file /timed/large --mb 100"
disk-load random-read $small --seconds 1 >/dev/null
disk-load read $large --seconds 1 >/dev/null
start_daemon --mechanism deadline
for domain in small large; do steward domain create $domain --io-fraction 50% --keep >/dev/null; done
steward run --domain small -- disk-load random-read $small --threads 4 --seconds 1000 >/dev/null &
steward run --domain large -- disk-load read $large --piece-kb 512 --seconds 1000 >/dev/null &
wait_for 'grep -q "\[bfq\]" /sys/block/nullb0/queue/scheduler'
wait_for 'grep -q "default 1000$" /sys/fs/cgroup/steward.small/io.bfq.weight'
number=$(cat /sys/block/nullb0/dev)
# Bytes and requests, by the kernel's account.
had() { sed -n "s/^$number rbytes=\([0-9]*\) .*rios=\([0-9]*\) .*/\1 \2/p" /sys/fs/cgroup/steward.$1/io.stat; }
sleep 10
section mixed
before="$(had small) $(had large)"
sleep 20
# A request takes 10.075 ms, and each 287 bytes of it a microsecond.
echo "$before $(had small) $(had large)" | awk '{
    small = $6 - $2; large = $8 - $4
    small_ms = small * 10.075 + ($5 - $1) / 287000; large_ms = large * 10.075 + ($7 - $3) / 287000
    printf "small %d\nlarge %d\nthousandths %d\n", small, large, 1000 * small_ms / (small_ms + large_ms)
}'
stop_daemon
