#!/bin/sh
# Starts the browser of the timed disk (timed-root.sh) on display :1, and ends it once its page is shown: then the title
# of its window is that of the page. Usage, in the machine: browser-start.sh
set -u
export DISPLAY=:1 HOME=/root
chroot /timed/root /usr/bin/dillo file:///root/page.html >/dev/null 2>&1 &
browser=$!
until chroot /timed/root /usr/bin/xdotool search --onlyvisible --name 'A page of the lab' >/dev/null 2>&1; do
    kill -0 $browser || exit 1
    sleep 0.1
done
kill $browser
wait $browser
# What reads files for it goes with it.
chroot /timed/root /usr/libexec/dillo/dpidc stop
exit 0
