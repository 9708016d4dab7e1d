#!/bin/sh
# What the scenario window-drag runs in the machine: sh window-moves.sh manage | flood | rehearse CLIP
#
# manage: a window manager that places windows by itself. flood: moves the window of xlogo without a pause, a line for each 200 moves.
# rehearse: starts each of the programs once, with a piece of the clip.
export DISPLAY=:1

manage() {
    echo 'RandomPlacement' >/run/lab/twmrc
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
    kill $logo $manager $server
    wait
}

"$@"
