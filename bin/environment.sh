# Sourced by the commands of this folder: finds the checkout and keeps its virtual environment in .venv current.
# Nothing outside the checkout is touched, except that root on Debian gets python3-venv where it is missing.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$top/.venv"

say() { printf '%s\n' "svc: $*" >&2; }
die() { say "$1"; [ -z "${2:-}" ] || printf '%s\n' "     $2" >&2; exit 1; }

find_python() {
    local candidate
    for candidate in ${SVC_PYTHON:-} python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            python=$candidate
            return 0
        fi
    done
    die "no Python 3.11 or newer found" "install python3 (Debian 12 or newer has it), or set SVC_PYTHON to its path"
}

# Installs Debian packages where that is possible: apt_install PACKAGE...
apt_install() {
    command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# Programs that a cluster of bin/cluster runs beside those of bin/tools: prints the Debian packages of those that are missing.
missing_for_cluster() {
    local PATH=$PATH:/usr/sbin:/sbin
    command -v runc >/dev/null 2>&1 || echo runc
    command -v iptables >/dev/null 2>&1 || echo iptables
    command -v conntrack >/dev/null 2>&1 || echo conntrack
    command -v ip >/dev/null 2>&1 || echo iproute2
    [ -x /usr/lib/cni/ptp ] || echo containernetworking-plugins
}

need_venv_module() {
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return 0
    say "installing python3-venv"
    apt_install python3-venv && "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return 0
    die "this Python has no venv module" "as root: apt-get install python3-venv"
}

# prepare_environment EXTRAS: after it, $venv/bin/python runs svc with the dependencies of the given extras ("", "test", "test,check").
prepare_environment() {
    local extras=${1:-} wanted stamp level log
    stamp="$venv/.svc-stamp"
    wanted=$(cd "$top" && cat setup.cfg pyproject.toml constraints.txt | sha256sum | cut -c1-32)
    if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && "$venv/bin/python" -c 'import sys' 2>/dev/null; then
        level=$(sed -n "s/^$wanted //p" "$stamp" 2>/dev/null)
        case ",$level," in
            *",all,"*) return 0 ;;
        esac
        [ -n "$level" ] && [ "$level" = "${extras:-base}" ] && return 0
        [ -n "$level" ] && [ -z "$extras" ] && return 0
        [ -n "$level" ] && [ "$extras" = test ] && [ "$level" = "test,check" ] && return 0
    fi
    find_python
    if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import sys' 2>/dev/null; then
        need_venv_module
        say "making a virtual environment in .venv"
        rm -rf "$venv"
        "$python" -m venv "$venv" || die "the virtual environment could not be made in $venv"
    fi
    say "installing dependencies (a minute at the first time)"
    log="$venv/install.log"
    if ! (cd "$top" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt \
            --config-settings editable_mode=compat -e ".${extras:+[$extras]}") >"$log" 2>&1; then
        die "the dependencies could not be installed" "is the package index reachable? the whole output is in $log"
    fi
    # Twisted keeps a list of its plugins beside them; a user who may not write there would log a warning at each start.
    "$venv/bin/twistd" --help >/dev/null 2>&1 || die "$venv/bin/twistd does not run" "run it with --help to see why"
    printf '%s %s\n' "$wanted" "${extras:-base}" >"$stamp"
}
