# shellcheck shell=bash
# `./dev generate-clients`: regenerates the clients of the payments API; and what their generators and tests need.

node=          # path of Node.js
node_modules=  # folder of the npm packages of the TypeScript client
python_client= # path of a Python interpreter with the packages of the Python client and its generator
node_oldest=18.17

generate_clients() {
  local folder
  [ $# = 0 ] || fail "generate-clients takes no arguments"
  start_run clients
  install_tools
  install_client_tools
  log_step "writing clients/openapi.json from the routes of payments-api"
  UPDATE_OPENAPI=1 run_in_foreground cargo test -q --workspace --test api the_committed_openapi_document_matches_the_code ||
    fail "clients/openapi.json could not be written; see the messages above"
  make_temporary_folder clients
  folder=$REPLY
  log_step "generating the clients"
  run_in_foreground clients/generate.sh "$folder" "$node" "$node_modules" "$python_client" ||
    fail "the clients could not be generated; see the messages above"
  # The folder is replaced as a whole: what the document no longer has goes.
  rm -rf clients/python/payments_client
  cp -R "$folder/python/payments_client" clients/python/
  cp "$folder/typescript/src/schema.ts" clients/typescript/src/
  log_step "wrote clients/openapi.json, clients/typescript/src/schema.ts and clients/python/payments_client"
}

# Installs the generators and what the clients run with: Node.js, npm packages by the client's lock file, packages from PyPI.
install_client_tools() {
  install_from_pypi openapi-python-client
  python_client=$REPLY/python
  find_node || {
    install_from_pypi node
    node=$REPLY/node
  }
  install_from_npm clients/typescript
  node_modules=$REPLY
}

# An installed Node.js is used if it is recent enough and has npm, which some systems package separately.
find_node() {
  node=$(command -v node || true)
  [ -n "$node" ] && has_command npm && at_least "$("$node" --version | tr -d v)" "$node_oldest"
}

# install_from_npm FOLDER: installs the packages of FOLDER/package-lock.json; leaves their folder in REPLY. Their install scripts
# do not run.
install_from_npm() {
  local from=$1 dir
  dir=${tools_dir%/bin}/npm-$(cksum <"$from/package-lock.json" | cut -d ' ' -f 1)
  REPLY=$dir/node_modules
  [ ! -f "$dir/complete" ] || return 0
  log_step "installing the packages of $from from npm into $dir (once)"
  rm -rf "$dir"
  mkdir -p "$dir"
  cp "$from/package.json" "$from/package-lock.json" "$dir"
  run_logged "$dev_dir/log/npm.log" env "PATH=$(dirname "$node"):$PATH" npm --prefix "$dir" ci --ignore-scripts --no-audit --no-fund ||
    fail "the packages of $from could not be installed; see .dev/log/npm.log"
  : >"$dir/complete"
  REPLY=$dir/node_modules
}
