# shellcheck shell=bash
# `./dev deny` and `./dev sbom`: what the programs are made of. cargo-deny checks every package against deny.toml, cargo-cyclonedx
# lists those of each program. Both read manifests and Cargo.lock only; nothing is built.

cargo_deny=      # path of the checker of packages
cargo_cyclonedx= # path of the program that lists packages
deny_oldest=0.20 # older ones do not know every setting of deny.toml

advisory_url=https://github.com/RustSec/advisory-db
advisory_folder=advisory-db-3157b0e258782691 # the name that cargo-deny gives the folder of this database

# The programs of the image (deploy/Dockerfile), on its system.
sbom_programs=(payments-api payment-worker background-worker notifier mock-switch payctl)
sbom_target=x86_64-unknown-linux-gnu

deny() {
  local work database checks=(licenses bans sources)
  [ $# = 0 ] || fail "deny takes no arguments"
  start_run deny
  mkdir -p "$tools_dir"
  require_rust
  find_cargo_deny || install_cargo_program cargo-deny "$deny_release" "$deny_url" "$deny_checksums"
  cargo_deny=${cargo_deny:-$tools_dir/cargo-deny}
  fetch_packages
  make_temporary_folder deny
  work=$REPLY
  if find_advisories "$work"; then
    database=$REPLY
    checks+=(advisories)
    log_step "vulnerabilities and yanked versions by the database of $(git -C "$database" log -1 --format=%cs 2>/dev/null || echo 'an unknown day') ($database)"
    [ "$database" = "$work/$advisory_folder" ] || ln -s "$database" "$work/$advisory_folder"
  fi
  awk -v folder="$work" '{ print } $0 == "[advisories]" { printf "db-path = \"%s\"\n", folder }' deny.toml >"$work/deny.toml"
  # Temporal's packages name no licence but have its text, which cargo-deny recognises.
  run_in_foreground "$cargo_deny" --config "$work/deny.toml" --offline --locked check --allow no-license-field "${checks[@]}" ||
    fail "a package breaks a rule of deny.toml, or the database has not been updated for 90 days; see the messages above"
  log_step "licences, bans and sources of the packages: passed"
  if [ "${#checks[@]}" -gt 3 ]; then
    log_step "vulnerabilities and yanked versions: passed"
  else
    log_step "vulnerabilities and yanked versions: NOT CHECKED, because the database could not be downloaded; name a clone of it by DEV_ADVISORY_DB"
  fi
}

find_cargo_deny() {
  for cargo_deny in "$(command -v cargo-deny || true)" "$tools_dir/cargo-deny"; do
    if [ -x "$cargo_deny" ] && at_least "$(version_of "$cargo_deny")" "$deny_oldest"; then return; fi
  done
  cargo_deny=
  return 1
}

# install_cargo_program PROGRAM VERSION URL CHECKSUMS: its release, or else a build of its package, whose dependencies its own
# lock file pins.
install_cargo_program() {
  download_release "$1" "$3" "$4" || build_cargo_program "$1" "$2"
}

# build_cargo_program PROGRAM VERSION
build_cargo_program() {
  local program=$1 version=$2 work=${tools_dir%/bin}/$1-build
  log_step "building $program $version from crates.io (once; about 3 minutes of processor time)"
  # Without optimisation: a run takes seconds all the same.
  run_logged "$dev_dir/log/$program-build.log" env CARGO_TARGET_DIR="$work/target" CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo install --locked --root "$work" --version "=$version" "$program" ||
    fail "$program could not be built; see .dev/log/$program-build.log"
  mv "$work/bin/$program" "$tools_dir/$program"
  rm -rf "$work"
}

# Downloads the packages of Cargo.lock, so that both programs run offline.
fetch_packages() {
  run_logged "$log_dir/fetch.log" cargo fetch --locked ||
    fail "the packages of Cargo.lock could not be downloaded, or it does not match the manifests; see .dev/log/${log_dir##*/}/fetch.log"
}

# find_advisories WORK: leaves the folder of the advisory database in REPLY: that of DEV_ADVISORY_DB, or else a new clone in WORK.
# Returns 1 if it cannot be downloaded, with one line that says why.
find_advisories() {
  local log=$log_dir/advisories.log
  if [ -n "${DEV_ADVISORY_DB:-}" ]; then
    [ -d "$DEV_ADVISORY_DB/crates" ] && [ -e "$DEV_ADVISORY_DB/.git" ] ||
      fail "DEV_ADVISORY_DB: $DEV_ADVISORY_DB is no clone of the advisory database; make one by: git clone --depth 1 $advisory_url"
    REPLY=$(cd "$DEV_ADVISORY_DB" && pwd -P)
    return
  fi
  REPLY=$1/$advisory_folder
  log_step "downloading the advisory database from ${advisory_url#https://}"
  # A network without a way there ends after seconds, a stalled download after 20 s.
  run_with_progress "$log" curl -fsSL --proto '=https' --connect-timeout 5 --max-time 30 -o /dev/null \
    "$advisory_url/info/refs?service=git-upload-pack" &&
    run_with_progress "$log" env GIT_TERMINAL_PROMPT=0 GIT_HTTP_LOW_SPEED_LIMIT=1000 GIT_HTTP_LOW_SPEED_TIME=20 \
      git clone --quiet --depth 1 "$advisory_url" "$REPLY" && return
  log_note "it cannot be downloaded: $(latest_line "$log")"
  return 1
}

# `./dev sbom [FILE]`
sbom() {
  local from=$OLDPWD file=${1:-$dev_dir/sbom.cdx.json} tree commit
  [ $# -le 1 ] || fail "sbom takes one argument at most: the file to write"
  case $file in /*) ;; *) file=$from/$file ;; esac
  [ -d "$(dirname "$file")" ] || fail "sbom: the folder $(dirname "$file") does not exist"
  has_command python3 || fail "sbom: python3 is missing; install Python 3.11 or later"
  start_run sbom
  mkdir -p "$tools_dir"
  require_rust
  cargo_cyclonedx=$tools_dir/cargo-cyclonedx
  [ -x "$cargo_cyclonedx" ] ||
    install_cargo_program cargo-cyclonedx "$cyclonedx_release" "$cyclonedx_url" "$cyclonedx_checksums"
  fetch_packages
  # The program writes its lists beside the manifests: here into a copy of the tracked files.
  make_temporary_folder sbom
  tree=$REPLY
  git ls-files -z | tar --null -T - -c | tar -x -C "$tree" || fail "sbom: the files that git tracks could not be copied"
  log_step "listing the packages of ${sbom_programs[*]}"
  run_logged "$log_dir/cyclonedx.log" env CARGO_NET_OFFLINE=true "$cargo_cyclonedx" cyclonedx --manifest-path "$tree/Cargo.toml" \
    --describe binaries --format json --spec-version 1.5 --target "$sbom_target" || fail "the packages could not be listed; see .dev/log/sbom/cyclonedx.log"
  cargo tree --locked --offline "${sbom_programs[@]/#/-p}" --target "$sbom_target" -e normal,build --prefix none --format '{p}' \
    >"$tree/built.txt" || fail "the packages of the programs could not be listed; see the message above"
  commit=$(git rev-parse --short=12 HEAD)
  git diff --quiet HEAD || commit=$commit-changed
  python3 scripts/merge_sbom.py "$tree" "$commit" "$(git log -1 --format=%cI)" "$file" "${sbom_programs[@]}" ||
    fail "sbom: $file could not be written; see the message above"
  log_step "wrote $file"
}
