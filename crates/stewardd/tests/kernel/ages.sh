# By what it is known what protected domains use: with the ages of pages, when they are turned off and on while the
# daemon runs, and beside a disk that rotates. On a machine of 384 MB with a disk; it runs in the lab's machine, after
# prelude.sh.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
ages=/sys/kernel/mm/lru_gen/enabled
rotates=/sys/block/vda/queue/rotational
cgroups=/sys/fs/cgroup
echo 0 >$rotates
dd if=/dev/zero of=/scratch/book bs=1M count=300 2>/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches

used_from() { steward status --json | tr -d ' \n' | sed -n 's/.*"used_from":"\([a-z_]*\)".*/\1/p'; }
field() { steward domain show --json $1 | tr -d ' \n' | sed -n "s/.*\"$2\":\"*\([a-z0-9_]*\).*/\1/p"; }

section nobody
start_daemon --mechanism deadline
echo "from $(used_from)."
section ages
mkfifo /tmp/reads
# A program that holds 30 MB, and reads a book that is larger than what may be kept when it is told to.
steward domain create reader --protect=60s --keep >/dev/null
steward run --domain reader -- sh -c 'keystrokes --anonymous-mb 30 --keys 0 & read line </tmp/reads; dd if=/scratch/book of=/dev/null bs=64k 2>/dev/null; echo >/tmp/has-read; wait' &
wait_for '[ "$(used_from)" = mglru ]'
echo "from $(used_from)."
section turned-off
echo n >$ages
wait_for '[ "$(used_from)" = refaults_and_pressure ]'
echo "from $(used_from), of the reader from $(field reader used_from)."
steward domain show reader | grep 'memory used, by'
steward doctor | grep -i 'page ages\|memory used, by'
section reads
wait_for '[ "$(field reader kept)" -gt 30000000 ]'
echo >/tmp/reads
wait_for '[ -e /tmp/has-read ]'
# Two looks and more.
sleep 3
echo "charged $(($(cat $cgroups/steward.reader/memory.current) >> 20)) MiB"
echo "kept $(($(field reader kept) >> 20)) MiB"
grep -c 'is not protected for now' /tmp/log | sed 's/^/demoted /'
section slow-disk
echo 1 >$rotates
wait_for '[ "$(used_from)" = none ]'
echo "from $(used_from)."
steward doctor | grep 'memory used, by'
sleep 2
echo "kept $(($(field reader kept) >> 20)) MiB"
section by-hand
mkdir -p /etc/steward
printf '[memory]\nages = "refaults-and-pressure"\n' >/etc/steward/steward.toml
wait_for '[ "$(used_from)" = refaults_and_pressure ]'
echo "from $(used_from)."
printf '[memory]\nages = "damon"\n' >/etc/steward/steward.toml
wait_for 'steward status | grep -q "ages = "'
steward status
section on-again
rm /etc/steward/steward.toml
echo y >$ages
wait_for '[ "$(used_from)" = mglru ]'
echo "from $(used_from)."
