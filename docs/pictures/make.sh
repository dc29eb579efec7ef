#!/bin/sh
# Takes the pictures of the README: records a real session with the real
# yieldlog, and looks at it with a real browser and on a real terminal.
# Installs Chromium from Debian where it is missing.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -qq
	$sudo apt-get install -y -qq chromium
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/yieldlog" ./cmd/yieldlog
go run ./replay/chromium/shoot -yieldlog "$tmp/yieldlog" -out docs/pictures
ls -l docs/pictures/*.png
