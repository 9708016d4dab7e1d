#!/bin/sh
# What the scenario window-drag runs in the machine: sh window-moves.sh manage | flood | rehearse CLIP
#
# manage: a window manager that places windows by itself. flood: moves the window of xlogo without a pause, a line for
# each 200 moves. rehearse: starts each of the programs once, with a piece of the clip; fails when one of them does.
export DISPLAY=:1

manage() {
    # The X server has this font built in; there are no others in the machine.
    for what in Title Menu Icon Resize IconManager; do echo "${what}Font \"fixed\""; done >/run/lab/twmrc
    echo 'RandomPlacement' >>/run/lab/twmrc
    exec twm -f /run/lab/twmrc
}

flood() {
    moves=$(mktemp)
    window=$(xdotool search --sync --name xlogo | tail -n 1)
    step=0
    while [ $step -lt 200 ]; do
        echo "windowmove $window $((step % 40 * 5)) $((step % 25 * 6))"
        step=$((step + 1))
    done >"$moves"
    while xdotool "$moves"; do echo moved; done
}

rehearse() {
    Xvfb :1 -screen 0 320x240x16 -nolisten tcp -ac &
    server=$!
    until xdotool getmouselocation >/dev/null 2>&1; do sleep 0.2; done
    (manage) &
    manager=$!
    xlogo &
    logo=$!
    mplayer -noconfig all -nolirc -nojoystick -nosound -vo x11 -really-quiet -frames 25 "$1"
    xdotool search --sync --name xlogo >/dev/null
    # A server without its manager would be another experiment.
    kill $logo $manager $server || exit 1
    wait
    exit 0
}

"$@"
