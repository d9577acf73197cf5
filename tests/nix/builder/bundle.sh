set -eu
mkdir -p "$out"
for one in $contents; do cp -r "$one"/* "$out/"; done
