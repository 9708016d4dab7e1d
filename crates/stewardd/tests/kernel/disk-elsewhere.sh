# For how long a disk is kept idle for somebody who is served first and saves, beside one that writes past the cache: a
# file on that disk, the same without a change, and a file that is on no disk. It runs in the lab's machine, after
# prelude.sh.
sh /lab/timed-disk.sh 5400rpm 128 0 || exit 1
strict=/sys/block/nullb0/queue/iosched/strict_guarantees
start_daemon --mechanism deadline
steward domain create desk --io interactive --keep >/dev/null
steward run --domain desk -- sleep 1000 &
wait_for "test -e $strict"
disk-load direct --file /timed/writer --mb 16 --seconds 1000 >/dev/null &
writer=$!
# How many times of a hundred it is kept idle.
moments() {
    section "$1"
    shift
    sleep 8
    steward run --domain desk -- "$@" >/dev/null &
    saver=$!
    sleep 1
    for each in $(seq 100); do
        cat $strict
        sleep 0.05
    done | awk '{ sum += $1 } END { print "moments", sum }'
    kill $saver
}
moments disk file-save --file /timed/note --kb 4 --interval 0.3 --seconds 100
echo a >/timed/same
sync -d /timed/same
moments same sh -c 'while sync -d /timed/same; do sleep 0.3; done'
moments elsewhere file-save --file /tmp/note --kb 4 --interval 0.3 --seconds 100
kill $writer
stop_daemon
