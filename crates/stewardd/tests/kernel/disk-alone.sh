# That an interactive program of several threads which has the disk for itself is not held up by what is done for it, on
# a real kernel. It runs in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 64 0 || exit 1
# As on a machine where nobody hands the disk out.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
threads="disk-load random-read --file /timed/read --mb 16 --threads 4 --think-ms 3 --seconds 20"
# How many pages were read in 100 s, from when the elevator was there.
pages() {
    awk 'NR == 1 { begun = $3 }
        $3 >= begun + 4000 && !since { done = $2; since = $3 }
        { last = $2; until = $3 }
        END { printf "pages %d\n", (last - done) / 4 * 100000 / (until - since) }' /tmp/read
}
$threads >/tmp/read
section stock
$threads >/tmp/read
pages
start_daemon --mechanism deadline
steward domain create desk --io interactive --keep >/dev/null
section alone
steward run --domain desk -- $threads >/tmp/read
pages
stop_daemon
# Domains have parts, of which nobody else wants theirs: the disk is not kept idle for it (docs/disk.md#domains). What
# was read before is forgotten by then.
start_daemon --mechanism deadline
steward domain create half --io-fraction 50% --keep >/dev/null
steward run --domain half -- sleep 1000 &
steward run --domain desk -- $threads >/dev/null
section parts
steward run --domain desk -- $threads >/tmp/read
pages
# The same where nobody is served first.
steward domain remove desk >/dev/null
steward domain create third --io-fraction 25% --keep >/dev/null
section fraction
steward run --domain third -- $threads >/tmp/read
pages
# From when both want it they have their parts.
section shared
steward run --domain half -- $threads >/tmp/other &
steward run --domain third -- $threads >/tmp/read
wait $!
pages
mv /tmp/other /tmp/read
pages | sed s/pages/others/
kill %1
stop_daemon
