#!/bin/sh
# Registers the search attributes of payment workflows; existing ones are skipped. TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE
# select server and namespace.
set -eu

# The namespace is created shortly after the server becomes healthy, and the server's cache sees it later.
tries=120
until known=$(temporal operator search-attribute list 2>/dev/null); do
  tries=$((tries - 1))
  if [ "$tries" = 0 ]; then
    echo "the namespace $TEMPORAL_NAMESPACE was not available within 2 minutes; check the Temporal server" >&2
    exit 1
  fi
  sleep 1
done

for attribute in PaymentSwitch:Keyword; do
  name=${attribute%:*}
  case $known in
    *"$name"*) echo "$name is already registered" ;;
    *) temporal operator search-attribute create --name "$name" --type "${attribute#*:}" ;;
  esac
done
