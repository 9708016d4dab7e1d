# Steward under the unit that ships, beside systemd as process 1 and a user's manager: whether it can do what it is for
# there, and whether either undoes what the other has set. It runs in a machine with Debian's systemd, after prelude.sh.
rm -rf /var/run
ln -s /run /var/run
# A user's manager without a login, which would take a bus, logind and PAM.
mkdir -p /etc/systemd/system/user@.service.d /etc/systemd/system/stewardd.service.d /etc/steward
printf '[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/1000\n' \
    >/etc/systemd/system/user@.service.d/test.conf
printf '[Service]\nType=oneshot\nExecStart=/usr/bin/install -d -o 1000 -g 1000 /run/user/1000\n' \
    >/etc/systemd/system/user-runtime-dir@.service
cp /lab/stewardd.service /etc/systemd/system/
printf '[Service]\nExecStart=\nExecStart=/usr/sbin/stewardd --mechanism deadline\n' \
    >/etc/systemd/system/stewardd.service.d/test.conf
printf '[Service]\nExecStart=/usr/bin/sleep 1000\n' >/etc/systemd/system/plain.service
printf 'owner = "user"\n[disk]\norder = "keep"\n' >/etc/steward/steward.toml
user=/sys/fs/cgroup/user.slice/user-1000.slice
service=$user/user@1000.service/app.slice/service.service
as_user() {
    HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000 setpriv --reuid 1000 --regid 1000 --clear-groups sh -c "$1"
}
say() { echo "$1: $(cat "$2" 2>/dev/null || echo none)"; }
all() {
    say handed-out /sys/fs/cgroup/cgroup.subtree_control
    say web /sys/fs/cgroup/steward.web/cpu.weight
    say web-memory /sys/fs/cgroup/steward.web/memory.max
    say web-disk /sys/fs/cgroup/steward.web/io.max
    say build /sys/fs/cgroup/steward.alice/build/cpu.weight
    say slice $user/cpu.weight
    say service $service/cpu.weight
    say service-quota $service/cpu.max
    say service-memory $service/memory.high
}
systemctl daemon-reload

section started
try systemctl start stewardd
steward status | head -n 1
all
section made
steward domain create web --weight 300 --memory-max 100M --io-max 10M/s --keep >/dev/null
steward run --domain web -- sleep 1000 &
wait_for 'grep -q rbps /sys/fs/cgroup/steward.web/io.max'
all
section files-read-anew
systemctl start plain
systemctl stop plain
# From now on the root hands out what systemd's own units ask for, which is nothing of these two, until the daemon
# notices.
systemctl daemon-reload
systemctl start plain
wait_for 'grep -q 300 /sys/fs/cgroup/steward.web/cpu.weight && grep -q rbps /sys/fs/cgroup/steward.web/io.max'
all
said() { journalctl -u stewardd --no-pager | grep -o 'decision="[a-z]*-handed-out-again"' | sort -u; }
sleep 1
said

section user
systemctl start user@1000
wait_for '[ -S /run/user/1000/systemd/private ]'
as_user 'mkdir -p ~/.config/systemd/user
    printf "[Service]\nExecStart=/usr/bin/sleep 1000\nCPUWeight=50\nCPUQuota=20%%\nMemoryHigh=200M\n" \
        >~/.config/systemd/user/service.service
    systemctl --user daemon-reload
    systemctl --user start service'
steward domain create alice --weight 200 --user user --keep >/dev/null
as_user 'steward domain create alice/build --weight 50 --keep >/dev/null
    steward run --domain alice/build -- sleep 1000 &
    steward background -- sleep 1000 2>/dev/null &'
wait_for 'grep -q . /sys/fs/cgroup/steward.alice/build/cgroup.procs'
# The user's manager asks for less than the root hands out, as above.
wait_for 'grep -q rbps /sys/fs/cgroup/steward.web/io.max'
all
section set
as_user 'systemctl --user set-property service.service CPUWeight=77 MemoryHigh=150M
    systemctl --user daemon-reload
    steward domain set alice/build --weight 60 >/dev/null'
systemctl set-property user-1000.slice CPUWeight=33
systemctl daemon-reexec
steward domain set web --weight 400 >/dev/null
wait_for 'grep -q rbps /sys/fs/cgroup/steward.web/io.max'
all
section killed
# It is started anew by systemd, and takes over what is there: each kind of limit after the other, at its loop's pace.
systemctl kill --kill-whom=main --signal=KILL stewardd
wait_for 'systemctl show stewardd | grep -q NRestarts=1 && steward status'
wait_for 'grep -q 400 /sys/fs/cgroup/steward.web/cpu.weight && grep -q rbps /sys/fs/cgroup/steward.web/io.max'
wait_for 'grep -qx 104857600 /sys/fs/cgroup/steward.web/memory.max'
all
section session-ended
systemctl stop user@1000
ls -d $user/* 2>/dev/null
steward domain list | grep -o ' build '
wait_for 'grep -q rbps /sys/fs/cgroup/steward.web/io.max'
all
# What is said to do where domains are to have theirs without a gap.
section asked-for
systemctl set-property --runtime user.slice CPUWeight=100 IOWeight=50
systemctl restart plain
systemctl set-property --runtime plain.service CPUWeight=20
all
# Programs with a specification, in a service of each manager: each has a scope of its own in the slice that it is in.
section scopes
mkdir -p /opt/one
cp "$(command -v sleep)" /opt/one/sleep
printf '[Service]\nExecStart=/opt/one/sleep 1000\n' >/etc/systemd/system/placed.service
cp /etc/systemd/system/placed.service /home/user/.config/systemd/user/
systemctl daemon-reload
systemctl start user@1000
wait_for '[ -S /run/user/1000/systemd/private ]'
as_user 'systemctl --user start placed'
systemctl start placed

first=$(systemctl show --property MainPID --value placed)
second=$(as_user 'systemctl --user show --property MainPID --value placed')
say before-first /proc/$first/cgroup
say before-second /proc/$second/cgroup
printf '[[spec]]\npath = "/opt/one/sleep"\nmemory_min = "8M"\nmemory_max = "48M"\n' >/etc/steward/specs/placed.toml
for pid in $first $second; do
    wait_for 'steward explain '$pid' | grep -q "of its memory is in force"' || steward explain $pid
done
first_scope=/sys/fs/cgroup/system.slice/steward-program-$first.scope
second_scope=$user/steward-program-$second.scope
# systemd may write its own once more when it has made a scope; the daemon looks again within a second.
has_its_own() { grep -qx 50331648 $1/memory.max && grep -qx 8388608 $1/memory.min; }
has_for_those_below() { grep -qx 8388608 $1/memory.min; }
wait_for "has_its_own $first_scope && has_its_own $second_scope"
of_scopes() {
    say first-max $first_scope/memory.max
    say first-min $first_scope/memory.min
    say first-runs $first_scope/cgroup.procs | sed "s/\b$first\b/first/"
    say second-max $second_scope/memory.max
    say second-min $second_scope/memory.min
    say second-runs $second_scope/cgroup.procs | sed "s/\b$second\b/second/"
    say system-min /sys/fs/cgroup/system.slice/memory.min
    say user-min /sys/fs/cgroup/user.slice/memory.min
    say slice-min $user/memory.min
}
of_scopes
echo "placed: $(systemctl is-active placed) $(as_user 'systemctl --user is-active placed')"
# systemd writes all that it has for a unit when any of it changes.
section scopes-written-anew
systemctl set-property --runtime user.slice IOWeight=60
systemctl set-property --runtime steward-program-$first.scope CPUWeight=90
systemctl daemon-reload
# It answers once it has written what was asked for before.
systemctl is-active placed >/dev/null
wait_for "has_its_own $first_scope && has_its_own $second_scope"
wait_for "has_for_those_below /sys/fs/cgroup/user.slice && has_for_those_below $user"
of_scopes
section scopes-ended
systemctl stop placed
wait_for '[ ! -e '$first_scope' ]'
wait_for "has_its_own $second_scope && has_for_those_below $user"
of_scopes
systemctl set-property --runtime user.slice IOWeight=50
# A program of a service's that runs, by hand: with what it has started it goes into a scope in the slice that it is in.
section by-hand
printf '[Service]\nSlice=hand.slice\nExecStart=/bin/sh -c "sleep 7000 & exec sleep 8000"\n' >/etc/systemd/system/hand.service
systemctl daemon-reload
systemctl start hand
hand=$(systemctl show --property MainPID --value hand)
wait_for '[ $(wc -l </sys/fs/cgroup/hand.slice/hand.service/cgroup.procs) -eq 2 ]'
try steward set $hand --memory-min 4M --memory-max 32M | sed "s/$hand/PID/g"
hand_scope=/sys/fs/cgroup/hand.slice/steward-program-$hand.scope
wait_for "grep -qx 4194304 $hand_scope/memory.min && grep -qx 33554432 $hand_scope/memory.max"
say hand-min $hand_scope/memory.min
echo "hand-runs: $(wc -l <$hand_scope/cgroup.procs), $(systemctl is-active hand)"
try steward set $hand --memory-min 6M | sed "s/$hand/PID/g"
wait_for "grep -qx 6291456 $hand_scope/memory.min"
say hand-changed $hand_scope/memory.min
say hand-slice /sys/fs/cgroup/hand.slice/memory.min
# What its slice may use at most holds for it, and is lowered and raised meanwhile.
systemctl set-property --runtime hand.slice MemoryMax=40M
try steward set $hand --memory-min 48M --memory-max 64M
say hand-refused $hand_scope/memory.min
systemctl set-property --runtime hand.slice MemoryMax=5M
wait_for "grep -qx 5242880 $hand_scope/memory.min"
say hand-lessened $hand_scope/memory.min
steward domain show hand.slice/steward-program-$hand.scope | grep 'so of the'
systemctl set-property --runtime hand.slice MemoryMax=infinity
wait_for "grep -qx 6291456 $hand_scope/memory.min"
say hand-again $hand_scope/memory.min
systemctl stop hand
kill $(cat $hand_scope/cgroup.procs)
wait_for '[ ! -e '$hand_scope' ]'
section stopped
try systemctl stop stewardd
all
of_scopes
say user-disk /sys/fs/cgroup/user.slice/io.weight
say plain /sys/fs/cgroup/system.slice/plain.service/cpu.weight
# One that does not stop in time is killed, and is not started again: what it has changed is put back all the same.
section killed-in-the-end
# It is asked by a signal that it knows nothing of.
sed -i '$a KillSignal=SIGURG\nTimeoutStopSec=20' /etc/systemd/system/stewardd.service.d/test.conf
systemctl daemon-reload
systemctl start stewardd
steward run --domain web -- sleep 1000 &
wait_for 'grep -qx 104857600 /sys/fs/cgroup/steward.web/memory.max'
systemctl stop stewardd
systemctl show --property Result --property ActiveState stewardd
say web-memory /sys/fs/cgroup/steward.web/memory.max
systemctl reset-failed stewardd

# The unit as it ships: what it may do suffices to load the scheduler, also when it is started anew. A busy host may be
# slower than systemd's own patience with a start.
rm /etc/systemd/system/stewardd.service.d/test.conf
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStartSec=600\n' >/etc/systemd/system.conf.d/test.conf
systemctl daemon-reexec
section as-it-ships
systemctl start stewardd
steward status --json
section as-it-ships-killed
systemctl kill --kill-whom=main --signal=KILL stewardd
wait_for 'systemctl show stewardd | grep -q NRestarts=1 && steward status'
steward status --json
section as-it-ships-beside-another-manager
systemctl daemon-reexec
steward status --json
section as-it-ships-in-the-kernel
cat $state /sys/kernel/sched_ext/root/ops
systemctl show --property DropInPaths,ActiveState,NRestarts stewardd
echo "not told of active CPUs: $(journalctl -u stewardd --no-pager | grep -c 'decision="active-cpus"')"
