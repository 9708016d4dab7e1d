# Protected domains that are used and that are not: a program that reads its terminal (somebody is logged in over
# telnet), one that only ticks, and one that works. The swap, without which protection is dropped, is in memory. It runs
# in the lab's machine, after prelude.sh. No scheduler is loaded: it takes no part.
modprobe zram
echo 300M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mkdir -p /etc/steward
ip link set lo up
printf '[cpu]\nmechanism = "deadline"\n[memory]\nidle = "10s"\n' >/etc/steward/steward.toml
start_daemon

# What reads its terminal, 12 MB large.
cat >/opt/editor <<'PROGRAM'
#!/bin/sh
exec steward run --protect=10min -- sh -c '
    text=$(head -c 12000000 /dev/zero | tr "\0" x)
    echo $$ >/tmp/editor
    while read -r line; do echo "$line" >>/tmp/lines; done'
PROGRAM
chmod +x /opt/editor
telnetd -l /opt/editor
mkfifo /tmp/keyboard /tmp/never
sleep 1
nc 127.0.0.1 23 </tmp/keyboard >/dev/null 2>&1 &
exec 7>/tmp/keyboard
wait_for 'test -s /tmp/editor'
editor=steward.run-$(cat /tmp/editor)
# What wakes up once a second.
steward run --protect=10min -- sh -c 'while :; do read -r -t 1 line <>/tmp/never; done' &
ticks=steward.run-$!

min() { cat /sys/fs/cgroup/$1/memory.min; }
kept() { echo "$1: $(($(min $2) >> 20)) MiB kept"; }
# Types a line, and waits until it was read.
type_line() {
    echo "$1" >&7
    wait_for "grep -q $1 /tmp/lines"
}
show() { steward domain show ${1#steward.} | grep -E "last used|in use|protection"; }
shows() { steward domain show --json ${1#steward.} | tr -d ' \n' | grep -o '"activity":{[^}]*}'; }

wait_for "[ \$(min $editor) -gt 12000000 ] && [ \$(min $ticks) -gt 8000000 ]"
section typing
for key in a b c d e; do
    type_line $key
    sleep 3
done
wait_for "[ \$(min $ticks) = 0 ]"
kept editor $editor
kept ticks $ticks
show $editor
section ticks
show $ticks
section lapses
wait_for "[ \$(min $editor) = 0 ]"
kept editor $editor
show $editor
shows $editor
steward status | grep 'not protected'
grep -E 'protection-lapsed' /tmp/log
section returns
ms() { echo $(($(cut -d. -f1 /proc/uptime) * 1000 + 10 * (1$(cut -d. -f2 /proc/uptime | cut -c1-2) - 100))); }
begun=$(ms)
echo f >&7
while [ "$(min $editor)" = 0 ]; do :; done
echo "after $(($(ms) - begun)) ms"
wait_for 'grep -q f /tmp/lines'
kept editor $editor
show $editor
grep -E 'protection-returned' /tmp/log
section cost
# One that is used and one that nobody uses: what it costs to watch them.
for thread in /proc/$daemon/task/*; do
    [ "$(cat $thread/comm)" = activity ] && before=$(cut -d' ' -f1 $thread/schedstat) && watching=$thread
done
sleep 5
echo "cost_us $((($(cut -d' ' -f1 $watching/schedstat) - before) / 5000))"
section works
# A quarter of a CPU, and nobody touches it.
steward run --protect=10min -- sh -c '
    while :; do
        read -r -t 0.05 line <>/tmp/never
        i=0
        while [ $i -lt 2000 ]; do i=$((i + 1)); done
    done' &
works=steward.run-$!
wait_for "[ \$(min $works) != 0 ]"
sleep 14
kept works $works
show $works
section stopped
kill $daemon
wait $daemon
echo "exit code $?"
min $editor
