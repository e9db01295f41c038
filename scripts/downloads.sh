# shellcheck shell=bash
# Downloads a pinned release of a program where the network allows it. The checksums below are pinned with the version: a download
# that was cut or changed is not used, and neither is a release that was changed after it was published.

# From the checksums.txt of the release. Later versions cannot be built from their Go module (scripts/tools.sh).
temporal_release=1.5.1
temporal_url=https://github.com/temporalio/cli/releases/download/v$temporal_release/temporal_cli_${temporal_release}_SYSTEM_MACHINE.tar.gz
temporal_checksums='
  linux_amd64  ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d
  linux_arm64  bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5
  darwin_amd64 bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9
  darwin_arm64 cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415'

# From the SHA256SUMS of the release.
nats_release=2.15.0
nats_url=https://github.com/nats-io/nats-server/releases/download/v$nats_release/nats-server-v$nats_release-SYSTEM-MACHINE.tar.gz
nats_checksums='
  linux_amd64  5d2c51caca950333aba84911df7d377f826f3a59ec36061c6539105084f65c92
  linux_arm64  cdc208f5a3f42963a52b6ab06ef65626bb870315dc936e26ba571780c6351112
  darwin_amd64 5bd8b59ca5bf93fab3da2c5843cf564cd6e2e291e22ae3b861746e7ebe259b95
  darwin_arm64 e1c4e22d70bd44abfa0bcb3c16f7cf0c66f648c2e728c58924e8a1ce88913cc8'

# Its releases have no file of checksums: these are those that taiki-e/install-action and other public repositories pin.
deny_release=0.20.2
deny_url=https://github.com/EmbarkStudios/cargo-deny/releases/download/$deny_release/cargo-deny-$deny_release-PLATFORM.tar.gz
deny_checksums='
  linux_amd64  9f12ed4c49936e09b48bf862b595cde2fe64fcbd9d74dfacac6131ca824c8d5f x86_64-unknown-linux-musl
  linux_arm64  995c82be0defc7a025cae49a2aa2644ce8245c9a3318fc4103907c6a285e8c7d aarch64-unknown-linux-musl
  darwin_amd64 248da7f581724e470071990c088ffc55c811981715f4cbdb258621fb79f8b7a6 x86_64-apple-darwin
  darwin_arm64 fe67d82a10d8597a3549364cb733a3f9cc1bfff9031b7ae46384a9f2a72090c3 aarch64-apple-darwin'

# From taiki-e/install-action.
cyclonedx_release=0.5.9
cyclonedx_url=https://github.com/CycloneDX/cyclonedx-rust-cargo/releases/download/cargo-cyclonedx-$cyclonedx_release/cargo-cyclonedx-PLATFORM.tar.xz
cyclonedx_checksums='
  linux_amd64  9bd3e599314f50810c9d98b8b68a617ff9d3cc20873968d90b29d121f6b226ff x86_64-unknown-linux-musl
  linux_arm64  7bf131ca5389b07a4f10c182bcf8a5ad339d64408b6f0d8f6834a0bd6120a06a aarch64-unknown-linux-gnu
  darwin_amd64 59d2a583fa632f8759456c1b531340331255b277386d23c598a3dbbc916fde63 x86_64-apple-darwin
  darwin_arm64 4c53dfa21e70b65bf7f8d2592aadde3bcb02c1a40b6ec63b877e5ca65a29e180 aarch64-apple-darwin'

# download_release PROGRAM URL CHECKSUMS: downloads the archive at URL and moves PROGRAM out of it into the tools folder. CHECKSUMS has
# a line for each platform: its name, the SHA-256, and what stands for PLATFORM in the URL, if that is there. Returns 1 if the
# download is impossible, with one line that says why; the caller has another way.
download_release() {
  local program=$1 checksums=$3 log=$dev_dir/log/$1-download.log system machine expected platform url work code=0
  system=$(uname -s | tr '[:upper:]' '[:lower:]')
  case $(uname -m) in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) machine=$(uname -m) ;;
  esac
  expected=$(printf '%s\n' "$checksums" | awk -v platform="${system}_$machine" '$1 == platform { print $2 }')
  [ -n "$expected" ] || return 1
  platform=$(printf '%s\n' "$checksums" | awk -v platform="${system}_$machine" '$1 == platform { print $3 }')
  url=$(printf '%s' "$2" | sed "s/SYSTEM/$system/; s/MACHINE/$machine/; s/PLATFORM/$platform/")
  work=${tools_dir%/bin}/$program-download
  mkdir -p "$work"
  log_step "downloading $program from ${url#https://} (once)"
  # A network without a way there ends after seconds, a stalled download after 20 s.
  if ! run_with_progress "$log" curl -fsSL --proto '=https' --connect-timeout 5 --max-time 900 --speed-limit 10000 --speed-time 20 \
    -o "$work/archive" "$url"; then
    log_note "it cannot be downloaded: $(latest_line "$log")"
    code=1
  elif [ "$(sha256_of "$work/archive")" != "$expected" ]; then
    log_note "the download is not used: its SHA-256 is $(sha256_of "$work/archive"), expected $expected"
    code=1
  else
    tar -xf "$work/archive" -C "$work" && mv "$(find "$work" -type f -name "$program")" "$tools_dir/$program" || code=1
  fi
  rm -rf "$work"
  return "$code"
}

sha256_of() {
  if has_command sha256sum; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}
