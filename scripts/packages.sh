# shellcheck shell=bash
# Installs packages: by apt-get on Debian and Ubuntu (as root or by sudo without a password), by brew on macOS.
# On other systems it prints the packages to install.

# packages_for MANAGER TOOL: prints the packages that contain a tool.
packages_for() {
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

# install_packages TOOL..: installs the packages of the tools cc, curl, protoc, postgres, redis, venv, chromium.
install_packages() {
  local tool manager=apt packages=
  if has_command brew; then manager=brew; fi
  for tool in "$@"; do
    packages="$packages $(packages_for "$manager" "$tool")"
  done
  packages=${packages# }
  if [ "$manager" = brew ]; then
    has_command cc || fail "a C compiler is missing: run 'xcode-select --install'"
    log_step "installing $packages (brew)"
    # shellcheck disable=SC2086 # word splitting is intended
    run_logged "$dev_dir/log/install.log" brew install $packages || fail "brew could not install: $packages"
    return
  fi
  has_command apt-get || fail "missing: $*; install a C compiler, curl, protoc with its include files, the PostgreSQL server $pg_oldest or later, and Python 3.11 or later with the module venv"
  can_install_packages || fail "missing: $*; run: sudo apt-get update && sudo apt-get install $packages"
  log_step "installing $packages (apt-get)"
  run_logged "$dev_dir/log/install.log" "${as_root[@]+"${as_root[@]}"}" apt-get update ||
    fail "apt-get update failed; see .dev/log/install.log"
  case " $packages " in *" postgresql "*) require_recent_postgres ;; esac
  case " $packages " in *" postgresql "*) install_postgres_without_cluster ;; esac
  # shellcheck disable=SC2086 # word splitting is intended
  apt_install $packages
}

# Whether packages can be installed without a password prompt, which would block the script.
as_root=()
can_install_packages() {
  [ "$(id -u)" = 0 ] && return
  as_root=(sudo -n)
  has_command sudo && sudo -n true 2>/dev/null
}

apt_install() {
  run_logged "$dev_dir/log/install.log" "${as_root[@]+"${as_root[@]}"}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" ||
    fail "apt-get could not install: $*; see .dev/log/install.log"
}

# Fails before the installation if the system offers a PostgreSQL that is too old for our SQL.
require_recent_postgres() {
  local offered
  offered=$(apt-cache show postgresql | sed -n 's/^Version: \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  [ "${offered:-0}" -ge "$pg_oldest" ] ||
    fail "this system offers PostgreSQL ${offered:-(none)}, but $pg_oldest or later is required: follow https://wiki.postgresql.org/wiki/Apt and run this command again"
}

# Debian's package creates and starts a system cluster by default. Only the programs are needed, so the setting is changed
# for this installation and restored afterwards.
cluster_conf=/etc/postgresql-common/createcluster.conf
install_postgres_without_cluster() {
  local root_do=("${as_root[@]+"${as_root[@]}"}" env)
  apt_install postgresql-common
  "${root_do[@]}" cp -p "$cluster_conf" "$cluster_conf.saved"
  "${root_do[@]}" sed -i -e '/^ *create_main_cluster/d' -e '$a create_main_cluster = false' "$cluster_conf"
  run_logged "$dev_dir/log/install.log" "${root_do[@]}" DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 postgresql || true # the next installation reports a failure
  "${root_do[@]}" mv "$cluster_conf.saved" "$cluster_conf"
}
