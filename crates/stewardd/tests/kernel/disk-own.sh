# What the daemon itself spends on disks while one is busy, with few domains and with many: by its own metric, in
# thousands of instructions a second (4 ns of the clock are one). It runs in the lab's machine, after prelude.sh.
sh /lab/timed-disk.sh 5400rpm 64 0 || exit 1
mkdir -p /etc/steward/domains
printf '[metrics]\nlisten = "127.0.0.1:9101"\n' >>/etc/steward/steward.toml
procs() { echo /sys/fs/cgroup/steward.$1/cgroup.procs; }
# Of ten domains one is served first, one is in the background and one has a fraction; each has a program.
domains=0
declare_until() {
    first=$domains
    while [ $domains -lt $1 ]; do
        case $((domains % 10)) in
        0) given='io = "interactive"' ;;
        1) given='io = "background"' ;;
        2) given='disk = "0.2%"' ;;
        *) given= ;;
        esac
        printf '[[domain]]\nname = "d%d"\n%s\n' $domains "$given"
        domains=$((domains + 1))
    done >/etc/steward/domains/from-$first.toml
}
fill() {
    while [ $first -lt $domains ]; do
        wait_for "[ -e $(procs d$first) ]"
        sh -c "echo \$\$ >$(procs d$first); exec sleep 100000" &
        first=$((first + 1))
    done
}
declare_until 10
start_daemon --mechanism deadline
reads() {
    sh -c "echo \$\$ >$(procs $1); exec disk-load random-read --file /timed/read --mb 16 --seconds 100000 $2" >/dev/null &
}
spent() { wget -q -O - http://127.0.0.1:9101/metrics | sed -n 's/^steward_disk_own_cpu_seconds_total{work="\(.*\)"} /\1 /p'; }
measure() {
    sleep 8
    spent >/tmp/before
    sleep 15
    spent >/tmp/after
    cat /tmp/before /tmp/after | awk '$1 in before { spent = ($2 - before[$1]) / 15 / 4e-9 / 1000; all += spent; printf "%s %d\n", $1, spent }
        { before[$1] = $2 }
        END { printf "all %d\n", all }'
}
fill
disk-load random-read --file /timed/read --mb 16 --seconds 1 >/dev/null
# One waits now and then beside three that keep the disk busy.
reads d0 '--think-ms 200'
for domain in d1 d2 d3; do reads $domain '--threads 4'; done
section few
measure
declare_until 200
fill
section many
measure
stop_daemon
