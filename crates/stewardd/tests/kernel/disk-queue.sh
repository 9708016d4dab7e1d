# What is made of a disk that rotates and takes 32 requests at once, on a real kernel: whoever is served first does not
# stand behind those of others that it has already. It runs in the lab's machine, after prelude.sh.
# Large enough for the journal to lie more than 4 MB from the files: of programs with requests nearer to each other the
# kernel's BFQ makes one queue, of one class (docs/disk.md#the-elevators-queues).
sh /lab/timed-disk.sh ncq 256 0 || exit 1
# As on a machine where nobody hands the disk out.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
order() { echo "$1 $(sed 's/.*\[\(.*\)\].*/\1/' /sys/block/$1/queue/scheduler)"; }
settings() {
    order sda
    order nullb0
    for name in strict_guarantees slice_idle_us timeout_sync; do echo "$name:$(cat /sys/block/sda/queue/iosched/$name)"; done
    echo "queue_depth:$(cat /sys/block/sda/device/queue_depth)"
}
one="disk-load fsync --file /timed/one --mb 4 --seconds 20"
disk-load fsync --file /timed/one --mb 4 --seconds 0 >/dev/null
# What others read lies far from it: near to each other the elevator may make one queue of them.
disk-load fsync --file /timed/between --mb 12 --seconds 0 >/dev/null
disk-load random-read --file /timed/others --mb 16 --threads 32 --seconds 600 >/dev/null &
others=$!
wait_for 'test "$(stat -c %s /timed/others)" = 16777216'
sleep 3
# How many pages were brought to the disk in 100 s, from when the elevator was there. Where one of them took all that
# time it is counted from the beginning, and all lines are shown.
pages() {
    awk 'NR == 1 { begun = $3 }
        $3 >= begun + 4000 && !since { done = $2; since = $3 }
        { last = $2; until = $3 }
        END { once = until == since
            if (once || !since) { done = 0; since = begun }
            printf "pages %d\n", (until > since) ? (last - done) / 4 * 100000 / (until - since) : 0
            exit once }' /tmp/read ||
        cat /tmp/read
}
# Whoever brings something to the disk waits for the journal too. Without a row it would be left to the elevator's luck
# whether it takes the journal's requests for those that it waits for: then there were twice as many pages as without
# Steward in some runs, and five times as many in others.
printf '[[spec]]\npath = "[jbd2]"\ncpu = "10ms/100ms"\nio = "interactive"\nrevocable = false\n' >$specs/journal.toml
# How long saves take beside two who fsync all the time too, in ms.
for n in 1 2; do disk-load fsync --file /timed/storm-$n --mb 2 --seconds 0 >/dev/null; done
saves() {
    seconds=$1
    shift
    storms=
    for n in 1 2; do
        disk-load fsync --file /timed/storm-$n --mb 2 --seconds 600 >/dev/null &
        storms="$storms $!"
    done
    "$@" file-save --file /timed/note --kb 30 --interval 4 --seconds $seconds >/tmp/saved
    kill $storms
    awk '/^r/ { sum += $2; count += 1; if ($2 > worst) { second = worst; worst = $2 } else if ($2 > second) second = $2 }
        END { printf "saves %d\nmean %d\nworst %d\nsecond %d\n", count, sum / count, worst, second }' /tmp/saved
}
section stock
$one >/tmp/read
pages
saves 30
start_daemon --mechanism deadline
steward domain create desk --io interactive --keep >/dev/null
steward run --domain desk -- $one >/tmp/read &
first=$!
sleep 10
section moment
settings
ionice -p $first
cat /sys/fs/cgroup/steward.desk/io.bfq.weight
wait $first
section first
pages
section saves
saves 90 steward run --domain desk --
sleep 7
section left
settings
kill $others
stop_daemon
# The disk goes on being handed out for minutes.
cat /sys/fs/cgroup/cgroup.subtree_control
