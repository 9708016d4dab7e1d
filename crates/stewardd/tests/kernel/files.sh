# The control files, as a shell uses them: looked at, written, refused, and after the daemon was killed.
# It runs in the lab's machine, after prelude.sh.
start_daemon
domains=/run/steward/domains

section tree
ls /run/steward/fs
readlink /run/steward/fs/self
cat $domains/cpu $domains/sched
section forecasts
head -n 1 /run/steward/forecasts
awk -v self=$$ '$2 == self { print NF, "words about", $12 }' /run/steward/forecasts
awk 'NR == 2 { print "domain", $4 }' /run/steward/self/forecast
section reserve
mkdir $domains/batch
echo 50 >$domains/batch/cpu
cat $domains/batch/cpu $domains/batch/cpu.sum
steward domain list
section members
sleep 100000 &
member=$!
echo $member >$domains/batch/members
[ "$(cat $domains/batch/members)" = $member ] && echo moved
# A shell in the domain finds itself there, and changes what it has.
sh -c "echo \$\$ >$domains/batch/members; readlink /run/steward/fs/self; echo 40 >/run/steward/self/cpu"
cat $domains/batch/cpu
section refused
env echo 97 >$domains/batch/cpu
cat /run/steward/last_error
env echo lots >$domains/batch/cpu
cat /run/steward/last_error
cat $domains/batch/cpu
section another-user
su user -c "env echo 10 >$domains/batch/cpu; cat /run/steward/last_error"
cat $domains/batch/cpu
section removed
rmdir $domains/batch
kill $member
wait_for "[ ! -e $domains/batch ]"
ls $domains | grep -c batch

section killed
kill -9 $daemon
wait $daemon 2>/dev/null
ls /run/steward/fs
steward revert
grep -c /run/steward/fs /proc/mounts
# The scheduler takes long to load, and has no part in this.
start_daemon --mechanism deadline
cat $domains/cpu
grep -c /run/steward/fs /proc/mounts
section stopped
kill $daemon
wait $daemon
echo "exit code $?"
grep -c /run/steward/fs /proc/mounts
ls /run/steward
