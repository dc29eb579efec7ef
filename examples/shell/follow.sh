#!/bin/sh
# Prints the events of a ledger as JSON lines: first those that it has not seen,
# then the live ones. The cursor is its own, in a file. It needs the nats command.
#
#   eval "$(yieldlog subscriber --env)"
#   ./follow.sh [--once] 'yieldlog.*.execution.*.settled' settled.cursor
set -eu
once=
if [ "${1-}" = --once ]; then once=1; shift; fi
if [ $# != 2 ]; then echo "usage: follow.sh [--once] SUBJECT CURSOR_FILE" >&2; exit 2; fi
subject=$1 file=$2
cursor=$(cat "$file" 2>/dev/null || echo 0)

# lines: the answers of a batched direct get as JSON lines. A body is one line.
lines() {
	awk '
		/ Received with rtt / { seq = "" }
		$2 == "Nats-Sequence:" { seq = $3 }
		$2 == "ce-type:" { type = $3 }
		$2 == "ce-id:" { id = $3 }
		$2 == "ce-subject:" { about = $3 }
		/^\{/ && seq != "" {
			printf "{\"seq\":%s,\"type\":\"%s\",\"id\":\"%s\",\"subject\":\"%s\",\"body\":%s}\n", seq, type, id, about, $0
			seq = ""
		}'
}

catch_up() {
	while :; do
		batch=$(nats req '$JS.API.DIRECT.GET.LIFECYCLE' --wait-for-empty --no-templates \
			"{\"seq\":$((cursor + 1)),\"batch\":256,\"next_by_subj\":\"$subject\"}" 2>&1 | lines)
		[ -n "$batch" ] || return 0
		printf '%s\n' "$batch"
		cursor=$(printf '%s\n' "$batch" | sed -n '$s/^{"seq":\([0-9]*\),.*/\1/p')
		echo "$cursor" >"$file"
	done
}

catch_up
while [ -z "$once" ]; do
	# A live event only wakes: the next batch has it, and its sequence. The
	# wait bounds what a moment between the two can cost.
	nats sub "$subject" --count 1 --wait 5s >/dev/null 2>&1 || sleep 1
	catch_up
done
