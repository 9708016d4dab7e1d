# A save for which nobody has asked for anything, beside programs that write through the cache, on a disk that takes one
# request at a time and has no elevator: without Steward, and with it. Whoever wants that one place is woken with
# whoever writes back, and has it only if it runs first. It runs in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 240 0 || exit 1
echo none >/sys/block/nullb0/queue/scheduler
for n in 1 2 3 4; do disk-load buffered --file /timed/writer-$n --mb 40 --seconds 0 >/dev/null; done
saves() {
    for n in 1 2 3 4; do disk-load buffered --file /timed/writer-$n --mb 40 --seconds 34 >/dev/null & done
    sleep 2
    file-save --file /timed/note --kb 30 --interval 2 --seconds 30 >/tmp/saved
    wait
    awk '/^r/ { sum += $2; count += 1; if ($2 > worst) worst = $2 }
        END { printf "saves %d\nmean %d\nworst %d\n", count, sum / count, worst }' /tmp/saved
}
section without
saves
start_daemon
section with
# It waits for its own programs, and not for the daemon.
(saves)
stop_daemon
