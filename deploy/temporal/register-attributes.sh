#!/bin/sh
# Registers the search attributes a payment is started with; those that exist already are left alone.
# The server's address and namespace come from TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE.
set -eu

# The namespace is made a moment after the server became healthy, and its cache is slow to see it.
tries=120
until known=$(temporal operator search-attribute list 2>/dev/null); do
  tries=$((tries - 1))
  if [ "$tries" = 0 ]; then
    echo "the namespace $TEMPORAL_NAMESPACE did not answer" >&2
    exit 1
  fi
  sleep 1
done

for attribute in PaymentSwitch:Keyword PaymentCurrency:Keyword PaymentAccount:Keyword PaymentAmountMinor:Int; do
  name=${attribute%:*}
  case $known in
    *"$name"*) echo "$name is registered" ;;
    *) temporal operator search-attribute create --name "$name" --type "${attribute#*:}" ;;
  esac
done
