# Memory of programs that run, given by hand, on a real kernel: who goes with them into a domain that is theirs, also
# while they fork as quickly as they can, and what is refused. It runs in the lab's machine, after prelude.sh.
rules=/etc/steward/authority
mkdir -p $rules
mkdir -m 777 /tmp/user
root=/sys/fs/cgroup
program one
# The scheduler takes long to load, and has no part in this.
start_daemon --mechanism deadline
as_user() { su user -c "$1"; }
# How many processes have this word among their arguments.
count() { cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -cx -e "$1"; }

# A shell that has begun another, which has begun a program; and a program of nobody's.
section tree
sh -c 'sh -c "/opt/one/sleep 1000 & wait" & wait' &
parent=$!
/opt/one/sleep 2000 &
other=$!
wait_for '[ $(count 1000) -eq 1 ]'
try steward set $parent --memory-min 16M --memory-max 64M
own=$root/steward.program-$parent
cat $own/memory.min $own/memory.max
echo "there: $(wc -l <$own/cgroup.procs)"
grep '^0::' /proc/$other/cgroup
section changed
try steward set $parent --memory-min 24M
cat $own/memory.min $own/memory.max
section taken-back
try steward set $parent --memory-min default --memory-max none
cat $own/memory.min $own/memory.max
section by-name
cp /bin/busybox /opt/other/tail
/opt/other/tail -f /dev/null &
named=$!
try steward set tail --memory-min 8M
cat $root/steward.program-$named/memory.min
try steward set nobody-is-called-so --memory-min 8M

section refused
/opt/one/sleep 1000 &
lone=$!
try steward set $lone --memory-min 100G
try steward set $lone --memory-min 2M --memory-max 1M
try steward set 2 --memory-min 1M
try steward set 1 --memory-min 1M
try steward set $daemon --memory-min 1M
thread=$(ls /proc/$daemon/task | tail -n 1)
try steward set $thread --memory-min 1M
try steward set 999999999 --memory-min 1M
try as_user "steward set $lone --memory-min 1M"
grep '^0::' /proc/$lone/cgroup
mkdir $root/another
echo $lone >$root/another/cgroup.procs
try steward set $lone --memory-min 1M
grep '^0::' /proc/$lone/cgroup
ls -d $root/steward.program-$lone
echo $lone >$root/cgroup.procs

# It begins others without end while it is moved, each of which begins one, too: all of them are found.
section forks
cat >/tmp/forks <<'SH'
count=0
while [ $count -lt 300 ]; do
    sh -c '/opt/one/sleep 3000 & wait' &
    count=$((count + 1))
    [ $count -ne 40 ] || touch /tmp/forty
done
touch /tmp/all
wait
SH
sh /tmp/forks &
forker=$!
wait_for '[ -e /tmp/forty ]'
steward set $forker --memory-max 200M | sed 's/and [0-9]* that/and SOME that/'
ls /tmp/all 2>/dev/null
wait_for '[ -e /tmp/all ] && [ $(count 3000) -eq 300 ]'
for pid in $(cat $root/cgroup.procs); do
    cat /proc/$pid/cmdline 2>/dev/null | tr '\0' '\n' | grep -qx -e 3000 -e /tmp/forks && echo "left: $pid"
done
echo "there: $(wc -l <$root/steward.program-$forker/cgroup.procs)"
# Who ends when its parent does may be gone before it is told to.
kill $(cat $root/steward.program-$forker/cgroup.procs) 2>/dev/null
wait_for '[ ! -e '$root/steward.program-$forker' ]'

# Each begins the next one and goes on: a chain.
section chain
cat >/tmp/chain <<'SH'
[ $1 -gt 0 ] || exec /opt/one/sleep 4000
sh /tmp/chain $(($1 - 1)) &
[ $1 -ne 90 ] || touch /tmp/ten
wait
SH
sh /tmp/chain 100 &
chain=$!
wait_for '[ -e /tmp/ten ]'
steward set $chain --memory-max 200M
wait_for '[ $(count 4000) -eq 1 ]'
echo "there: $(wc -l <$root/steward.program-$chain/cgroup.procs)"

# A user whom a rule lets reserve memory, and limit their own: what they began that runs with the rights of another
# stays where it was. One that executes such a program while it is moved belongs to nobody.
section others
printf '[[rule]]\nwho = "user:user"\naction = "reserve"\nof = "anyone"\nverdict = "allow"\n' >$rules/50-test.toml
cp /usr/bin/steward /opt/set-user-id
chmod 4755 /opt/set-user-id
cat >/tmp/user/begins <<'SH'
/opt/set-user-id events --follow >/dev/null 2>&1 &
echo $! >/tmp/user/raised
/opt/one/sleep 5000 &
wait
SH
as_user 'sh /tmp/user/begins >/dev/null 2>&1 & echo $! >/tmp/user/theirs'
wait_for '[ -s /tmp/user/raised ] && [ $(count 5000) -eq 1 ]'
theirs=$(cat /tmp/user/theirs)
raised=$(cat /tmp/user/raised)
wait_for "grep -q '^Uid:.1000.0' /proc/$raised/status"
wait_for "as_user 'steward set $theirs --memory-max 300M' >/tmp/said"
cat /tmp/said
grep '^0::' /proc/$raised/cgroup
try as_user "steward set $raised --memory-min 1M"
try as_user "steward set $lone --memory-min 1M"
rm $rules/50-test.toml

# Killed at any moment of it: what runs is at most in a cgroup that limits nothing, and asking again is enough.
section killed
/opt/one/sleep 6000 &
lone=$!
own=$root/steward.program-$lone
steward set $lone --memory-min 8M >/dev/null &
until [ -e $own ]; do :; done
kill -9 $daemon
wait $daemon 2>/dev/null
wait $!
start_daemon --mechanism deadline
wait_for "steward set $lone --memory-min 8M && grep -qx 8388608 $own/memory.min"
cat $own/memory.min
grep -c "^$lone$" $own/cgroup.procs
section stopped
stop_daemon
cat $own/memory.min
grep -c "^$lone$" $own/cgroup.procs
