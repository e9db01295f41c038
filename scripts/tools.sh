# shellcheck shell=bash
# The programs this project needs: finds them, and has packages.sh install those that can be. Rust and Go are never
# installed here (everybody has a way of their own); they get one line that says what to do.

temporal=       # path of the Temporal CLI
nats_server=    # path of the message broker
pg_bin=         # folder of the PostgreSQL programs
pg_major=       # their major version
pg_oldest=15    # the oldest PostgreSQL the SQL is written for
temporal_module=github.com/temporalio/cli/cmd/temporal@v1.5.1 # later ones carry a replace directive and do not install
nats_module=github.com/nats-io/nats-server/v2@v2.15.2
nats_oldest=2.14 # Debian's 2.9 cannot sync each message; up to 2.12 more is lost when a disk fails (crates/decisions/0018)

schemathesis=     # path of the HTTP fuzzer that ./dev test drives
standardwebhooks= # path of a Python that has the library of Standard Webhooks
promtool=         # path of the program that checks the alert rules

have() { command -v "$1" >/dev/null 2>&1; }

# Leaves every tool found, or ends with what is missing.
install_tools() {
  local missing
  PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin:$HOME/go/bin:/usr/sbin # where they are when the shell's profile was not read
  mkdir -p "$dev_dir/log" "$tools_dir"
  require_rust
  missing=$(missing_packages)
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # words on purpose
    install_packages $missing
    hash -r
    missing=$(missing_packages)
    [ -z "$missing" ] || fail "still missing after the installation: $missing; see .dev/log/install.log"
  fi
  find_postgres || fail "PostgreSQL $pg_oldest or later was not found"
  find_temporal || build_temporal
  find_nats || build_nats
  step "tools: rust $(version_of cargo), $(protoc --version | tr ' ' '-'), PostgreSQL $pg_major, nats-server $(version_of "$nats_server") ($nats_server), temporal ($temporal)"
}

# Which of the tools that come as packages are not there.
missing_packages() {
  have cc || printf 'cc '
  have curl || printf 'curl '
  protoc_works || printf 'protoc '
  find_postgres || printf 'postgres '
}

# protoc alone is not enough: Debian ships the standard .proto files in another package.
protoc_works() {
  local dir code=0
  have protoc || return 1
  dir=$(mktemp -d)
  printf 'syntax = "proto3"; import "google/protobuf/field_mask.proto";\n' >"$dir/probe.proto"
  protoc -I "$dir" -o "$dir/probe.out" "$dir/probe.proto" >/dev/null 2>&1 || code=1
  rm -rf "$dir"
  return "$code"
}

# Debian keeps the server's programs off PATH, several versions side by side: the newest that serves is taken.
find_postgres() {
  local dir major
  pg_bin= pg_major=0
  for dir in "${DEV_PG_BIN:-/nowhere}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin \
    /usr/local/opt/postgresql@*/bin "$(dirname "$(command -v initdb || echo /nowhere/initdb)")"; do
    [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/psql" ] || continue
    major=$("$dir/postgres" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
    if [ "$major" -ge "$pg_oldest" ] && [ "$major" -gt "$pg_major" ]; then
      pg_bin=$dir pg_major=$major
    fi
    if [ "$dir" = "${DEV_PG_BIN:-}" ] && [ -n "$pg_bin" ]; then break; fi
  done
  [ -n "$pg_bin" ]
}

find_temporal() {
  temporal=$(command -v temporal || true)
  if [ -z "$temporal" ] && [ -x "$tools_dir/temporal" ]; then
    temporal=$tools_dir/temporal
  fi
  [ -n "$temporal" ]
}

# Builds the Temporal CLI, with the development server inside, from its Go module.
build_temporal() {
  if have brew; then
    step "installing temporal (brew)"
    attend_quietly "$dev_dir/log/install.log" brew install temporal || fail "brew could not install temporal"
    find_temporal || fail "brew installed temporal, but it is not in PATH"
    return
  fi
  build_from_go_module temporal "$temporal_module" "about 5 minutes on 2 cores and 4 GB of disk meanwhile" \
    "install it (https://temporal.io/setup/install-temporal-cli)"
  temporal=$tools_dir/temporal
}

# An installed nats-server is used if it is recent enough.
find_nats() {
  for nats_server in "$(command -v nats-server || true)" "$tools_dir/nats-server"; do
    if [ -x "$nats_server" ] && at_least "$(version_of "$nats_server")" "$nats_oldest"; then return; fi
  done
  return 1
}

build_nats() {
  if have brew; then
    step "installing nats-server (brew)"
    attend_quietly "$dev_dir/log/install.log" brew install nats-server || fail "brew could not install nats-server"
    hash -r
    find_nats || fail "brew installed nats-server, but PATH has none that is $nats_oldest or later"
    return
  fi
  build_from_go_module nats-server "$nats_module" "about a minute on 2 cores" \
    "install $nats_oldest or later (https://docs.nats.io/running-a-nats-service/introduction/installation)"
  nats_server=$tools_dir/nats-server
}

# build_from_go_module PROGRAM MODULE COST OTHERWISE: builds it into the folder of tools; OTHERWISE is what a person without Go can do.
build_from_go_module() {
  local program=$1 module=$2 cost=$3 otherwise=$4 work=${tools_dir%/bin}/$1-build
  have go || fail "$program is missing or too old: $otherwise, or install Go 1.26 or later (https://go.dev/dl) to have it built here"
  at_least "$(version_of go)" 1.21 || fail "Go $(version_of go) is too old to build $program: install Go 1.26 or later (https://go.dev/dl)"
  step "building $program from its Go module: once, $cost"
  # Its own caches, or gigabytes would stay in the user's; kept when it fails, so that the next try goes on from there.
  mkdir -p "$work/bin"
  attend_quietly "$dev_dir/log/$program-build.log" env GOBIN="$work/bin" GOCACHE="$work/cache" GOMODCACHE="$work/modules" \
    GOFLAGS=-modcacherw go install -v "$module" ||
    fail "$program could not be built; see .dev/log/$program-build.log"
  mv "$work/bin/$program" "$tools_dir/$program"
  rm -rf "$work"
}

# What only the tests need: from PyPI an HTTP fuzzer and a receiver's library, and the check of alert rules.
install_test_tools() {
  install_from_pypi schemathesis
  schemathesis=$REPLY/schemathesis
  install_from_pypi standardwebhooks
  standardwebhooks=$REPLY/python
  find_promtool || install_promtool
}

find_promtool() {
  promtool=$(command -v promtool || true)
  if [ -z "$promtool" ] && [ -x "$tools_dir/promtool" ]; then
    promtool=$tools_dir/promtool
  fi
  [ -n "$promtool" ]
}

# Prometheus' own check of alert rules. Debian has it in the server's package: only the program is taken out of it, so that
# no server is set up.
install_promtool() {
  local work
  if have brew; then
    install_packages prometheus
    find_promtool || fail "brew installed prometheus, but promtool is not in PATH"
    return
  fi
  have apt-get && have dpkg-deb || fail "promtool is missing: install Prometheus (https://prometheus.io/download)"
  temporary_folder promtool
  work=$REPLY
  step "taking promtool out of the package prometheus: once"
  download_prometheus "$work" || {
    may_install && attend_quietly "$dev_dir/log/promtool.log" "${as_root[@]+"${as_root[@]}"}" apt-get update &&
      download_prometheus "$work"
  } || fail "apt-get could not download prometheus; see .dev/log/promtool.log"
  dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool ||
    fail "there is no promtool in the package prometheus"
  mv "$work/usr/bin/promtool" "$tools_dir/promtool"
  promtool=$tools_dir/promtool
}

# Into a folder. It needs the lists that `apt-get update` brings, and no rights.
download_prometheus() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  attend_quietly "$dev_dir/log/promtool.log" bash -c 'cd "$1" && apt-get download prometheus' bash "$1"
}

# Installs what scripts/NAME.txt lists, with every version pinned, into a folder of its own; leaves that of the programs in
# REPLY.
install_from_pypi() {
  local name=$1 pinned=scripts/$1.txt dir
  dir=${tools_dir%/bin}/$name-$(cksum <"$pinned" | cut -d ' ' -f 1)
  REPLY=$dir/bin
  [ ! -f "$dir/complete" ] || return 0
  makes_venvs || {
    install_packages venv
    makes_venvs || fail "python3 cannot make virtual environments: install Python 3.10 or later with its module venv"
  }
  step "installing $name from PyPI into $dir: once"
  rm -rf "$dir"
  attend_quietly "$dev_dir/log/$name.log" python3 -m venv "$dir" || fail "python3 could not make the folder $dir"
  attend_quietly "$dev_dir/log/$name.log" "$dir/bin/pip" install --disable-pip-version-check -r "$pinned" ||
    fail "$name could not be installed; see .dev/log/$name.log"
  : >"$dir/complete"
  REPLY=$dir/bin
}

# Debian keeps what makes a virtual environment in a package of its own.
makes_venvs() {
  have python3 && python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

# The version must be the one Cargo.toml asks for; a toolchain of rustup's is brought up to date by its owner.
require_rust() {
  local wanted
  wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
  have cargo || fail "Rust $wanted or later is missing: install it from https://rustup.rs"
  cargo --version >/dev/null || fail "cargo does not run: repair it, for example by 'rustup default stable'"
  at_least "$(version_of cargo)" "$wanted" || fail "Rust $(version_of cargo) is older than $wanted: run 'rustup update stable'"
}

# The checks need two components that a minimal toolchain lacks.
require_rust_components() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
    fail "rustfmt or clippy is missing: run 'rustup component add rustfmt clippy'"
}

version_of() {
  case $1 in
    cargo) cargo --version | sed -E 's/^cargo ([0-9.]+).*/\1/' ;;
    go) go version | sed -E 's/.* go([0-9.]+).*/\1/' ;;
    *nats-server) "$1" --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/' ;;
  esac
}

# Whether version $1 is $2 or later, by its first two numbers.
at_least() {
  local have_major=${1%%.*} have_rest=${1#*.} want_major=${2%%.*} want_rest=${2#*.}
  [ "$have_major" -gt "$want_major" ] && return
  [ "$have_major" -eq "$want_major" ] && [ "${have_rest%%.*}" -ge "${want_rest%%.*}" ]
}

# `./dev install`: only this.
install_only() {
  [ $# = 0 ] || fail "install takes no arguments"
  begin_session install
  install_tools
}
