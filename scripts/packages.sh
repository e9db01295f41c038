# shellcheck shell=bash
# Installing packages: apt-get on Debian and Ubuntu (as root or by a sudo that asks nothing), brew on macOS.
# Everything else gets one line with the packages to install.

# The packages that bring a tool, by package manager.
packages_of() {
  case $1-$2 in
    apt-cc) echo "gcc libc6-dev" ;;
    apt-curl) echo "curl ca-certificates" ;;
    apt-protoc) echo "protobuf-compiler libprotobuf-dev" ;;
    apt-postgres) echo postgresql ;;
    apt-redis) echo redis-server ;;
    apt-venv) echo python3-venv ;;
    brew-cc) echo "(xcode-select --install)" ;;
    brew-protoc) echo protobuf ;;
    brew-postgres) echo postgresql@17 ;;
    brew-venv) echo python3 ;;
    *) echo "$2" ;;
  esac
}

# Installs what brings the named tools: cc, curl, protoc, postgres, redis, venv.
install_packages() {
  local tool manager=apt packages=
  if have brew; then manager=brew; fi
  for tool in "$@"; do
    packages="$packages $(packages_of "$manager" "$tool")"
  done
  packages=${packages# }
  if [ "$manager" = brew ]; then
    have cc || fail "a C compiler is missing: run 'xcode-select --install'"
    step "installing $packages (brew)"
    # shellcheck disable=SC2086 # words on purpose
    attend_quietly "$dev_dir/log/install.log" brew install $packages || fail "brew could not install: $packages"
    return
  fi
  have apt-get || fail "missing: $*; install a C compiler, curl, protoc with its include files, the server of PostgreSQL $pg_oldest or later and Python 3.10 or later with its module venv"
  may_install || fail "missing: $*; run: sudo apt-get update && sudo apt-get install $packages"
  step "installing $packages (apt-get)"
  attend_quietly "$dev_dir/log/install.log" "${as_root[@]+"${as_root[@]}"}" apt-get update ||
    fail "apt-get update failed; see .dev/log/install.log"
  case " $packages " in *" postgresql "*) require_recent_postgres ;; esac
  case " $packages " in *" postgresql "*) without_system_cluster ;; esac
  # shellcheck disable=SC2086 # words on purpose
  apt_install $packages
}

# Whether packages can be installed without a question; a sudo that wants a password would hang a script.
as_root=()
may_install() {
  [ "$(id -u)" = 0 ] && return
  as_root=(sudo -n)
  have sudo && sudo -n true 2>/dev/null
}

apt_install() {
  attend_quietly "$dev_dir/log/install.log" "${as_root[@]+"${as_root[@]}"}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" ||
    fail "apt-get could not install: $*; see .dev/log/install.log"
}

# An older system offers a server that our SQL does not run on: better said before it is installed.
require_recent_postgres() {
  local offered
  offered=$(apt-cache show postgresql | sed -n 's/^Version: \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  [ "${offered:-0}" -ge "$pg_oldest" ] ||
    fail "this system offers PostgreSQL ${offered:-(none)}, $pg_oldest or later is needed: follow https://wiki.postgresql.org/wiki/Apt and run this again"
}

# Debian's package makes and starts a system cluster unless told otherwise. We want the programs only, so the setting is
# changed for this one installation and given back afterwards.
cluster_conf=/etc/postgresql-common/createcluster.conf
without_system_cluster() {
  local root_do=("${as_root[@]+"${as_root[@]}"}" env)
  apt_install postgresql-common
  "${root_do[@]}" cp -p "$cluster_conf" "$cluster_conf.kept"
  "${root_do[@]}" sed -i -e '/^ *create_main_cluster/d' -e '$a create_main_cluster = false' "$cluster_conf"
  attend_quietly "$dev_dir/log/install.log" "${root_do[@]}" DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 postgresql || true # reported by the next install
  "${root_do[@]}" mv "$cluster_conf.kept" "$cluster_conf"
}
