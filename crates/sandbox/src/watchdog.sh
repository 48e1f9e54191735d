# Waits until its standard input ends, which happens when the owner lets go of the pipe or dies of whatever cause,
# then ends the servers and removes what shall not stay.
# $1: signal for a server; then triples "server <data directory> -", "process <pid> <start time>", "remove <path> -".
# The terminal's signals are the owner's to handle.
trap '' HUP INT TERM
signal=$1
shift
cat >/dev/null

# A server's working directory is its data directory: a process id read from an old file may be somebody else's.
# A zombie has none, so a server whose parent has not waited for it counts as gone.
serves() { [ -n "$1" ] && [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$2" ]; }

# Field 22 of stat; the second one, the name, may hold blanks.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

stop_server() {
    pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
    serves "$pid" "$1" || return 0
    children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    kill -s "$signal" "$pid" 2>/dev/null
    # A paused process takes no other signal.
    kill -s CONT "$pid" $children 2>/dev/null
    tries=0
    while serves "$pid" "$1"; do
        tries=$((tries + 1))
        [ "$tries" -le 200 ] || { kill -s KILL "$pid" $children 2>/dev/null; return 0; }
        sleep 0.05
    done
}

while [ $# -ge 3 ]; do
    case $1 in
    server) stop_server "$2" ;;
    process) [ "$(started "$2")" = "$3" ] && kill -s KILL "$2" 2>/dev/null ;;
    remove) rm -rf -- "$2" ;;
    esac
    shift 3
done
