# The thread that gathers huge pages has nice 19, and is often preempted while it reads what RCU protects. The whole
# kernel waits for such a reader, and takes a scheduler out that keeps it waiting for 21 s. It runs in the lab's
# machine, after prelude.sh.
start_daemon
huge=/sys/kernel/mm/transparent_hugepage
echo always >$huge/enabled
echo 0 >$huge/khugepaged/scan_sleep_millisecs
echo 0 >$huge/khugepaged/alloc_sleep_millisecs
echo 100000 >$huge/khugepaged/pages_to_scan

# Little is left to those outside of these two.
steward domain create a --cpu 60% --keep
steward domain create b --cpu 30% --keep
for name in a b; do
    for each in 1 2 3 4; do
        steward run --domain $name -- busy-loops --loop &
    done
done
for each in 1 2 3; do
    dd if=/dev/zero of=/dev/null bs=48M &
done
sleep 50
section after
cat $state
steward status --json
