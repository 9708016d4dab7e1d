# One daemon after another on one machine: promises are made, refused, changed, and outlive the daemon.
# It runs in the lab's machine, after prelude.sh.
program one
program other
row one 5ms/30ms >$specs/50-one.toml
# What most systems allow a service at first.
ulimit -Hn 65536
ulimit -Sn 1024
start_daemon
section descriptors
ulimit -Sn
grep 'Max open files' /proc/$daemon/limits

# A shell that is best-effort starts the program without and with leave.
/opt/one/sleep 100000 &
by_hand=$!
steward run -- /opt/one/sleep 100000 &
by_spec=$!
wait_for '[ "$(cat /proc/$by_spec/comm)" = sleep ]'
section pids
echo $by_hand $by_spec
section best-effort
steward explain $by_hand
section specification
steward status --json
section too-much
try steward run --cpu 29ms/30ms -- true
section not-the-owner
try su user -c 'steward run --cpu 5ms/30ms -- true'
try su user -c "steward set $by_hand --cpu 5ms/30ms"
section at-the-machine
mkdir -p /run/systemd/users /run/systemd/sessions
echo ACTIVE_SESSIONS=c1 >/run/systemd/users/1000
printf 'UID=1000\nACTIVE=1\nREMOTE=0\nCLASS=user\nSEAT=seat0\n' >/run/systemd/sessions/c1
try su user -c 'steward run --cpu 5ms/30ms -- true'
try su user -c 'steward run --cpu 51ms/100ms -- true'
rm -r /run/systemd/users /run/systemd/sessions
section another-user
try steward run --user user --cpu 1ms/100ms -- sh -c 'id -u; steward explain $$'
section by-hand
steward set $by_hand --cpu 2ms/100ms
section run-with-cpu
try steward run --cpu 3ms/50ms -- sh -c 'steward explain $$; exit 7'

# A user who may reserve for programs of their own asks for one while it executes one with root's rights.
section race
rules=/etc/steward/authority/50-race.toml
mkdir -p ${rules%/*}
printf '[[rule]]\nwho = "user:user"\naction = "reserve"\nof = "own"\nverdict = "allow"\n' >$rules
cp /usr/bin/set-user-id-race /opt/set-user-id
chmod 4755 /opt/set-user-id
wait_for "su user -c 'sleep 1 & steward set \$! --cpu 1ms/100ms'"
su user -c 'set-user-id-race 200 /opt/set-user-id'
# What such a program had before it became one is not given to it anew when the daemon starts again.
mkfifo -m 666 /opt/gate
su user -c 'set-user-id-race child 0 /opt/set-user-id </opt/gate >/dev/null & echo $!' >/opt/raised
exec 7>/opt/gate
read -r raised </opt/raised
su user -c "steward set $raised --cpu 7ms/100ms"
echo x >&7
wait_for "grep -q '^Uid:.1000.0' /proc/$raised/status"
rm $rules
wait_for "! su user -c 'sleep 1 & steward set \$! --cpu 1ms/100ms'"

# The files change; nobody tells the daemon.
{ row one 8ms/30ms; row other 1ms/30ms; printf '[[spec]]\npath = "relative"\ncpu = "1ms/30ms"\n'; } >$specs/50-one.toml
wait_for 'steward status | grep -q "50-one.toml:8"'
section changed
steward status --json
# A typing error takes nothing away, over a restart of the daemon neither.
{ row one 8ms/30ms; echo 'inherrit = true'; row other 1ms/30ms; } >$specs/50-one.toml
wait_for 'steward status | grep -q "50-one.toml:4"'
section typing-error
steward explain $by_spec
section doctor
try steward doctor

# Works some milliseconds, sleeps twenty, and says nothing: what it misses is seen by the scheduler.
cat >/tmp/frames <<'END'
echo $$ >/tmp/frames.pid
while :; do
    i=0
    while [ $i -lt 20 ]; do i=$((i + 1)); done
    sleep 0.02
done
END
section tune-command
steward tune --window 400ms --within 40s --write /tmp/found.toml -- sh /tmp/frames >/tmp/tuned &
tuner=$!
wait_for 'grep -q . /tmp/tuned'
cat /tmp/tuned
kill $(cat /tmp/frames.pid)
wait $tuner
echo "exit code $?"
steward spec check /tmp/found.toml
section tune-pid
sh /tmp/frames &
frames=$!
try steward tune --pid $frames --window 400ms --within 40s
steward explain $frames
kill $frames

# Works nine milliseconds at a time where five are promised, beside who takes all that is left of that CPU.
section too-small
taskset 1 busy-loops --count 1 >/dev/null &
loops=$!
taskset 1 onoff --on-ms 9 --off-ms 91 >/dev/null &
small=$!
wait_for '[ "$(cat /proc/$small/comm)" = onoff ]'
steward set $small --cpu 5ms/100ms
wait_for 'steward explain $small | grep -Eq "of ([3-9][0-9]|[0-9]{3,}) periods"'
steward explain $small
kill $small $(cat /proc/$loops/task/$loops/children) $loops

# The same before everybody else.
busy-loops --real-time 50 >/dev/null &
loops=$!
wait_for 'grep -q . /proc/$loops/task/$loops/children'
read -r burner </proc/$loops/task/$loops/children
wait_for 'steward status --json | grep -Eq "\"real_time\": (0\.[6-9]|1)"'
section real-time
steward status --json
section real-time-explained
steward explain $burner
kill $burner $loops

section killed
kill -9 $daemon
wait $daemon 2>/dev/null
wait_for 'grep -q disabled $state'
cat $state
echo "polls $tries"
kill -0 $by_hand && kill -0 $by_spec && echo alive
try steward status
start_daemon
section raised
steward explain $raised
exec 7>&-
section restarted
steward status --json

section ejected
eject
wait_until_reloaded 1
wait_until_listed $by_spec
steward status --json
kill -0 $by_hand && kill -0 $by_spec && echo alive >/tmp/alive
section log
cat /tmp/log

section stopped
stop_daemon
kill -0 $by_hand && kill -0 $by_spec && cat /tmp/alive
