# By what it is known what protected domains use: with the ages of pages, without them on a swap in memory, and beside a
# disk that rotates. On a machine of 512 MB; it runs in the lab's machine, after prelude.sh.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
modprobe zram
echo 700M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
ages=/sys/kernel/mm/lru_gen/enabled
cgroups=/sys/fs/cgroup

used_from() { steward status --json | tr -d ' \n' | sed -n 's/.*"used_from":"\([a-z_]*\)".*/\1/p'; }
field() { steward domain show --json ${1##*/steward.} | tr -d ' \n' | sed -n "s/.*\"$2\":\"*\([a-z0-9_]*\).*/\1/p"; }
charged_mib() { echo $(($(cat $1/memory.current) >> 20)); }

section nobody
start_daemon --mechanism deadline
echo "from $(used_from)."
section ages
steward run --protect=60s -- keystrokes --anonymous-mb 60 --keys 10 --pause 3 >/tmp/keys &
editor=$cgroups/steward.run-$!
wait_for '[ -n "$(used_from)" ]'
echo "from $(used_from)."
section turned-off
echo n >$ages
wait_for '[ "$(used_from)" = refaults_and_pressure ]'
echo "from $(used_from), of the editor from $(field $editor used_from)."
steward domain show ${editor##*/steward.} | grep 'memory used, by'
steward doctor | grep 'memory used, by'
section beside-hogs
# From now on, keys are pressed beside it.
before=$(grep -c '^m' /tmp/keys)
steward run --memory-max 2G -- memory-hog --mb 300 --rounds 1000 >/dev/null &
one=$cgroups/steward.run-$!
steward run --memory-max 2G -- memory-hog --mb 250 --rounds 1000 >/dev/null &
other=$cgroups/steward.run-$!
wait_for '[ $(cat $one/memory.swap.current) -gt 10000000 ]'
pressed=$(grep -c '^m' /tmp/keys)
wait_for '[ $(grep -c "^m" /tmp/keys) -ge 10 ]'
echo "keys $((10 - pressed))"
echo "faults $(sed -n 's/^m //p' /tmp/keys | tail -n $((10 - pressed)) | sort -n | tail -n 1)"
echo "has $(charged_mib $editor) MiB"
section tried
# One that has most, and that nobody uses: it is tried what it can do without, and no more is taken than that.
steward run --protect=2s -- keystrokes --anonymous-mb 150 --keys 0 &
idle=$cgroups/steward.run-$!
wait_for '[ "$(field $idle kept)" -gt 150000000 ]'
for hog in $one $other; do for child in $(cat $hog/cgroup.procs); do kill -9 $child; done; done
for hog in 1 2 3; do steward run --memory-max 2G -- memory-hog --mb 120 --rounds 1000 >/dev/null & done
wait_for '[ "$(field $idle taken)" -gt 3000000 ]'
sleep 10
echo "taken $(($(field $idle taken) >> 20)) MiB"
echo "has $(charged_mib $idle) MiB"
section slow-disk
mount -t configfs none /sys/kernel/config 2>/dev/null
modprobe null_blk nr_devices=0
slow=/sys/kernel/config/nullb/slow
mkdir $slow
echo 16 >$slow/size
echo 1 >$slow/rotational
echo 1 >$slow/power
wait_for '[ "$(used_from)" = none ]'
echo "from $(used_from)."
steward doctor | grep 'memory used, by'
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
