#!/usr/bin/env bash
# generate.sh FOLDER NODE NODE_MODULES PYTHON: generates the clients from openapi.json into FOLDER, with the packages of
# typescript/package-lock.json (NODE_MODULES) and of scripts/openapi-python-client.txt (PYTHON).
# Started by `./dev generate-clients`, and by the test that compares the result with the committed clients.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
folder=$1 node=$2 node_modules=$3 python=$4
mkdir -p "$folder/typescript/src" "$folder/python"

"$node" "$node_modules/openapi-typescript/bin/cli.js" "$here/openapi.json" --output "$folder/typescript/src/schema.ts"

# The generator finds its formatter in PATH.
PATH=$(dirname "$python"):$PATH "$python" -m openapi_python_client generate --path "$here/openapi.json" \
  --config "$here/python/generator.yml" --meta none --fail-on-warning --output-path "$folder/python/payments_client"
: >"$folder/python/payments_client/py.typed"
