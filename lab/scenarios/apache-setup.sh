#!/bin/sh
# Makes Debian's Apache ready to start in the lab's machine, where no package's own scripts have run. Usage:
# apache-setup.sh prefork|event|worker
#
# Its limits stay those that Debian ships. There is a static page of 2,000 bytes at /page.html and a dynamic one at
# /cgi-bin/page: a perl program, whose start is most of its work; with a number (/cgi-bin/page?300) it first waits that
# many milliseconds, as for a database.
set -e # Debian's envvars looks at variables that are not set
cd /etc/apache2
# Debian's Apache 2.4 has CGI through a daemon of its own where workers are threads.
case $1 in
prefork) cgi=cgi ;;
event | worker) cgi=cgid ;;
*)
    echo "apache-setup.sh: $1 is not a model of workers: write prefork, event or worker" >&2
    exit 2
    ;;
esac
rm -f mods-enabled/*
for module in "mpm_$1" "$cgi" authz_core authz_host mime dir alias status; do
    for kind in load conf; do
        [ ! -e "mods-available/$module.$kind" ] || ln -s "../mods-available/$module.$kind" mods-enabled/
    done
done
ln -sf ../sites-available/000-default.conf sites-enabled/
ln -sf ../conf-available/serve-cgi-bin.conf conf-enabled/
echo 'ServerName lab' >conf-enabled/server-name.conf
# Links in a Debian that was installed.
[ -L /var/run ] || { rm -rf /var/run && ln -s /run /var/run; }
[ -L /var/lock ] || { rm -rf /var/lock && ln -s /run/lock /var/lock; }
mkdir -p /run/lock /run/apache2 /var/log/apache2 /var/www/html /usr/lib/cgi-bin
head -c 2000 /dev/zero | tr '\0' 'x' >/var/www/html/page.html
cat >/usr/lib/cgi-bin/page <<'PAGE'
#!/usr/bin/perl
select(undef, undef, undef, $ENV{QUERY_STRING} / 1000) if $ENV{QUERY_STRING};
print "Content-Type: text/html\n\n<html>", "x" x 1000, "</html>\n";
PAGE
chmod 755 /usr/lib/cgi-bin/page
# The checks also bring the programs into memory, so that the first run finds them there as the others do.
/usr/lib/cgi-bin/page >/dev/null
apache2=$(. ./envvars && apache2 -t 2>&1) || {
    echo "$apache2" >&2
    exit 1
}
