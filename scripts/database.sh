# shellcheck shell=bash
# A private PostgreSQL cluster: its own folder, its own port, loopback only, nothing of a system PostgreSQL is touched.
# The server refuses to run as root, so root runs it as another user and keeps it where that user can reach it.
# No passwords: only this machine's own users can connect, and the accounts are play money.

pg_user=    # the other user, when this script is root's
pg_as=()    # the command prefix that becomes this user

become_pg_user() {
  [ "$(id -u)" = 0 ] || return 0
  have setpriv || fail "root cannot run PostgreSQL: run ./dev as an ordinary user"
  pg_user=nobody
  if id postgres >/dev/null 2>&1; then pg_user=postgres; fi
  pg_as=(setpriv "--reuid=$(id -u "$pg_user")" "--regid=$(id -g "$pg_user")" --clear-groups)
}

# Runs one of PostgreSQL's programs as the cluster's user; from /, since that user may not see our folder.
pg() {
  local program=$1
  shift
  (cd / && exec "${pg_as[@]+"${pg_as[@]}"}" env HOME=/nonexistent LC_ALL=C "$pg_bin/$program" "$@")
}

# The folder of the cluster that `./dev up` keeps, in REPLY. For root it is named after this clone, below /var/tmp.
kept_cluster_folder() {
  REPLY=$dev_dir/postgres
  [ "$(id -u)" != 0 ] || REPLY=/var/tmp/instant-payments-$(printf '%s' "$root" | cksum | cut -d ' ' -f 1)
}

# Starts a cluster: start_cluster kept|durable|temporary FOLDER PORT. A kept one is durable like a real one; so is a durable
# one, which goes with the run and has room for a bench. A temporary one skips flushing to disk: the tests kill processes, not the machine, and the kernel keeps what a killed server wrote.
start_cluster() {
  local kind=$1 dir=$2 port=$3 log=$log_dir/database.log options
  become_pg_user
  prepare_cluster_folder "$dir"
  options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c timezone=UTC"
  if [ "$kind" = kept ]; then
    options="$options -c max_connections=200"
  elif [ "$kind" = durable ]; then
    options="$options -c max_connections=200 -c shared_buffers=1GB -c max_wal_size=8GB"
  else
    options="$options -c max_connections=500 -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
  fi
  make_cluster "$kind" "$dir"
  stop_cluster "$dir" # of a run that was killed
  record database.cluster "$dir"
  pg pg_ctl -D "$dir/data" -l "$dir/server.log" -w -t "$ready_bound_s" -o "$options" start >"$log" 2>&1 || {
    show_log "$dir/server.log"
    fail "the database did not start; its log is $dir/server.log"
  }
  cluster_pid=$(sed -n 1p "$dir/data/postmaster.pid")
  cluster_log=$dir/server.log
}

# The server's user owns the folder. In /var/tmp anybody could have put something under our name: that is refused.
prepare_cluster_folder() {
  local dir=$1
  [ ! -L "$dir" ] || fail "$dir is a link; remove it"
  if [ -z "$pg_user" ]; then
    mkdir -p -m 0700 "$dir"
    return
  fi
  [ ! -d "$dir" ] || [ -O "$dir" ] || [ "$(stat -c %U "$dir")" = "$pg_user" ] ||
    fail "$dir belongs to $(stat -c %U "$dir"), not to $pg_user; remove it"
  install -d -o "$pg_user" -g "$(id -g "$pg_user")" -m 0700 "$dir"
}

# Makes the cluster's files unless they are there; a half-made cluster of an interrupted run is made again.
make_cluster() {
  local kind=$1 dir=$2 found
  if [ -f "$dir/data/PG_VERSION" ] && [ -f "$dir/complete" ]; then
    found=$(cat "$dir/data/PG_VERSION")
    [ "$found" = "$pg_major" ] ||
      fail "the data in $dir is of PostgreSQL $found, the programs are of $pg_major: set DEV_PG_BIN, or remove that folder to begin anew"
    return 0
  fi
  rm -rf "$dir/data"
  set -- -D "$dir/data" -U payments --auth=trust -E UTF8 --no-locale
  [ "$kind" = kept ] || set -- "$@" --no-sync
  pg initdb "$@" >"$log_dir/initdb.log" 2>&1 || {
    show_log "$log_dir/initdb.log"
    fail "the database cluster could not be made in $dir"
  }
  : >"$dir/complete"
}

# Stops the cluster in a folder, if one runs there. A number left by a server long gone may be another process by now.
stop_cluster() {
  local dir=$1 pid tries
  pid=$(sed -n 1p "$dir/data/postmaster.pid" 2>/dev/null || true)
  [ -n "$pid" ] || return 0
  case $(command_of "$pid") in
    *"$dir/data"*) ;;
    *) return 0 ;;
  esac
  kill -INT "$pid" 2>/dev/null || return 0 # PostgreSQL's "fast": cut connections, write everything, end
  tries=$((stop_bound_s * 10))
  until is_gone "$pid"; do
    tries=$((tries - 1))
    [ "$tries" != 0 ] || kill -QUIT "$pid" 2>/dev/null || true # "immediate": recovers at the next start
    [ "$tries" -gt -50 ] || return 0
    sleep 0.1
  done
}

# The address of one database of a cluster: database_url PORT DATABASE [USER]; the owner's unless another user is named.
database_url() { printf 'postgres://%s@127.0.0.1:%s/%s' "${3:-payments}" "$1" "$2"; }

service_login=payments_app # may do what the services do, and nothing else; its rights are the migrations'

# Makes the services' login, after the migrations, which make its role.
make_service_login() {
  pg psql -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$1" -U payments -d postgres >"$log_dir/login.log" 2>&1 -c "
    DO \$\$ BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$service_login') THEN
        CREATE ROLE $service_login LOGIN IN ROLE payments_service;
        ALTER ROLE $service_login SET role = payments_service;
      END IF;
    END \$\$" || fail_with_log login "the services' login could not be made"
}
