# A save beside writers whose requests lie near to the journal's, for as long as it takes the journal to pass them: of
# programs that ask for what lies within 4 MB the kernel's BFQ makes one queue, and whoever shared one with the
# journal's thread when that was put into another class was in that class as well, for good
# (docs/disk.md#the-elevators-queues). It runs in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 256 0 || exit 1
for n in 1 2 3 4 5 6 7 8; do disk-load fsync --file /timed/writer-$n --mb 1 --seconds 0 >/dev/null; done
printf '[[spec]]\npath = "[jbd2]"\ncpu = "10ms/100ms"\nio = "interactive"\nrevocable = false\n' >$specs/journal.toml
start_daemon --mechanism deadline
steward domain create desk --io interactive --keep >/dev/null
writers=
for n in 1 2 3 4 5 6 7 8; do
    disk-load direct --file /timed/writer-$n --mb 1 --piece-kb 4 --threads 4 --seconds 600 >/dev/null &
    writers="$writers $!"
done
section saves
steward run --domain desk -- file-save --file /timed/note --kb 30 --interval 2 --seconds 90 >/tmp/saved
kill $writers
# Whom the elevator took for interactive in the moment before it was told not to guess counts for ten seconds.
awk '/^r/ && (began += 1) > 6 { sum += $2; count += 1; if ($2 > worst) worst = $2 }
    END { printf "saves %d\nmean %d\nworst %d\n", count, sum / count, worst }' /tmp/saved
stop_daemon
