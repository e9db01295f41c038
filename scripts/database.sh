# shellcheck shell=bash
# A private PostgreSQL cluster with its own folder and port, on loopback only; a system PostgreSQL is not touched.
# The server refuses to run as root, so root runs it as another user, in a folder that this user can read.
# There are no passwords: only users of this machine can connect, and the accounts hold no real money.

pg_user=     # the user of the server, if this script runs as root
pg_prefix=() # the command prefix that switches to this user

select_pg_user() {
  [ "$(id -u)" = 0 ] || return 0
  has_command setpriv || fail "root cannot run PostgreSQL: run ./dev as an ordinary user"
  pg_user=nobody
  if id postgres >/dev/null 2>&1; then pg_user=postgres; fi
  pg_prefix=(setpriv "--reuid=$(id -u "$pg_user")" "--regid=$(id -g "$pg_user")" --clear-groups)
}

# Runs a PostgreSQL program as the cluster's user; in /, because this user may have no access to the working directory.
run_pg() {
  local program=$1
  shift
  (cd / && exec "${pg_prefix[@]+"${pg_prefix[@]}"}" env HOME=/nonexistent LC_ALL=C "$pg_bin/$program" "$@")
}

# Leaves the folder of the persistent cluster of `./dev up` in REPLY. For root it is below /var/tmp, named after this clone.
persistent_cluster_folder() {
  REPLY=$dev_dir/postgres
  [ "$(id -u)" != 0 ] || REPLY=/var/tmp/instant-payments-$(printf '%s' "${DEV_DIR:-$root}" | cksum | cut -d ' ' -f 1)
}

# Refuses a kept cluster that was not made with this clone's .dev folder, where the workflows and events of its payments are: a clone
# that replaced another one at the same path finds the other one's cluster in /var/tmp. The two have the same id; a cluster made
# before there were ids belongs to the folder that has workflows.
require_own_cluster() {
  local dir
  persistent_cluster_folder
  dir=$REPLY
  [ -f "$dir/complete" ] || return 0
  if [ -f "$dir/$cluster_id_file" ]; then
    ! cmp -s "$dir/$cluster_id_file" "$dev_dir/$cluster_id_file" 2>/dev/null || return 0
  else
    [ ! -f "$dev_dir/temporal.db" ] || return 0
  fi
  fail "the kept database in $dir is not of this clone's .dev folder: an earlier clone at this path made it, or .dev was deleted; delete it with './dev reset', then run './dev up' again"
}

cluster_id_file=cluster-id # in the folder of the persistent cluster and in .dev

# mark_cluster FOLDER: gives the persistent cluster and this clone's .dev folder the same new id.
mark_cluster() {
  od -An -N 16 -t x1 /dev/urandom | tr -d ' \n' >"$dev_dir/$cluster_id_file"
  cp "$dev_dir/$cluster_id_file" "$1/$cluster_id_file"
}

# start_cluster persistent|durable|counting|temporary FOLDER PORT.
# persistent: keeps its data between runs. durable: deleted after the run, with memory settings for a benchmark. counting: the
# same, and counts statements.
# temporary: without flushing to disk, because tests kill processes but not the machine, and the kernel keeps the writes of
# a killed server. Each of the tests' hundreds of databases would be vacuumed once a minute.
start_cluster() {
  local kind=$1 dir=$2 port=$3 log=$log_dir/database.log options
  select_pg_user
  prepare_cluster_folder "$dir"
  options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c timezone=UTC"
  if [ "$kind" = persistent ]; then
    options="$options -c max_connections=200"
  elif [ "$kind" = durable ] || [ "$kind" = counting ]; then
    options="$options -c max_connections=200 -c shared_buffers=1GB -c max_wal_size=8GB"
    [ "$kind" = durable ] || options="$options -c shared_preload_libraries=pg_stat_statements"
  else
    options="$options -c max_connections=500 -c fsync=off -c full_page_writes=off -c autovacuum_naptime=10min"
  fi
  create_cluster "$kind" "$dir"
  stop_cluster "$dir" # left by a killed run
  record_resource database.cluster "$dir"
  printf '%s\n' "$options" >"$dir/options"
  run_pg pg_ctl -D "$dir/data" -l "$dir/server.log" -w -t "$ready_bound_s" -o "$options" start >"$log" 2>&1 || {
    print_log_tail "$dir/server.log"
    fail "the database did not start; its log is $dir/server.log"
  }
  cluster_pid=$(sed -n 1p "$dir/data/postmaster.pid")
  cluster_log=$dir/server.log
}

# Creates the folder for the server's user. In /var/tmp another user could have created it first: that is refused.
prepare_cluster_folder() {
  local dir=$1
  [ ! -L "$dir" ] || fail "$dir is a symbolic link; remove it"
  if [ -z "$pg_user" ]; then
    mkdir -p -m 0700 "$dir"
    return
  fi
  [ ! -d "$dir" ] || [ -O "$dir" ] || [ "$(stat -c %U "$dir")" = "$pg_user" ] ||
    fail "$dir belongs to $(stat -c %U "$dir"), not to $pg_user; remove it"
  install -d -o "$pg_user" -g "$(id -g "$pg_user")" -m 0700 "$dir"
}

# Creates the cluster's files unless they exist; an incomplete cluster of an interrupted run is created again.
create_cluster() {
  local kind=$1 dir=$2 found
  if [ -f "$dir/data/PG_VERSION" ] && [ -f "$dir/complete" ]; then
    found=$(cat "$dir/data/PG_VERSION")
    [ "$found" = "$pg_major" ] ||
      fail "the data in $dir belongs to PostgreSQL $found, but the programs are version $pg_major: set DEV_PG_BIN, or remove the folder to start with an empty database"
    [ "$kind" != persistent ] || [ -f "$dir/$cluster_id_file" ] || mark_cluster "$dir"
    return 0
  fi
  rm -rf "$dir/data"
  set -- -D "$dir/data" -U payments --auth=trust -E UTF8 --no-locale
  [ "$kind" = persistent ] || set -- "$@" --no-sync
  run_pg initdb "$@" >"$log_dir/initdb.log" 2>&1 || {
    print_log_tail "$log_dir/initdb.log"
    fail "the database cluster could not be created in $dir; see the log above"
  }
  [ "$kind" != persistent ] || mark_cluster "$dir"
  : >"$dir/complete"
}

# Stops the cluster of a folder if its server runs. The pid of an ended server may belong to another process by now.
stop_cluster() {
  local dir=$1 pid tries
  pid=$(sed -n 1p "$dir/data/postmaster.pid" 2>/dev/null || true)
  [ -n "$pid" ] || return 0
  case $(command_of "$pid") in
    *"$dir/data"*) ;;
    *) return 0 ;;
  esac
  kill -INT "$pid" 2>/dev/null || return 0 # "fast" shutdown: ends connections, writes everything
  tries=$((stop_bound_s * 10))
  until is_gone "$pid"; do
    tries=$((tries - 1))
    [ "$tries" != 0 ] || kill -QUIT "$pid" 2>/dev/null || true # "immediate" shutdown: recovery follows at the next start
    [ "$tries" -gt -50 ] || return 0
    sleep 0.1
  done
}

# database_url PORT DATABASE [USER]: prints the URL of a database; the default user is its owner.
database_url() { printf 'postgres://%s@127.0.0.1:%s/%s' "${3:-payments}" "$1" "$2"; }

service_roles="payments_api payment_worker background_worker notifier operator_api payctl payctl_reconcile" # one for each process; the migrations grant their rights

# login_of PROCESS: prints the login of a process; payment-worker-2 is a payment-worker.
login_of() { printf '%s_login' "${1%-[1-9]}" | tr - _; }

# create_service_logins PORT: creates the logins of the services. The migrations must run first, because they create the roles. A login
# runs as its role, and has no rights of its own.
create_service_logins() {
  local role statements=
  for role in $service_roles; do
    statements="$statements
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${role}_login') THEN
        CREATE ROLE ${role}_login LOGIN NOINHERIT IN ROLE $role;
        ALTER ROLE ${role}_login SET role = $role;
      END IF;"
  done
  run_pg psql -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$1" -U payments -d postgres >"$log_dir/login.log" 2>&1 -c "
    DO \$\$ BEGIN $statements
    END \$\$" || fail_with_log login "the logins of the services could not be created"
}
