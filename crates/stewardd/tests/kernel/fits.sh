# What becomes of protected programs that do not fit together, and of what they use that is charged to somebody else: on
# a machine of 512 MB with a disk for a file and the swap: one in memory would take room from them. It runs in the lab's
# machine, after prelude.sh.
echo 0 >/sys/block/vda/queue/rotational
fallocate -l 350M /scratch/swap
chmod 600 /scratch/swap
mkswap /scratch/swap >/dev/null
swapon /scratch/swap
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
cgroups=/sys/fs/cgroup
# The scheduler has no part in it, and takes long to load.
start_daemon --mechanism deadline

minimum_mib() { echo $(($(cat $cgroups/steward.$1/memory.min) >> 20)); }
# What each of the three keeps, whether it is demoted, and what of it is in the swap.
all() {
    for name in large middle small; do
        [ -d $cgroups/steward.$name ] || continue
        swapped=$(($(cat $cgroups/steward.$name/memory.swap.current) >> 20))
        echo "$name: $(minimum_mib $name) MiB kept of $(($(cat $cgroups/steward.$name/memory.current) >> 20)), $swapped swapped"
    done
}
# Programs whose working sets are such parts of what there is, in percent: two fit, and three do not.
room=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
made() { [ -d $cgroups/steward.$1 ] || steward domain create $1 --protect=10min --keep >/dev/null; }
holds() { # holds NAME PERCENT: has a protected program of its own hold so much
    made $1
    steward run --domain $1 -- keystrokes --anonymous-mb $((room * $2 / 100)) --keys 0 &
}
# The same in thirds, each a second after the other: who takes all of it within a moment has everybody's protection
# dropped, before any use is known.
grows() { # grows NAME PERCENT
    made $1
    for third in 1 2 3; do
        steward run --domain $1 -- keystrokes --anonymous-mb $((room * $2 / 300 + 1)) --keys 0 &
        sleep 1
    done
}
is_kept() { [ $(minimum_mib $1) -ge $((room * $2 / 100)) ]; }
end() { # end NAME
    for pid in $(cat $cgroups/steward.$1/cgroup.procs $cgroups/steward.$1/*/cgroup.procs 2>/dev/null); do kill $pid; done
}
told() { steward events | grep 'not protected for now\|is protected again' | sed 's/^.*The memory of \([a-z]*\) is \(not\|protected\).*/\1 \2/'; }

section fit
holds large 42
holds middle 35
wait_for 'is_kept large 42 && is_kept middle 35'
all
section larger
# With a third one, not all fit.
grows small 27
wait_for 'is_kept small 27 && [ $(minimum_mib large) = 0 ]'
all
told
steward events | grep 'not protected for now'
section explained
steward explain --domain large
steward domain show large | grep -i protect
steward domain show --json large | tr -d ' \n' | grep -o '"kept":[0-9]*'
section hog
# Who is demoted pays with the others, and nobody else that is protected.
steward run -- memory-hog --mb $((room * 30 / 100)) --rounds 1 >/dev/null
all
section less
# With less room the next largest goes, too.
mkdir -p /etc/steward
total=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
printf '[memory]\nreservable = 0.%02d\n' $((room * 36 / total)) >/etc/steward/steward.toml
wait_for '[ $(minimum_mib middle) = 0 ]'
all
told
section more
# Whoever fits again comes back once it has been demoted for five seconds, the smaller one first.
sleep 6
rm /etc/steward/steward.toml
wait_for 'is_kept middle 35'
all
end small
wait_for '[ $(minimum_mib large) -gt 0 ]'
all
told
steward events | grep 'is protected again'
end large
end middle
section once
# A third one takes all of it within a moment.
for name in large middle small; do wait_for "[ ! -s $cgroups/steward.$name/cgroup.procs ]"; done
holds large 42
holds middle 35
wait_for 'is_kept large 42 && is_kept middle 35'
holds small 27
wait_for 'is_kept small 27 && is_kept middle 35 && [ $(minimum_mib large) = 0 ]'
all
for name in large middle small; do end $name; done

section shared
# A file that another cgroup reads first, and a protected program maps.
mkdir $cgroups/first
in_first() { sh -c "echo \$\$ >$cgroups/first/cgroup.procs; exec $1"; }
dd if=/dev/urandom of=/scratch/book bs=1M count=24 2>/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches
in_first 'cat /scratch/book' >/dev/null
charged() { echo "charged to the first $(($(sed -n 's/^file //p' $cgroups/first/memory.stat) >> 20)) MiB"; }
charged
steward domain create reader --protect=10min --keep >/dev/null
steward run --domain reader -- keystrokes --anonymous-mb 8 --file /scratch/book --keys 6 --pause 5 >/tmp/keys &
reader=$cgroups/steward.reader
wait_for 'grep -q "^m " /tmp/keys'
held() { echo "held $(($(sed -n 's/^unevictable //p' $cgroups/first/memory.stat) >> 20)) MiB"; }
wait_for "[ \$(sed -n 's/^unevictable //p' $cgroups/first/memory.stat) -gt 20000000 ]"
held
# What that one is charged for is asked back, and then everybody's.
echo 24M >$cgroups/first/memory.reclaim 2>/dev/null
section reclaimed
charged
held
keys=$(grep -c '^m ' /tmp/keys)
steward run -- memory-hog --mb $((room * 95 / 100)) --rounds 1 >/dev/null &
hog=$!
wait_for "[ \$(grep -c '^m ' /tmp/keys) -gt $((keys + 1)) ]"
wait $hog
section ended
# The one that it is charged to goes.
rmdir $cgroups/first
[ -d $cgroups/first ] || echo gone
steward run -- memory-hog --mb $((room * 95 / 100)) --rounds 1 >/dev/null &
hog=$!
wait_for "[ \$(grep -c '^m ' /tmp/keys) -ge 6 ]"
wait $hog
grep '^m ' /tmp/keys
echo "of the book in memory: $(($(grep -A 12 'scratch/book' /proc/$(cat $reader/cgroup.procs)/smaps | awk '$1 == "Rss:" { print $2; exit }') >> 10)) MiB"
section stopped
kill $daemon
wait $daemon
echo "exit code $?"
cat $reader/memory.min
