# How often who saves a file goes to sleep for that, on a fast disk: without a reservation, with one, and in a domain
# that is served first. The thread that ends a request wakes it once for each page of the file that it comes to. It runs
# in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh ssd 240 0 || exit 1
save="file-save --file /timed/note --kb 30 --interval 0.3 --seconds 7"
sleeps() {
    "$@" >/tmp/saved &
    saver=$!
    sleep 2
    before=$(slept)
    sleep 4
    echo "sleeps $(($(slept) - before))"
    wait $saver
    awk '/^r/ { count += 1 } END { print "saves", count }' /tmp/saved
}
slept() {
    awk '/^voluntary_ctxt_switches/ { print $2 }' /proc/$saver/status
}
start_daemon
$save >/dev/null
section plain
sleeps $save
section reserved
sleeps steward run --cpu 5ms/100ms -- $save
section first
sleeps steward run --cpu 5ms/100ms --io interactive -- $save
stop_daemon
