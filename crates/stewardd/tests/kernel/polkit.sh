# What rules leave to polkit, with the real one: it allows, it refuses, it wants a password that nobody can be asked
# for. It runs in a machine with Debian's polkitd and dbus-daemon, after prelude.sh.
rm -rf /var/run
ln -s /run /var/run
mkdir -p /run/dbus /run/systemd/seats /run/systemd/sessions /run/systemd/users /run/systemd/machines \
    /usr/share/polkit-1/actions /etc/polkit-1/rules.d /etc/steward/authority
cp /io.steward.policy /usr/share/polkit-1/actions/
grep -q ^user: /etc/passwd || echo 'user:x:1000:1000::/tmp:/bin/sh' >>/etc/passwd
grep -q ^polkitd: /etc/passwd || echo 'polkitd:x:102:102::/:/bin/false' >>/etc/passwd
grep -q ^polkitd: /etc/group || echo 'polkitd:x:102:' >>/etc/group
cat >/etc/polkit-1/rules.d/10-test.rules <<'RULES'
polkit.addRule(function(action, subject) {
    polkit.log("asked whether " + subject.user + " may " + action.lookup("request"));
    if (action.id == "io.steward.reserve") return polkit.Result.YES;
    if (action.id == "io.steward.administer") return polkit.Result.NO;
});
RULES
chown -R polkitd /etc/polkit-1/rules.d
cat >/tmp/bus.conf <<'BUS'
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/> <allow own="*"/> <allow send_destination="*"/> <allow receive_sender="*"/>
  </policy>
</busconfig>
BUS
as_user() { setpriv --reuid 1000 --regid 1000 --clear-groups sh -c "$1"; }

cat >/etc/steward/authority/50-test.toml <<'RULES'
[[rule]]
who = "user:user"
action = "reserve"
of = "own"
verdict = "ask"
[[rule]]
who = "user:user"
action = "limit"
of = "others"
verdict = "ask"
[[rule]]
who = "user:user"
action = "administer"
of = "others"
verdict = "ask"
RULES
# Whatever gives the CPU: this one takes no time to load.
start_daemon --mechanism deadline
as_user 'sleep 100000 >/dev/null 2>&1 & echo $! >/tmp/theirs'
theirs=$(cat /tmp/theirs)

section no-polkit
try as_user "steward set $theirs --cpu 1ms/100ms"

dbus-daemon --config-file=/tmp/bus.conf --fork --nopidfile
/usr/lib/polkit-1/polkitd >/tmp/polkitd.log 2>&1 &
wait_for 'grep -q Acquired /tmp/polkitd.log'

section allowed
try as_user "steward set $theirs --cpu 1ms/100ms"
section no-agent
try as_user "steward set $daemon --release"
section refused
try as_user "steward reload"
section asked
grep asked /tmp/polkitd.log
section stopped
stop_daemon
