# What stands in the way: another scheduler, a second daemon, and a kernel that takes the scheduler out again and
# again. It runs in the lab's machine, after prelude.sh.
program one
row one 5ms/30ms >$specs/50-one.toml

null-scheduler &
other=$!
wait_for 'grep -q enabled $state'
section another-scheduler
try stewardd
ls /run/steward 2>&1
kill -9 $other
wait $other 2>/dev/null
wait_for 'grep -q disabled $state'

start_daemon
steward run -- /opt/one/sleep 100000 &
program=$!
wait_until_listed $program
section second-daemon
try stewardd
section not-root
mkdir -m 777 /tmp/user
try su user -c 'stewardd --socket /tmp/user/socket --state-directory /tmp/user/state'

# Three times it is loaded again; then something else is in force.
for restarts in 1 2 3 4; do
    eject
    wait_until_reloaded $restarts
done
section given-up
wait_until_listed $program
steward status --json
section stopped
stop_daemon
kill -0 $program && echo alive
