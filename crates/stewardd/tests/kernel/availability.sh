# How much memory a domain may use, as a program in it is told while another one takes memory and while the daemon
# starts again. It runs in the lab's machine, after prelude.sh. The scheduler has no part in it, and takes long to load.
start_daemon --mechanism deadline
try steward domain create a --memory-min 16M --keep
try steward domain create b --memory-max 400M --keep

section told
steward run --domain a -- availability-check watch >/tmp/told &
watcher=$!
wait_for 'grep -q told /tmp/told'
cat /tmp/told
availability-check poll /run/steward/domains/a/memory.available >/tmp/polled &
poller=$!
wait_for 'grep -q told /tmp/polled'

section taken
steward run --domain b -- availability-check take 160 >/tmp/taken &
taker=$!
wait_for 'grep -q took /tmp/taken'
# Whatever is still to be told is told by then.
sleep 1
cat /tmp/taken /tmp/told
section polled
cat /tmp/taken /tmp/polled
kill $poller
section available
steward available a --json
cat /run/steward/domains/a/memory.available

section idle
# The daemon looks four times a second while somebody watches, and not at all for that when nobody does.
switches() { awk '/^voluntary_ctxt_switches/ { print $2 }' /proc/$daemon/status; }
before=$(switches)
sleep 4
echo "watched $(($(switches) - before))"
kill $watcher
sleep 1
before=$(switches)
sleep 4
echo "idle $(($(switches) - before))"

section again
steward run --domain a -- availability-check watch >/tmp/again &
watcher=$!
wait_for 'grep -q told /tmp/again'
kill -9 $daemon
wait $daemon 2>/dev/null
# What it was told before is not what it is told by the next one.
kill $taker
start_daemon --mechanism deadline
wait_for '[ $(grep -c told /tmp/again) -ge 2 ]'
cat /tmp/again
kill $watcher
