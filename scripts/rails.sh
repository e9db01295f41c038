# shellcheck shell=bash
# `./dev up --rail NAME`: the demo with a real rail as its first switch: the service with the rail's shipped profile, the mock switch with
# the rail's shape.
# docs/rails/README.md says what a payment does there.

rail_names="sct_inst, fednow, rtp, upi, pix"

# configure_rail NAME: the mock switch takes the rail's shape. Leaves the bank's own part of the rail's ids in rail_participant.
configure_rail() {
  case $1 in
    sct_inst) rail_participant=DEMODEFF ;;
    fednow) rail_participant=DEMO00001 ;;
    rtp) rail_participant=DEMO0000001 ;;
    upi) rail_participant=DEM ;;
    pix) rail_participant=00000001 ;;
    *) fail "unknown rail '$1'; choose one of: $rail_names" ;;
  esac
  export MOCK_SWITCH_RAIL=$1
}

# write_rail_configuration NAME: the demo file, in which the rail's profile replaces the first switch's. Needs the run's folder.
write_rail_configuration() {
  local file=$dev_dir/rail.toml
  awk -v rail="$1" -v participant="$rail_participant" '
    /^\[/ { in_profile = 0 }
    /^\[switches\.mock\.profile\]/ {
      in_profile = 1
      printf "rail = \"%s\"\n\n%s\nparticipant = \"%s\"\n\n", rail, $0, participant
    }
    !in_profile' "$root/deploy/demo.toml" >"$file"
  export PAYMENTS_CONFIG=$file
}
