# Who may ask for what, on a real kernel: rules, groups, set-user-ID programs, pids that are given out again, and
# processes that somebody else has put where they are. It runs in the lab's machine, after prelude.sh.
rules=/etc/steward/authority
mkdir -p $rules
mkdir -m 777 /tmp/user
as_user() { su user -c "$1"; }
mkdir -m 755 -p /var/lib/steward
start_daemon

# What everybody has, and a lock without which no daemon starts: a directory that an earlier version made is closed.
section state
ls -ld /var/lib/steward | cut -c 1-10
as_user 'cat /var/lib/steward/* </var/lib/steward/undo.journal.lock' 2>&1

section by-default
as_user 'sleep 100000 >/dev/null 2>&1 & echo $! >/tmp/user/theirs'
theirs=$(cat /tmp/user/theirs)
try as_user "steward set $theirs --cpu 1ms/100ms"
try steward set $theirs --cpu 1ms/100ms
try as_user "steward set $theirs --release"

# A rule for a group that the user is in; the daemon sees the file by itself.
section group
printf '[[rule]]\nwho = "group:1000"\naction = "reserve"\nof = "own"\nverdict = "allow"\n' >$rules/50-test.toml
wait_for "as_user 'steward set $theirs --cpu 2ms/100ms'"
steward explain $theirs
try as_user "steward set $$ --cpu 2ms/100ms"

# A program that runs for the user with the rights of root is not the user's.
section set-user-id
cp /usr/bin/steward /opt/set-user-id
chmod 4755 /opt/set-user-id
as_user '/opt/set-user-id events --follow >/dev/null 2>&1 & echo $! >/tmp/user/raised'
raised=$(cat /tmp/user/raised)
wait_for "grep -q '^Uid:.1000.0' /proc/$raised/status"
try as_user "steward set $raised --cpu 1ms/100ms"
steward set $raised --cpu 1ms/100ms
try as_user "steward set $raised --release"
kill $raised

# A mistake takes nothing away that was in force before it, and gives nothing to anybody where nothing was.
section mistake
printf '[[rule]]\nwho = "rubbish"\n' >>$rules/50-test.toml
wait_for 'steward status | grep -q 50-test.toml:7'
try as_user "steward set $theirs --cpu 1ms/100ms"
try as_user "steward set $theirs --release"
rm $rules/50-test.toml
wait_for '! steward status | grep -q 50-test.toml'
section mistake-from-the-beginning
printf '[[rule]]\nwho = "group:1000"\naction = "reserve"\nof = "own"\nverdict = "allow"\n[[rule]]\n' >$rules/50-test.toml
wait_for 'steward status | grep -q 50-test.toml:6'
try as_user "steward set $theirs --cpu 1ms/100ms"
rm $rules/50-test.toml
wait_for '! steward status | grep -q 50-test.toml'

section ask
printf '[[rule]]\nwho = "user:user"\naction = "reserve"\nof = "own"\nverdict = "ask"\n' >$rules/50-test.toml
wait_for "! as_user 'steward set $theirs --cpu 1ms/100ms' 2>&1 | grep -v polkit"
try as_user "steward set $theirs --cpu 1ms/100ms"
rm $rules/50-test.toml

# Somebody else has put the user's process where it is.
section moved
steward domain create theirs --user user --keep
mkdir /sys/fs/cgroup/confined
echo $theirs >/sys/fs/cgroup/confined/cgroup.procs
try as_user "steward domain move $theirs theirs"
grep '^0::' /proc/$theirs/cgroup
echo $theirs >/sys/fs/cgroup/cgroup.procs
try as_user "steward domain move $theirs theirs"
grep '^0::' /proc/$theirs/cgroup
try as_user "steward domain move $$ theirs"

# A slice that limits how many processes its user has is not left for a domain of theirs, given by root.
section slice
slice=/sys/fs/cgroup/user.slice
echo +pids >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p $slice
echo 8 >$slice/pids.max
cat >/tmp/user/children <<'END'
steward domain move $$ theirs
for each in $(seq 60); do sleep 100000 & done
END
chmod 755 /tmp/user/children
(echo 0 >$slice/cgroup.procs; exec su user -c 'sh /tmp/user/children') >/tmp/user/said 2>&1
grep 'which it is in' /tmp/user/said
# The shell ended when it could start no more.
echo "processes $(cat $slice/pids.current) in the slice, $(wc -l </sys/fs/cgroup/steward.theirs/cgroup.procs) in the domain"
echo 1 >$slice/cgroup.kill

# A cgroup that was left to the user to divide is not theirs to leave, the kernel says so too; and what a domain of
# theirs is held to they do not end by removing it.
section left-to-divide
mkdir /sys/fs/cgroup/left
chown user /sys/fs/cgroup/left
echo $theirs >/sys/fs/cgroup/left/cgroup.procs
try as_user "steward domain move $theirs theirs"
grep '^0::' /proc/$theirs/cgroup
section limited
steward domain set theirs --weight 10 >/dev/null
steward domain move $theirs theirs >/dev/null
try as_user 'steward domain remove theirs'
grep '^0::' /proc/$theirs/cgroup

# How much memory a domain may use is told to its user, to root, and to programs in it and above it.
section availability
steward domain create first --user user --memory-max 64M --keep >/dev/null
steward domain create second --user 1001 --memory-max 64M --keep >/dev/null
try as_user 'steward available first'
try as_user 'steward available second'
files=/run/steward/domains
as_user "cat $files/first/memory.available >/dev/null && echo first read; cat $files/second/memory.available" 2>&1
as_user 'for domain in first second; do echo "$domain shown $(steward domain show $domain --json | grep -c available)"; done'
section availability-of-one-inside
steward run --domain second -- su user -c 'steward available second; steward available first; steward available /'
try steward available second
try su user -c 'steward available second'
steward domain remove first >/dev/null
steward domain remove second >/dev/null

# The daemon dies, a program that was given something ends, and its pid is given out again.
section pid-again
steward set $theirs --cpu 3ms/100ms
kill -9 $daemon
wait $daemon 2>/dev/null
kill $theirs
wait_for "! kill -0 $theirs"
for each in 1 2 3 4 5 6 7 8 9 10; do
    echo $((theirs - 1)) >/proc/sys/kernel/ns_last_pid
    sleep 100000 &
    again=$!
    [ $again = $theirs ] && break
    kill $again
done
[ $again = $theirs ] && echo "the same pid"
start_daemon
steward explain $again

# Programs that change a directory are suspended by their user for long; root has a file in it meanwhile.
section suspended
mkdir -m 1777 /tmp/shared
steward domain create held --user user --keep >/dev/null
for number in 1 2 3; do
    steward run --domain held -- su user -c "exec suspension move /tmp/shared/held-$number" &
done
wait_for '[ $(cat /sys/fs/cgroup/steward.held/cgroup.procs | wc -l) -ge 3 ] && ls /tmp/shared/held-3*'
used() { sed -n 's/^usage_usec //p' /sys/fs/cgroup/steward.held/cpu.stat; }
as_user 'suspension hold held 20' &
sleep 1
before=$(used)
suspension touch /tmp/shared/ours 15
echo "used_ms $((($(used) - before) / 1000))"
wait $!
before=$(used)
sleep 1
echo "afterwards used_ms $((($(used) - before) / 1000))"
echo 1 >/sys/fs/cgroup/steward.held/cgroup.kill

# A user who means ill in several ways, one after the other, while another one calls: examples/besieged.rs. The
# history is as long as a test has time for, and there is room for 4,000 threads.
section besieged
ulimit -n 8192
ulimit -u 16000
echo 16000 >/proc/sys/kernel/threads-max
export BESIEGED_ROUNDS=200
ifconfig lo up
besieged forecasts events monitor files subordinates clients complaints metrics-130

section stopped
stop_daemon
