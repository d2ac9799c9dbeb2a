#!/bin/sh
# Requests with curl: client.sh FLAG [METHOD URL]…
# Each client here prints, a request, the body and a line "=== STATUS VERSION".
flag=$1
shift
while [ $# -gt 0 ]; do
	curl -sS "$flag" -X "$1" -w '\n=== %{http_code} %{http_version}\n' "$2" 2>&1
	shift 2
done
